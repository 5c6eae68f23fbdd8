import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_rehearsal import answer, ask, closed_loop, drain, make_engine, prompt

from raybench.scenario.sim_block import Sim
from raybench.sim.request import Finish, Request


def test_cached_tokens_of_cold_warm_flushed_and_half_shared_prompts_are_those_of_the_real_engine() -> None:
    # captures/sglang-0.5.23-cpu/main/27 to 33: 0, 999, 0, 500 of 1000 at page size 1
    engine = make_engine(Sim(page_tokens=1))
    ids = prompt(1, 1000)
    half = np.concatenate((ids[:500], prompt(2, 500)))
    assert answer(engine, ask("1", ids)).cached == 0
    warm = answer(engine, ask("2", ids))
    assert (warm.cached_device, warm.cached_host) == (999, 0)
    assert engine.flush(engine.now + 1.0)
    assert answer(engine, ask("3", ids)).cached == 0
    assert answer(engine, ask("4", half)).cached == 500


def test_hits_are_whole_pages_and_leave_the_last_token_to_compute() -> None:
    engine = make_engine()
    answer(engine, ask("1", prompt(1, 64)))
    assert answer(engine, ask("2", prompt(1, 64))).cached == 48
    assert answer(engine, ask("3", prompt(1, 64)[:30])).cached == 16


def test_an_answer_becomes_part_of_the_prefix_of_the_next_turn() -> None:
    engine = make_engine()
    first = answer(engine, ask("1", prompt(1, 64), 32))
    turn = np.concatenate((first.prompt, engine.ring.ids(first.ring_start, 32), prompt(2, 16)))
    assert answer(engine, ask("2", turn)).cached == 96


def test_the_same_prompt_has_the_same_answer_whatever_was_cached_and_another_seed_has_another() -> None:
    engine, other = make_engine(), make_engine(Sim(seed=1))
    runs = [answer(engine, ask(str(n), prompt(1, 64), 16)) for n in range(2)]
    texts = [engine.ring.id_bytes(run.ring_start, run.output) for run in runs]
    assert texts[0] == texts[1]
    elsewhere = answer(other, ask("1", prompt(1, 64), 16))
    assert other.ring.id_bytes(elsewhere.ring_start, 16) != texts[0]


def test_without_a_radix_cache_nothing_is_ever_hit() -> None:
    engine = make_engine(radix_cache=False)
    answer(engine, ask("1", prompt(1, 64)))
    assert answer(engine, ask("2", prompt(1, 64))).cached == 0


def test_not_more_than_the_limit_run_at_once_and_the_rest_waits() -> None:
    engine = make_engine(Sim(max_running_requests=4))
    requests = closed_loop(engine, [ask(f"r{n:02d}", prompt(n, 64), 8) for n in range(12)], 12)
    assert engine.in_flight_max == 12
    assert engine.running_max == 4
    assert all(request.output == 8 for request in requests)
    assert requests[-1].admitted_at > requests[-1].arrival


def test_the_pool_limits_how_many_run_when_the_whole_output_is_kept_back() -> None:
    engine = make_engine(Sim(kv_pool_tokens=1024))
    requests = closed_loop(engine, [ask(f"r{n}", prompt(n, 192), 64) for n in range(8)], 8)
    # 256 tokens each, one page beside: three of them fit into 64 pages
    assert engine.running_max == 3
    assert sum(request.retractions for request in requests) == 0


def test_a_long_prompt_is_prefilled_in_chunks_and_its_hits_count_once() -> None:
    log: list[str] = []
    engine = make_engine(log=log)
    answer(engine, ask("1", prompt(1, 5000), 1))
    new = [int(line.split("#new-token: ")[1].split(",")[0]) for line in log if "Prefill" in line]
    assert new == [2048, 2048, 904]
    log.clear()
    answer(engine, ask("2", np.concatenate((prompt(1, 5000)[:2000], prompt(2, 3000))), 1))
    cached = [int(line.split("#cached-token: ")[1].split(",")[0]) for line in log if "Prefill" in line]
    assert cached == [2000, 0]
    assert engine.tally.counts["prefill_effective_tokens_total", "device_hit"] == 2000
    assert engine.tally.counts["prefill_effective_tokens_total", "input"] == 5000 + 3000


def test_several_prompts_share_a_prefill_batch_up_to_the_chunk_budget() -> None:
    log: list[str] = []
    engine = make_engine(log=log)
    closed_loop(engine, [ask(str(n), prompt(n, 1000), 1) for n in range(3)], 3)
    sequences = [line.split("#new-seq: ")[1].split(",")[0] for line in log if "Prefill" in line]
    assert sequences == ["3", "1"]


def test_a_waiting_prompt_goes_before_decoding() -> None:
    engine = make_engine()
    first, second = ask("1", prompt(1, 64), 50), ask("2", prompt(2, 64), 2)
    engine.submit(first, 0.0)
    engine.advance(engine.profile.prefill_step_s + engine.profile.prefill_s(64, 0))
    seen = first.output
    engine.submit(second, engine.now)
    while second.first_token_at is None:
        engine.advance(engine.next_time)
    assert first.output - seen <= 1


def test_a_bigger_batch_decodes_slower_for_each_and_faster_for_all() -> None:
    profile = make_engine(Sim(profile="tp2pp4")).profile
    assert profile.decode_s(1) < profile.decode_s(16) < profile.decode_s(48) < profile.decode_s(60)
    assert 48 / profile.decode_s(48) > 16 / profile.decode_s(16) > 1 / profile.decode_s(1)


def test_speculation_gives_one_to_five_tokens_a_step_and_never_more_than_asked() -> None:
    engine = make_engine(Sim(profile="tp8_eagle3"))
    request = ask("1", prompt(1, 64), 100)
    engine.submit(request, 0.0)
    steps, before = [], 0
    while (end := engine.next_time) is not None:
        if request in engine.advance(end):
            steps.append(request.output - before)
            before = request.output
    assert request.output == 100
    assert steps[0] == 1
    assert max(steps) > 1
    assert all(1 <= step <= 5 for step in steps)
    assert request.verify_steps == len(steps) - 1
    assert request.accept_length == pytest.approx(100 / request.verify_steps)


def test_the_output_length_is_clipped_in_silence_at_the_end_of_the_context() -> None:
    engine = make_engine()
    request = answer(engine, ask("1", prompt(1, 32_000), 768))
    # max_req_len - input - 1 = 32767 - 32000 - 1
    assert request.output == 766
    assert request.finish == Finish("length")


def test_an_input_over_the_schedulers_limit_is_refused_with_status_400() -> None:
    engine = make_engine()
    request = ask("1", prompt(1, 32_763), 1)
    engine.submit(request, 0.0)
    assert request.finish is not None
    assert (request.finish.kind, request.finish.status) == ("abort", 400)
    assert engine.next_time is None


def test_a_flush_is_refused_while_anything_runs_and_for_a_moment_after() -> None:
    log: list[str] = []
    engine = make_engine(log=log)
    engine.submit(ask("1", prompt(1, 64), 8), 0.0)
    engine.advance(0.006)
    assert not engine.flush(0.006)
    assert "#running-req: 1" in log[-1]
    drain(engine)
    assert not engine.flush(engine.now)
    assert engine.flush(engine.now + 0.01)
    assert log[-1] == "Cache flushed successfully!"


def test_pages_pushed_out_of_the_device_come_back_from_the_host_tier_until_a_flush() -> None:
    # captures/sglang-0.5.17-gpu/hicache: host 1984 of 2000 after eviction, 0 after the flush
    engine = make_engine(Sim(kv_pool_tokens=8192, page_tokens=64), host_tier_ratio=3.0)
    ids = prompt(1, 2000)
    answer(engine, ask("1", ids))
    assert answer(engine, ask("2", ids)).cached_device == 1984
    for other in range(2, 8):
        answer(engine, ask(f"other {other}", prompt(other, 2000)))
    again = answer(engine, ask("3", ids))
    assert (again.cached_device, again.cached_host) == (0, 1984)
    assert engine.tally.counts["load_back_tokens_total", ""] == 1984
    assert engine.flush(engine.now + 1.0)
    assert answer(engine, ask("4", ids)).cached == 0


def test_a_flush_waits_for_copies_to_the_host_tier() -> None:
    engine = make_engine(host_tier_ratio=3.0, host_write_s=1e-3)
    answer(engine, ask("1", prompt(1, 1600)))
    assert not engine.idle(engine.now + 0.5)
    assert engine.idle(engine.now + 2.0)


def test_under_pool_pressure_the_shortest_answers_are_retracted_and_still_end_complete() -> None:
    log: list[str] = []
    engine = make_engine(Sim(kv_pool_tokens=3008, page_tokens=1), log=log)
    requests = [ask(f"r{n:02d}", prompt(n, 200), 400, ignore_eos=False) for n in range(24)]
    closed_loop(engine, requests, 24)
    retracted = [request for request in requests if request.retractions]
    assert retracted
    assert all(request.output == 400 for request in requests)
    assert engine.tally.counts["num_retracted_requests_total", ""] == sum(
        request.retractions for request in requests
    )
    assert any(line.startswith("KV cache pool is full. Retract requests. #retracted_reqs: ") for line in log)
    # contracts A9: hits of a retracted request's own prefill are in the log, not in meta_info or `effective`
    assert all(request.cached == 0 for request in requests)
    assert engine.tally.counts["prefill_effective_tokens_total", "device_hit"] == 0
    assert engine.tally.counts["prefill_effective_tokens_total", "input"] == 24 * 200


def test_an_abort_takes_every_id_that_begins_with_the_given_one() -> None:
    engine = make_engine(Sim(max_running_requests=1))
    requests = [ask(rid, prompt(n, 64), 50) for n, rid in enumerate(("bench-1", "bench-10", "other"))]
    for request in requests:
        engine.submit(request, 0.0)
    engine.advance(0.01)
    assert set(engine.abort("bench-1", 0.01)) == set(requests[:2])
    drain(engine)
    assert [request.finish.kind for request in requests] == ["abort", "abort", "length"]
    assert engine.tally.counts["num_aborted_requests_total", ""] == 2


def test_a_cancelled_request_gives_back_its_memory_at_once_and_the_engine_is_idle_again() -> None:
    engine = make_engine()
    request = ask("1", prompt(1, 5000), 50)
    engine.submit(request, 0.0)
    engine.advance(0.001)
    assert engine.pool.used > 0
    engine.cancel(request, 0.002)
    assert engine.pool.used == 0
    assert engine.next_time is None
    assert engine.flush(1.0)


def test_counters_of_prompts_move_only_at_the_end_and_health_checks_are_none() -> None:
    engine = make_engine()
    engine.submit(ask("1", prompt(1, 64), 8), 0.0)
    engine.advance(0.008)
    assert engine.tally.counts["prefill_effective_tokens_total", "input"] == 64
    assert engine.tally.counts["prompt_tokens_total", "true"] == 0
    drain(engine)
    answer(engine, ask("HEALTH_CHECK", prompt(2, 1), 1, internal=True))
    counts = engine.tally.counts
    assert (
        counts["prompt_tokens_total", "true"],
        counts["generation_tokens_total", "true"],
        counts["num_requests_total", "true"],
    ) == (64, 8, 1)


def test_a_pipeline_gives_the_first_token_later_and_takes_the_next_prompt_meanwhile() -> None:
    engine = make_engine(Sim(profile="tp2pp4"))
    first, second = ask("1", prompt(1, 16_384), 1), ask("2", prompt(2, 16_384), 1)
    engine.submit(first, 0.0)
    engine.submit(second, 0.0)
    drain(engine)
    stage = engine.profile.prefill_step_s + engine.profile.prefill_s(16_384, 0)
    assert first.first_token_at == pytest.approx(4 * stage)
    assert second.first_token_at == pytest.approx(5 * stage)


SHAPES = st.tuples(st.integers(1, 300), st.integers(1, 60), st.booleans(), st.integers(0, 3))


@settings(max_examples=60, deadline=None)
@given(shapes=st.lists(SHAPES, min_size=1, max_size=20), data=st.data())
def test_any_load_ends_complete_and_leaves_no_page_in_use(shapes: list[tuple], data: st.DataObject) -> None:
    page = data.draw(st.sampled_from([1, 16]), "page")
    concurrency = data.draw(st.integers(1, 20), "concurrency")
    profile = data.draw(st.sampled_from(["small", "tp2pp4", "tp8_eagle3"]), "profile")
    engine = make_engine(
        Sim(profile=profile, kv_pool_tokens=512, page_tokens=page, max_running_requests=6), chunk_tokens=64
    )
    requests = [
        ask(f"r{n}", prompt(seed, tokens), output, ignore_eos=ignore)
        for n, (tokens, output, ignore, seed) in enumerate(shapes)
    ]
    asked = [request.max_new_tokens for request in requests]
    closed_loop(engine, requests, concurrency)
    assert [request.output for request in requests] == asked
    assert engine.in_flight_max == min(concurrency, len(requests))
    assert engine.pool.used == 0
    assert engine.pool.free + len(engine.pool.device) == engine.pool.pages
    assert engine.running_max <= 6
    for request in requests:
        assert request.arrival <= request.admitted_at < request.first_token_at <= request.finished_at
    assert engine.flush(engine.now + 10.0)
    assert engine.pool.free == engine.pool.pages


def test_requests_are_compared_by_identity() -> None:
    ids = prompt(1, 16)
    assert Request("1", ids, 1) != Request("1", ids, 1)
