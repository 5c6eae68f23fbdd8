"""The whole order of steps of an attempt, read from a log of what the engine and the fleet were asked."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from protocol_fakes import NS_PER_S, FakeEngine, Stage, scenario

from raybench.engines import ENGINES
from raybench.engines.contract import Counters, Gauges, Http, QueueState, Reply
from raybench.load.order import OrderKey
from raybench.records.stream import read_part
from raybench.scenario.schema import Scenario


def play(given: Scenario, engine: FakeEngine, path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setitem(ENGINES, "sglang", engine)
    stage = Stage(path, given, engine)
    asyncio.run(stage.play())
    return stage


def once(log: list[str]) -> list[str]:
    """Repeated looks of one wait as one."""
    return [name for name, _ in itertools.groupby(log)]


def test_every_step_of_an_attempt_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = play(scenario(), FakeEngine(), tmp_path, monkeypatch)
    # The first is that of the arm, before any attempt.
    assert once(stage.engine.log) == [
        "alive",
        "idle",
        "prewarm",
        "idle",
        "flush",
        "counters",
        "load",
        "idle",  # nobody else is left inside, and gauges have caught up: what ended meanwhile is in the counters
        "counters",
    ]
    assert stage.steps() == [
        "alive",
        "idle",
        "prewarm",
        "idle",
        "flush",
        "counters_before",
        "load",
        "counters_after",
    ]
    assert {event["status"] for event in stage.events("step")} == {"done"}
    assert stage.engine.log.count("alive") == 2


def test_a_retried_attempt_begins_at_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = play(scenario(), FakeEngine(always_hit=True), tmp_path, monkeypatch)
    one = ["alive", "idle", "prewarm", "idle", "flush", "counters_before", "load", "counters_after"]
    assert stage.steps() == one * 2
    assert [event["attempt"] for event in stage.events("step")] == [1] * 8 + [2] * 8


def test_without_prewarm_and_flush_these_steps_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = scenario(guards="prewarm_requests: 0, flush: false")
    stage = play(given, FakeEngine(), tmp_path, monkeypatch)
    assert stage.steps() == ["alive", "idle", "counters_before", "load", "counters_after"]


def test_o_p1_no_flush_ever_happens_during_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = play(scenario(), FakeEngine(always_hit=True), tmp_path, monkeypatch)
    log = once(stage.engine.log)
    loads = [number for number, name in enumerate(log) if name == "load"]
    assert [log[number - 1 : number + 3] for number in loads] == [["counters", "load", "idle", "counters"]] * 2


def test_a_link_of_the_targets_host_that_flaps_under_load_voids_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()
    monkeypatch.setitem(ENGINES, "sglang", engine)
    stage = Stage(tmp_path, scenario(), engine)
    stage.host.changes = 2
    asyncio.run(stage.play())
    assert [verdict for _, _, verdict in stage.commits()] == ["void"]
    (told,) = stage.events("verdict")
    assert [found["code"] for found in told["findings"] if found["severity"] == "void"] == ["link_interrupted"]


def test_what_a_worker_sends_after_the_load_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = play(scenario(), FakeEngine(), tmp_path, monkeypatch)
    ((point_id, attempt, _),) = stage.commits()
    assert attempt is not None
    part = stage.run.part(point_id, attempt, "w000")
    before = part.read_bytes()
    asyncio.run(stage.fleet.desk.append("w000", OrderKey(point_id, attempt, "load"), "requests", b"late"))
    assert part.read_bytes() == before


def test_o_l1_the_prewarm_obeys_the_cap_of_the_load_and_sends_other_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = "  - {name: load, input_tokens: 64, output_tokens: 4, concurrency: [3], requests: 6}"
    stage = play(scenario(workload, guards="prewarm_requests: 10"), FakeEngine(), tmp_path, monkeypatch)
    assert stage.fleet.executed == [
        ("prewarm", {"w000": 2, "w001": 1}),
        ("load", {"w000": 2, "w001": 1}),
    ]
    prewarm, load = stage.engine.prompts[:10], stage.engine.prompts[10:]
    assert len(load) == 6
    assert not {prompt[:16] for prompt in prewarm} & {prompt[:16] for prompt in load}


def test_a_prewarm_of_fewer_requests_than_the_concurrency_leaves_the_other_slots_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = "  - {name: load, input_tokens: 64, output_tokens: 4, concurrency: [8], requests: 8}"
    stage = play(scenario(workload, guards="prewarm_requests: 1"), FakeEngine(), tmp_path, monkeypatch)
    assert stage.fleet.executed[0] == ("prewarm", {"w000": 1, "w001": 0})
    assert stage.commits() == [("arm/load/c8", 1, "accepted")]


def test_request_ids_are_of_one_width_and_unique_over_attempts_and_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = play(scenario(), FakeEngine(always_hit=True), tmp_path, monkeypatch)
    rids: list[str] = []
    for part in stage.run.parts.rglob("*.arrows"):
        rids += read_part(part).table["rid"].to_pylist()
    assert len(rids) == len(set(rids)) == 10
    assert {len(rid) for rid in rids} == {len(rids[0])}


def test_steps_are_journalled_with_their_seconds_and_what_they_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = play(scenario(guards="prewarm_requests: 1, idle_stable_s: 1.0"), FakeEngine(), tmp_path, monkeypatch)
    steps = {event["step"]: event for event in stage.events("step")}
    assert steps["idle"]["seconds"] == pytest.approx(1.0)
    assert steps["idle"]["source"] == "engine"
    assert steps["flush"]["reply"].startswith("HTTP 200")
    assert steps["counters_before"]["instance"] == "pid-1"
    assert steps["counters_after"]["counters"]["requests"] == steps["counters_before"]["counters"]["requests"] + 4
    assert (steps["load"]["sent"], steps["load"]["lost"]) == (4, {})
    (started,), (ended,) = stage.events("load_started"), stage.events("load_ended")
    assert ended["unix_ns"] - started["unix_ns"] == 2 * NS_PER_S
    told = [(event["phase"], event["when"]) for event in stage.events("clock")]
    assert told == [(phase, when) for phase in ("prewarm", "load") for when in 3 * ["start"] + 3 * ["end"]]


class LateCounters(FakeEngine):
    """Counters that move only after some looks, as engines' do behind their last byte."""

    behind = 3

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        scraped = await super().scrape(http)
        if self.log.count("load") and self.behind:
            self.behind -= 1
            return self._before
        self._before = scraped
        return scraped


def test_late_counters_are_no_foreign_traffic_and_not_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = play(scenario(), LateCounters(), tmp_path, monkeypatch)
    assert stage.verdicts() == ["accept"]
    assert stage.events("verdict")[0]["findings"] == []


class Unknowing(FakeEngine):
    async def queue(self, http: Http) -> QueueState | None:
        return None


def test_an_idle_state_that_the_engine_cannot_tell_is_journalled_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = play(scenario(), Unknowing(), tmp_path, monkeypatch)
    sources = [event["source"] for event in stage.events("step") if event["step"] == "idle"]
    assert sources == ["unknown", "unknown"]
    assert [f["code"] for f in stage.events("verdict")[0]["findings"]] == ["idle_not_verified"]


def test_a_failed_step_is_journalled_with_the_engine_s_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(flush_forever=Reply(400, b"running requests"))
    stage = play(scenario(), engine, tmp_path, monkeypatch)
    last = stage.events("step")[-1]
    assert (last["step"], last["status"], last["attempt"]) == ("flush", "failed", 1)
    assert "running requests" in last["error"]
    assert last["seconds"] == pytest.approx(120.0)


class Haunted(FakeEngine):
    """Goes on with what a lost worker had sent, until it is aborted."""

    async def queue(self, http: Http) -> QueueState | None:
        await super().queue(http)
        aborted = any(name.startswith("abort") for name in self.log)
        return QueueState(0 if aborted or "load" not in self.log else 1, 0)


def test_what_a_lost_worker_had_is_ended_by_id_before_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Haunted()
    monkeypatch.setitem(ENGINES, "sglang", engine)
    stage = Stage(tmp_path, scenario(), engine, lose_in=(1, "w001"))
    asyncio.run(stage.play())
    aborted = [name.removeprefix("abort ") for name in engine.log if name.startswith("abort")]
    assert len(aborted) == len(set(aborted)) == 4
    assert len({len(rid) for rid in aborted}) == 1
    (step,) = [event for event in stage.events("step") if event["step"] == "ghosts"]
    assert (step["given_up"], step["aborted"]) == (4, 4)


def test_refused_flushes_are_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [Reply(400, b"busy"), Reply(400, b"busy still")]
    stage = play(scenario(), FakeEngine(flush_replies=refusals), tmp_path, monkeypatch)
    (step,) = [event for event in stage.events("step") if event["step"] == "flush"]
    assert step["refusals"] == ["HTTP 400 busy", "HTTP 400 busy still"]
    assert step["reply"] == "HTTP 200 ok"


class LaggingEngine(FakeEngine):
    """Its gauge tells of one request for 40 more looks after the load; `late` requests end meanwhile."""

    looks = 40
    late = 0

    async def queue(self, http: Http) -> QueueState | None:
        if self.log.count("load") == 0 or self.looks == 0:
            return await super().queue(http)
        self.looks -= 1
        if self.looks == 0:
            self.counters["requests"] += self.late
        return QueueState(1, 0)


def test_a_gauge_that_lags_behind_is_waited_for_and_is_no_foreign_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = scenario(guards="counters_settle_s: 1.0, idle_timeout_s: 300.0")
    stage = play(given, LaggingEngine(), tmp_path, monkeypatch)
    assert [event["verdict"] for event in stage.events("verdict")] == ["accept"]


def test_a_foreign_request_that_ends_while_the_gauge_is_waited_for_shows_in_the_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = scenario(guards="counters_settle_s: 1.0, idle_timeout_s: 300.0")
    engine = LaggingEngine()
    engine.late = 1
    stage = play(given, engine, tmp_path, monkeypatch)
    [verdict] = stage.events("verdict")
    assert verdict["verdict"] == "void"
    assert [finding["code"] for finding in verdict["findings"]] == ["foreign_traffic"]
