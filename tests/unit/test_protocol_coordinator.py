"""The coordinator with a fake engine, fleet and target host: verdicts, retries, stops, resumes."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from protocol_fakes import ONE, ROOMY, TWO, FakeEngine, Stage, first_ids, scenario

from raybench.analysis.parts import AttemptParts
from raybench.corpus.tokens import load_corpus
from raybench.corpus.windows import WindowLedger
from raybench.engines import ENGINES
from raybench.engines.contract import Facts, Reply
from raybench.errors import EXIT_SERVICE, EXIT_TARGET, ClusterError, TargetError
from raybench.protocol.client_checks import check_rooflines
from raybench.protocol.evidence import history_of, load_requests
from raybench.protocol.fleet import ServiceReport
from raybench.protocol.invocation import Earlier, Outcome
from raybench.protocol.planning import limits_of
from raybench.records.roofline import Roofline
from raybench.scenario.launch import Launch
from raybench.scenario.schema import Limits, Scenario, Service


@pytest.fixture
def on_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Stage]:
    """Stages whose engine is what the scenarios mean by `sglang`."""

    class Here(Stage):
        def __init__(self, given: Scenario, engine: FakeEngine | None = None, **changes: object) -> None:
            engine = engine or FakeEngine()
            monkeypatch.setitem(ENGINES, "sglang", engine)
            super().__init__(tmp_path, given, engine, **changes)  # type: ignore[arg-type]

    return Here  # type: ignore[return-value]


def play(stage: Stage) -> Outcome:
    return asyncio.run(stage.play())


def test_a_cold_point_is_accepted_and_committed_after_its_verdict(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario())
    outcome = play(stage)
    assert outcome == Outcome("complete", accepted=1, void=0, skipped=0, missing=0, reason=None, exit_code=0)
    assert stage.verdicts() == ["accept"]
    assert stage.commits() == [("arm/load/c2", 1, "accepted")]
    names = [event["event"] for event in stage.events()]
    story = ["run_started", "arm_ready", "attempt_started", "load_started", "load_ended", "verdict"]
    story += ["point_committed", "run_ended"]
    assert [name for name in names if name in story] == story
    assert {control.closed for control in stage.controls} == {True}
    rows, torn, _ = load_requests(AttemptParts(stage.run, "arm/load/c2", 1, history_of(stage.run)))
    assert (rows.num_rows, torn) == (4, ())
    seen = stage.progress.snapshot()
    assert (seen.step, seen.points_done, seen.last_verdicts) == ("done", 1, (("arm/load/c2", "accepted"),))


def test_the_journal_names_the_windows_of_load_and_prewarm(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario())
    play(stage)
    (begun,) = stage.events("attempt_started")
    assert begun["windows"]["load"]["count"] == 4
    assert begun["windows"]["prewarm"]["count"] == 1
    rows, _, _ = load_requests(AttemptParts(stage.run, "arm/load/c2", 1, history_of(stage.run)))
    starts = rows["window_start"].to_pylist()
    assert (begun["windows"]["load"]["first"], begun["windows"]["load"]["last"]) == (min(starts), max(starts))


def test_without_a_prewarm_the_journal_names_no_windows_of_one(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario(guards="prewarm_requests: 0"))
    play(stage)
    (begun,) = stage.events("attempt_started")
    assert begun["windows"]["prewarm"] is None


def host_tier_with_the_first_attempt(tmp_path: Path, given: Scenario) -> FakeEngine:
    """An engine whose host tier holds what a fresh ledger gives out first."""
    ids = load_corpus(given.corpus, tmp_path).ids
    ledger = WindowLedger(tmp_path / "rehearsal.jsonl", "pid-1")
    starts = [*ledger.take(ids, 1, 64, "prewarm"), *ledger.take(ids, 4, 64, "load")]
    ledger.close()
    engine = FakeEngine(host_tier=True)
    engine.host = {tuple(ids[start : start + 64].tolist()) for start in starts}
    return engine


def test_o_p3_a_tier_that_survives_the_flush_is_escaped_by_fresh_text(
    on_stage: type[Stage], tmp_path: Path
) -> None:
    given = scenario()
    stage = on_stage(given, host_tier_with_the_first_attempt(tmp_path, given))
    outcome = play(stage)
    assert (outcome.status, outcome.exit_code, outcome.accepted) == ("complete", 0, 1)
    assert stage.verdicts() == ["retry", "accept"]
    first, second = stage.events("verdict")
    assert first["hit_rates"]["requests"] == pytest.approx(63 / 64)
    assert second["hit_rates"] == {"requests": 0.0, "counters": 0.0, "log": None}
    assert stage.commits() == [("arm/load/c2", 2, "accepted")]
    assert len(set(stage.engine.prompts)) == len(stage.engine.prompts) == 10
    assert [event["serial"] for event in stage.events("attempt_started")] == [1, 2]


def test_o_p2_a_server_that_always_hits_voids_the_point_and_stops_the_run(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario(TWO), FakeEngine(always_hit=True))
    outcome = play(stage)
    assert (outcome.status, outcome.exit_code) == ("stopped", 1)
    assert (outcome.void, outcome.missing, outcome.accepted) == (1, 1, 0)
    assert "arm/load/c2 is void: not cold: prefix hit rate 0.9844" in (outcome.reason or "")
    assert stage.verdicts() == ["retry", "void"]
    assert stage.commits() == [("arm/load/c2", 2, "void")]
    (committed,) = stage.events("point_committed")
    assert "over the limit 0.01" in committed["reasons"][0]


def test_on_void_next_goes_on_and_still_ends_non_zero(on_stage: type[Stage]) -> None:
    guards = "on_void: next, attempts_max: 1, prewarm_requests: 0"
    stage = on_stage(scenario(TWO, guards=guards), FakeEngine(always_hit=True))
    outcome = play(stage)
    assert (outcome.status, outcome.void, outcome.missing, outcome.exit_code) == ("complete", 2, 0, 1)
    assert stage.commits() == [("arm/load/c2", 1, "void"), ("arm/load/c3", 1, "void")]


def test_o_p1_a_flush_that_fails_ends_with_the_exit_code_of_the_target(on_stage: type[Stage]) -> None:
    refusal = Reply(400, b"Flush cache failed: running requests")
    stage = on_stage(scenario(TWO), FakeEngine(flush_forever=refusal))
    outcome = play(stage)
    assert (outcome.status, outcome.exit_code, outcome.void, outcome.missing) == ("stopped", 4, 1, 1)
    assert "HTTP 400 Flush cache failed: running requests" in (outcome.reason or "")
    (verdict,) = stage.events("verdict")
    assert [finding["code"] for finding in verdict["findings"]] == ["flush_failed"]
    failed = stage.events("step")[-1]
    assert (failed["step"], failed["status"]) == ("flush", "failed")
    assert "load" not in stage.engine.log, "the point was not measured"


def test_a_failed_step_ends_with_the_exit_code_of_the_target_also_when_the_run_goes_on(
    on_stage: type[Stage],
) -> None:
    refusal = Reply(400, b"Flush cache failed: running requests")
    guards = "on_void: next, prewarm_requests: 0, flush_timeout_s: 1.0, flush_retry_s: 0.5"
    stage = on_stage(scenario(TWO, guards=guards), FakeEngine(flush_replies=[refusal] * 3))
    outcome = play(stage)
    assert (outcome.status, outcome.accepted, outcome.void, outcome.exit_code) == ("complete", 1, 1, 4)


def test_o_p1_a_flush_that_is_refused_twice_is_asked_again(on_stage: type[Stage]) -> None:
    refusal = Reply(400, b"busy")
    stage = on_stage(scenario(), FakeEngine(flush_replies=[refusal, refusal]))
    assert play(stage).exit_code == 0
    assert stage.engine.log.count("flush") == 3


def test_a_point_that_the_engine_cannot_hold_is_skipped_with_the_arithmetic(on_stage: type[Stage]) -> None:
    """The scenario declares no limit: the engine's own facts say it."""
    workloads = ONE + "\n  - {name: long, input_tokens: 4096, output_tokens: 1, concurrency: [1], requests: 1}"
    stage = on_stage(scenario(workloads), FakeEngine(context_tokens=1000))
    outcome = play(stage)
    assert (outcome.status, outcome.accepted, outcome.skipped, outcome.exit_code) == ("complete", 1, 1, 0)
    skipped = stage.events("point_committed")[-1]
    assert (skipped["point_id"], skipped["attempt"], skipped["verdict"]) == ("arm/long/c1", None, "skipped")
    assert skipped["reasons"] == ["context limit: 4096 input + 1 output + 2 reserved = 4099 > 1000 tokens"]
    assert [point["skip_reason"] is None for point in stage.run.read_manifest()["points"]] == [True, False]


def test_windows_that_run_out_are_not_cold_and_no_endless_loop(on_stage: type[Stage]) -> None:
    """The corpus holds the first attempt and not a second."""
    small = scenario(guards="prewarm_requests: 1, attempts_max: 5", corpus_tokens=64 * 6)
    stage = on_stage(small, FakeEngine(always_hit=True))
    outcome = play(stage)
    assert (outcome.status, outcome.exit_code) == ("stopped", 1)
    verdicts = stage.events("verdict")
    assert [verdict["verdict"] for verdict in verdicts] == ["retry", "void"]
    codes = [finding["code"] for finding in verdicts[-1]["findings"]]
    assert codes == ["hit_rate_exceeded", "hit_rate_exceeded", "text_exhausted"]
    assert "no unused text is left for this server" in (outcome.reason or "")
    # The last attempt that was begun is the one whose records are shown.
    assert stage.commits() == [("arm/load/c2", 1, "void")]


def test_a_corpus_too_small_for_one_attempt_sends_nothing(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario(corpus_tokens=64 * 3))
    outcome = play(stage)
    assert (outcome.status, outcome.exit_code, outcome.void) == ("stopped", 1, 1)
    assert stage.engine.prompts == []


def test_o_r4_a_lost_worker_voids_the_attempt_and_is_replaced_for_the_next_point(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario(TWO, guards="on_void: next, prewarm_requests: 0"), lose_in=(1, "w001"))
    outcome = play(stage)
    assert (outcome.void, outcome.accepted, outcome.exit_code) == (1, 1, 1)
    first, second = stage.events("verdict")
    assert (first["verdict"], second["verdict"]) == ("void", "accept")
    lost = next(finding for finding in first["findings"] if finding["code"] == "worker_lost")
    assert lost["data"]["planned"] == 4
    assert stage.events("workers_renewed")[0]["workers"] == ["w001r1"]


# Resume


def test_resume_measures_no_accepted_point_again_and_void_ones_again(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario(TWO))
    stage.engine.flush_replies = []
    sent = 0

    def hits_from_the_second_point_on(prompt: tuple[int, ...], output_tokens: int) -> int:
        nonlocal sent
        sent += 1
        stage.engine.always_hit = sent > 5
        return serve(prompt, output_tokens)

    serve = stage.engine.serve
    stage.engine.serve = hits_from_the_second_point_on  # type: ignore[method-assign]
    outcome = play(stage)
    assert (outcome.accepted, outcome.void, outcome.exit_code) == (1, 1, 1)
    assert stage.commits() == [("arm/load/c2", 1, "accepted"), ("arm/load/c3", 2, "void")]

    stage.engine.serve = serve  # type: ignore[method-assign]
    stage.engine.always_hit = False
    before = len(stage.engine.prompts)
    outcome = play(stage)
    assert (outcome.status, outcome.accepted, outcome.void, outcome.missing) == ("complete", 2, 0, 0)
    assert outcome.exit_code == 0
    assert stage.commits()[2:] == [("arm/load/c3", 3, "accepted")]
    assert len(stage.engine.prompts) - before == 5, "only the void point was measured again"
    assert stage.events("attempt_started")[-1]["serial"] == 4
    assert len(set(stage.engine.prompts)) == len(stage.engine.prompts), "no text is sent twice to one server"
    assert [event["resumed"] for event in stage.events("run_started")] == [False, True]


def test_a_resume_with_nothing_left_contacts_nothing(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario())
    play(stage)
    stage.engine.log.clear()
    outcome = play(stage)
    assert (outcome.status, outcome.accepted, outcome.exit_code) == ("complete", 1, 0)
    assert stage.engine.log == []


def test_an_interrupted_attempt_is_journalled_and_measured_again_under_a_new_number(
    on_stage: type[Stage],
) -> None:
    stage = on_stage(scenario(TWO), hang_in=2)

    outcome = asyncio.run(stage.play_until_it_hangs())
    assert (outcome.status, outcome.accepted, outcome.missing, outcome.exit_code) == ("interrupted", 1, 1, 1)
    (event,) = stage.events("attempt_interrupted")
    assert (event["point_id"], event["attempt"]) == ("arm/load/c3", 1)
    assert stage.fleet.cancelled >= 1
    assert stage.events("run_ended")[-1]["status"] == "interrupted"

    outcome = play(stage)
    assert (outcome.status, outcome.accepted, outcome.exit_code) == ("complete", 2, 0)
    assert stage.commits() == [("arm/load/c2", 1, "accepted"), ("arm/load/c3", 2, "accepted")]
    assert len(set(stage.engine.prompts)) == len(stage.engine.prompts)


def test_a_torn_journal_line_and_foreign_events_are_no_history() -> None:
    earlier = Earlier.of(
        [
            {"event": "run_started"},
            {"event": "attempt_started", "point_id": "a/w/c1", "attempt": 1, "serial": 7},
            {"event": "torn_line", "line": 3, "dropped_bytes": 12},
        ]
    )
    assert (earlier.attempts, earlier.serial, earlier.committed) == ({"a/w/c1": 1}, 7, {})
    assert not earlier.settled("a/w/c1")


def test_a_cluster_that_is_gone_is_no_verdict(on_stage: type[Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    stage = on_stage(scenario())

    async def gone(_fleet: object) -> list[str]:
        raise ClusterError("client node n1 has left the cluster")

    monkeypatch.setattr("protocol_fakes.FakeFleet.renew", gone)
    with pytest.raises(ClusterError, match="has left"):
        play(stage)
    assert stage.commits() == []


# Text


def test_o_l2_no_prompt_is_sent_twice_by_any_client_in_any_phase(
    on_stage: type[Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workloads = (
        "  - {name: one, input_tokens: 96, output_tokens: 4, concurrency: [2], requests: 8}\n"
        "  - {name: two, input_tokens: 96, output_tokens: 4, concurrency: [2], requests: 8}"
    )
    stage = on_stage(scenario(workloads), workers=2)
    assert play(stage).accepted == 2
    prompts = stage.engine.prompts
    assert len(prompts) == len(set(prompts)) == 18
    starts = [first_ids(prompt, 64) for prompt in prompts]
    assert all(one[:16] != other[:16] for one, other in itertools.combinations(starts, 2))
    for workload in ("one", "two"):
        rows, _, _ = load_requests(AttemptParts(stage.run, f"arm/{workload}/c2", 1, history_of(stage.run)))
        assert sorted(rows["worker"].to_pylist()) == ["w000"] * 4 + ["w001"] * 4
        for row in rows.to_pylist():
            sent = stage.corpus.ids[row["window_start"] : row["window_end"]]
            assert tuple(sent.tolist()) in set(prompts)

    again = FakeEngine()
    monkeypatch.setitem(ENGINES, "sglang", again)
    other = Stage(tmp_path / "other", stage.scenario, again)
    assert asyncio.run(other.play()).accepted == 2
    assert again.prompts == prompts, "a fresh server and ledger get the same text"


def test_two_runs_against_one_server_instance_share_its_ledger(
    on_stage: type[Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = on_stage(scenario(), FakeEngine(host_tier=True))
    assert play(stage).accepted == 1
    second = Stage(tmp_path / "second", stage.scenario, stage.engine)
    (tmp_path / "second" / ".ledger").symlink_to(tmp_path / ".ledger")
    assert asyncio.run(second.play()).accepted == 1
    assert second.verdicts() == ["accept"], "the second run drew text of its own at once"


def test_another_instance_begins_with_the_text_again(on_stage: type[Stage], tmp_path: Path) -> None:
    stage = on_stage(scenario())
    play(stage)
    first = list(stage.engine.prompts)
    stage.engine.instance = "pid-2"
    other = Stage(tmp_path / "other", stage.scenario, stage.engine)
    (tmp_path / "other" / ".ledger").symlink_to(tmp_path / ".ledger")
    stage.engine.device.clear()
    asyncio.run(other.play())
    assert stage.engine.prompts[len(first) :] == first


@pytest.mark.parametrize(("instance", "name"), [("pid-1", "pid-1"), (None, "http___target_30000")])
def test_a_ledger_is_of_an_instance_or_of_an_address_where_restarts_are_hidden(
    on_stage: type[Stage], tmp_path: Path, instance: str | None, name: str
) -> None:
    play(on_stage(scenario(), FakeEngine(instance=instance)))
    assert [path.name for path in (tmp_path / ".ledger").glob("*.jsonl")] == [f"sglang-{name}.jsonl"]


# Arms and monitors


def test_an_arm_that_does_not_answer_ends_the_run_with_the_exit_code_of_the_target(
    on_stage: type[Stage],
) -> None:
    stage = on_stage(scenario(guards="alive_timeout_s: 1"))

    async def dead(_http: object) -> Reply:
        return Reply(None, error="connection refused")

    stage.engine.alive = dead  # type: ignore[method-assign, assignment]
    outcome = play(stage)
    assert (outcome.status, outcome.exit_code, outcome.missing) == ("stopped", 4, 1)
    assert stage.events("arm_failed")[0]["error"] == "alive: arm not within 1 s: connection refused"
    assert {control.closed for control in stage.controls} == {True}


def test_what_was_launched_is_stopped_and_what_was_watched_is_unwatched(
    on_stage: type[Stage],
) -> None:
    given = scenario()
    simulated = given.model_copy(
        update={
            "arms": {"arm": given.arms["arm"].model_validate({"sim": {"profile": "small"}})},
            "monitors": given.monitors.model_validate({"server": {"enabled": False}}),
        }
    )
    stage = on_stage(simulated)
    assert play(stage).exit_code == 0
    assert stage.host.log == [
        "inventory arm",
        "launch arm",
        "watch arm sim",
        "watch log arm",
        "unwatch log",
        "unwatch",
        "stop arm",
    ]


def test_required_gpu_data_that_is_missing_ends_the_run_before_any_request(on_stage: type[Stage]) -> None:
    given = scenario()
    required = given.monitors.model_validate({"gpu": {"required": True}, "server": {"enabled": False}})
    stage = on_stage(given.model_copy(update={"monitors": required}))
    stage.host.reason = "no NVML library"
    outcome = play(stage)
    assert (outcome.status, outcome.exit_code) == ("stopped", 4)
    assert "GPU data is required and not available: no NVML library" in (outcome.reason or "")
    assert stage.engine.prompts == []
    assert stage.host.log == ["inventory arm", "watch arm nvml", "unwatch"]


def test_numbers_below_one_are_an_engine_s_way_to_say_none() -> None:
    facts = Facts(engine="sglang", max_running_requests=-1, kv_pool_tokens=0, context_tokens=4096)
    assert limits_of(facts) == Limits(context_tokens=4096)


# The roofline of the client hosts


def test_a_load_above_the_roofline_is_void_and_the_journal_keeps_the_roofline(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario())
    stage.rooflines = {"host": replace(ROOMY, streams=1)}
    assert play(stage).void == 1
    (verdict,) = stage.events("verdict")
    (found,) = [one for one in verdict["findings"] if one["code"] == "client_saturated"]
    assert "host carried up to 2 streams" in found["message"]
    assert found["data"]["streams_share"] == 2.0
    (begun,) = stage.events("run_started")
    assert Roofline.of_record(begun["rooflines"]["host"], "journal") == stage.rooflines["host"]
    # What was judged can be judged again from the run directory alone.
    _, _, client = load_requests(AttemptParts(stage.run, "arm/load/c2", 1, history_of(stage.run)))
    again = list(check_rooflines(client, stage.rooflines))
    assert [one.message for one in again] == [found["message"]]


def test_without_a_roofline_a_point_is_accepted_with_a_note(on_stage: type[Stage]) -> None:
    stage = on_stage(scenario())
    stage.rooflines = {}
    assert play(stage).accepted == 1
    (verdict,) = stage.events("verdict")
    assert [(one["code"], one["severity"]) for one in verdict["findings"]] == [("roofline_unknown", "note")]


# The service in use, and arms that are launched

SERVICE = {"deployment": {"url": "http://target:30000"}, "take_down": ["x"], "bring_back": ["y"]}


def with_service(given: Scenario) -> Scenario:
    return given.model_copy(update={"service": Service.model_validate(SERVICE)})


def test_the_service_is_down_while_arms_are_measured_and_back_after_them(on_stage: type[Stage]) -> None:
    stage = on_stage(with_service(scenario()))
    assert play(stage).exit_code == 0
    assert stage.host.log == ["inventory arm", "service down", "service back"]
    names = [event["event"] for event in stage.events()]
    assert names.index("service") < names.index("attempt_started") < len(names) - 2
    assert [event["phase"] for event in stage.events("service")] == ["down", "verified"]
    assert names[-2:] == ["service", "run_ended"]


def test_a_run_with_nothing_left_to_measure_does_not_touch_the_service(on_stage: type[Stage]) -> None:
    stage = on_stage(with_service(scenario()))
    play(stage)
    stage.host.log.clear()
    assert play(stage).exit_code == 0
    assert stage.host.log == []


def test_a_service_that_is_not_taken_down_ends_the_run_before_any_arm(on_stage: type[Stage]) -> None:
    stage = on_stage(with_service(scenario()))
    stage.host.service_down = stage.host.service_back = ServiceReport(
        "refused", ("it does not answer",), is_back=True
    )
    outcome = play(stage)
    assert (outcome.exit_code, outcome.status) == (EXIT_TARGET, "stopped")
    assert outcome.reason == "service: it was not taken down: it does not answer"
    assert not stage.events("attempt_started")


def test_a_service_that_is_not_verified_decides_the_exit_code_whatever_the_points(on_stage: type[Stage]) -> None:
    stage = on_stage(with_service(scenario()))
    stage.host.service_back = ServiceReport("not_verified", ("kv_pool_tokens was 2, is 1",), is_back=False)
    outcome = play(stage)
    assert (outcome.exit_code, outcome.accepted, outcome.void) == (EXIT_SERVICE, 1, 0)


def launched(given: Scenario) -> Scenario:
    arm = given.arms["arm"].model_copy(update={"launch": Launch(argv=["serve"])})
    return given.model_copy(update={"arms": {"arm": arm}})


def test_a_launched_arm_is_journalled_with_its_load_time_and_its_end(on_stage: type[Stage]) -> None:
    stage = on_stage(launched(scenario()))
    assert play(stage).exit_code == 0
    assert stage.host.log == ["inventory arm", "launch arm", "watch log arm", "unwatch log", "stop arm"]
    [begun], [ended] = stage.events("arm_launched"), stage.events("arm_stopped")
    assert begun["load_s"] == 2.5
    assert (ended["process_s"], ended["exit_code"], ended["reason"]) == (9.5, 143, "stopped")


def test_an_arm_that_does_not_start_is_stopped_and_the_service_comes_back(on_stage: type[Stage]) -> None:
    stage = on_stage(with_service(launched(scenario())))
    stage.host.launch_error = TargetError("launch", "out of memory")
    outcome = play(stage)
    assert (outcome.exit_code, outcome.reason) == (EXIT_TARGET, "launch: out of memory")
    assert stage.host.log == ["inventory arm", "service down", "launch arm", "stop arm", "service back"]


def test_gpu_memory_that_is_still_held_after_an_arm_ends_the_run(on_stage: type[Stage]) -> None:
    stage = on_stage(launched(scenario()))
    stage.host.gpu_held = ("GPU-1 7,168 MiB",)
    outcome = play(stage)
    assert outcome.exit_code == EXIT_TARGET
    assert outcome.reason is not None
    assert outcome.reason.endswith("GPU memory is still held: GPU-1 7,168 MiB")
    assert outcome.accepted == 1
