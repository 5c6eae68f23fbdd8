import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from sim_rehearsal import answer, ask, closed_loop, drain, make_engine, prompt

from raybench.corpus.windows import WindowLedger
from raybench.errors import ConfigError
from raybench.scenario.sim_block import Sim, SimFaults
from raybench.sim.engine import Engine
from raybench.sim.faults import Faults, Preload, load_preload
from raybench.sim.profiles import make_profile

CORPUS = prompt(7, 20_000)


def windows(ledger: WindowLedger, count: int, tokens: int) -> list[np.ndarray]:
    starts = ledger.take(CORPUS, count, tokens, "test")
    return [CORPUS[start : start + tokens] for start in starts.tolist()]


def test_without_faults_a_flush_clears_the_host_tier() -> None:
    engine = make_engine(host_tier_ratio=3.0)
    answer(engine, ask("1", prompt(1, 640)))
    assert engine.flush(engine.now + 1.0)
    assert answer(engine, ask("2", prompt(1, 640))).cached == 0


def test_o_p3_a_host_tier_that_survives_the_flush_gives_the_same_text_back_for_ever() -> None:
    engine = make_engine(faults=SimFaults(host_tier=True))
    answer(engine, ask("1", prompt(1, 640)))
    for attempt in range(2):
        assert engine.flush(engine.now + 1.0)
        again = answer(engine, ask(f"again {attempt}", prompt(1, 640)))
        assert (again.cached_device, again.cached_host) == (0, 624)
    assert answer(engine, ask("fresh", prompt(2, 640))).cached == 0


def test_always_hit_reports_every_prompt_as_cached() -> None:
    engine = make_engine(faults=SimFaults(always_hit=True))
    request = answer(engine, ask("1", prompt(1, 640)))
    assert request.cached == request.cached_host == 624
    assert engine.tally.counts["prefill_effective_tokens_total", "host_hit"] == 624
    assert engine.flush(engine.now + 1.0)
    assert answer(engine, ask("2", prompt(2, 640))).cached == 624


def test_o_p1_a_number_of_flushes_is_refused_and_then_one_is_carried_out() -> None:
    engine = make_engine(faults=SimFaults(flush_refusals=2))
    assert [engine.flush(at) for at in (1.0, 2.0, 3.0, 4.0)] == [False, False, True, True]


def test_a_refusal_while_busy_is_none_of_the_promised_ones() -> None:
    engine = make_engine(faults=SimFaults(flush_refusals=1))
    engine.submit(ask("1", prompt(1, 64)), 0.0)
    assert not engine.flush(0.0)
    drain(engine)
    answer(engine, ask("2", prompt(2, 64)))
    assert [engine.flush(engine.now + wait) for wait in (1.0, 2.0)] == [False, True]


def test_flush_refused_never_flushes() -> None:
    engine = make_engine(faults=SimFaults(flush="refused"))
    assert not any(engine.flush(float(at)) for at in range(1, 20))


def test_a_preloaded_engine_hits_on_the_first_attempt_and_not_on_fresh_text(tmp_path: Path) -> None:
    ledger = WindowLedger(tmp_path / "ledger.jsonl", "instance")
    engine = make_engine(faults=SimFaults(preload_corpus=True), preload=Preload(CORPUS, 6))
    first = windows(ledger, 2, 320) + windows(ledger, 4, 320)
    for n, ids in enumerate(first):
        assert answer(engine, ask(f"first {n}", ids)).cached == 304
    assert engine.flush(engine.now + 1.0)
    for n, ids in enumerate(windows(ledger, 6, 320)):
        assert answer(engine, ask(f"retry {n}", ids)).cached == 0
    assert engine.flush(engine.now + 1.0)
    assert answer(engine, ask("first again", first[0])).cached == 304
    ledger.close()


def test_a_preloaded_engine_holds_no_text_from_outside_the_corpus() -> None:
    engine = make_engine(faults=SimFaults(preload_corpus=True), preload=Preload(CORPUS, None))
    assert answer(engine, ask("1", prompt(1, 320))).cached == 0
    half = np.concatenate((CORPUS[640:800], prompt(1, 160)))
    assert answer(engine, ask("2", half)).cached == 160
    assert answer(engine, ask("3", CORPUS[:10])).cached == 0


def test_a_preload_is_not_used_unless_the_fault_is_set() -> None:
    engine = make_engine(preload=Preload(CORPUS, None))
    assert answer(engine, ask("1", CORPUS[:320])).cached == 0


def test_the_preload_is_read_from_the_scenarios_own_words() -> None:
    corpus = {"synthetic": {"tokens": 4096, "vocabulary": 1000, "seed": 3}}
    preload = load_preload(json.dumps({"corpus": corpus, "windows": 1}))
    everything = load_preload(json.dumps({"corpus": corpus}))
    ids = everything._ids[64:192]
    assert everything.held_tokens(ids) == 128
    assert preload.held_tokens(ids) == 128
    assert preload.held_tokens(everything._ids[128:256]) == 0


def test_a_preload_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        load_preload(json.dumps({"corpus": {"synthetic": {}}, "window": 1}))
    with pytest.raises(ConfigError):
        load_preload(json.dumps({"corpus": {"path": "none.npy"}, "base": str(tmp_path)}))


def test_each_third_request_brings_one_of_another_client() -> None:
    faults = Faults(SimFaults(foreign_every=3, foreign_output_tokens=5))
    told = []
    for _ in range(6):
        faults.arrives()
        told.append(faults.foreign_due())
    assert told == [0, 0, 5, 0, 0, 5]


@pytest.mark.parametrize(("hidden", "names"), [(False, 1), (True, 0)])
def test_a_restart_comes_once_and_may_hide(hidden: bool, names: int) -> None:
    faults = Faults(SimFaults(restart_after=2, restart_hidden=hidden))
    told = []
    for _ in range(4):
        faults.arrives()
        told.append(faults.restarts_now())
    assert (told, faults.restarts) == ([False, True, False, False], names)


def test_of_so_many_answers_one_meets_its_fate() -> None:
    faults = Faults(SimFaults(answer="cut", answer_every=3))
    assert [faults.fate() for _ in range(6)] == [None, None, "cut", None, None, "cut"]


def test_data_parallel_ranks_log_their_own_batches_and_flushes() -> None:
    lines: list[tuple[str, int]] = []
    sim = Sim(faults=SimFaults(dp_ranks=2, flush="first_rank"))
    engine = Engine(make_profile(sim), Faults(sim.faults), log=lambda line, rank: lines.append((line, rank)))
    closed_loop(engine, [ask(f"r{number}", prompt(number, 64)) for number in range(4)], 4)
    prefill = [rank for line, rank in lines if line.startswith("Prefill batch") and "#new-token: 128" in line]
    assert prefill == [0, 1]
    lines.clear()
    assert engine.flush(engine.now + 1.0)
    assert [(line[:13], rank) for line, rank in lines] == [("Cache flushed", 0), ("Cache not flu", 1)]


def test_tokens_that_a_retracted_request_finds_again_are_kept_apart() -> None:
    engine = make_engine(Sim(kv_pool_tokens=1024), host_tier_ratio=3.0)
    requests = [ask(f"r{number}", prompt(number, 128), 128, ignore_eos=False) for number in range(16)]
    closed_loop(engine, requests, 6)
    retracted = [request for request in requests if request.retractions]
    assert retracted
    assert all(request.cached == 0 for request in requests)
    assert any(request.found_again for request in retracted)
    for kind in ("told", "with_retractions"):
        told = Faults(SimFaults(cached_tokens=kind))
        cached = [told.told_cached(request) for request in requests]
        assert cached == [request.found_again * (kind == "with_retractions") for request in requests]
        assert cached == [sum(told.told_tiers(request).values()) for request in requests]


def test_a_pace_spread_makes_requests_of_one_length_differ_by_so_much() -> None:
    engine = make_engine(faults=SimFaults(pace_spread=100))
    requests = [answer(engine, ask(f"{number}", prompt(number, 64), 8)) for number in range(40)]
    assert {request.output for request in requests} == {8}
    steps = sorted(request.steps for request in requests)
    assert 7 <= steps[0] < 30
    assert 300 < steps[-1] <= 700
    assert all(request.steps == 7 * request.pace for request in requests)


def test_the_pace_is_drawn_by_ratio() -> None:
    faults = Faults(SimFaults(pace_spread=100))
    assert [faults.pace(chance) for chance in (0.0, 0.5, 0.999999)] == [1, 10, 100]
    assert Faults(SimFaults()).pace(0.7) == 1
