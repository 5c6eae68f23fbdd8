"""Searches of the coordinator, with a fake engine and fleet: probes as points, voids, bounds, resumes, results."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from protocol_fakes import FakeEngine, Stage, scenario

from raybench.analysis.merge import merge
from raybench.engines import ENGINES
from raybench.protocol.invocation import Outcome
from raybench.records.strict_json import read_json
from raybench.report.markdown import render
from raybench.report.sections import sections
from raybench.report.source import read_source
from raybench.report.text import ENGLISH
from raybench.scenario.schema import Scenario

SLO = "{slo: {ttft_ms_p95: 450}, maximum: 64}"
KNEE = "{knee: {}, maximum: 64}"
NEXT = "prewarm_requests: 0, attempts_max: 1, on_void: next"


def searching(search: str, *, guards: str = "prewarm_requests: 0", more: str = "", listed: str = "") -> Scenario:
    workload = f"  - {{name: load, input_tokens: 64, output_tokens: 4, search: {search}{more},\n"
    workload += "     requests: {minimum: 1, per_concurrency: 1}}"
    return scenario(workload + listed, guards=guards)


def linear(**changes: Any) -> FakeEngine:
    """A first token 10 ms later for each stream: 45 streams are within 450 ms."""
    return FakeEngine(ttft_s=lambda streams: streams / 100, **changes)


#: What a search for SLO measures on that engine, in this order, and what it comes to.
LEVELS = ["c1", "c2", "c4", "c8", "c16", "c32", "c64", "c45", "c54", "c49"]
FOUND = {"status": "found", "level": 45, "passes": 45, "fails": 49}


@pytest.fixture
def on_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Stage]:
    class Here(Stage):
        def __init__(self, given: Scenario, engine: FakeEngine, name: str = "a", **changes: Any) -> None:
            monkeypatch.setitem(ENGINES, "sglang", engine)
            (tmp_path / name).mkdir()
            super().__init__(tmp_path / name, given, engine, **changes)

    return Here


def play(stage: Stage) -> Outcome:
    return asyncio.run(stage.play())


def result(stage: Stage) -> dict[str, Any]:
    fields = ("status", "level", "passes", "fails")
    return {name: stage.events("search_ended")[-1][name] for name in fields}


def committed(stage: Stage) -> list[str]:
    return [point_id.removeprefix("arm/load/") for point_id, _, _ in stage.commits()]


def entries(stage: Stage) -> list[dict[str, Any]]:
    merge(stage.run)
    found = read_json(stage.run.searches_json)
    assert isinstance(found, list)
    return found


def test_an_slo_search_measures_its_levels_as_points_and_finds_the_threshold(on_stage: type[Stage]) -> None:
    stage = on_stage(searching(SLO), linear())
    outcome = play(stage)
    assert (outcome.status, outcome.accepted, outcome.missing, outcome.exit_code) == ("complete", 10, 0, 0)
    assert committed(stage) == LEVELS
    assert result(stage) == FOUND
    points = stage.run.read_manifest()["points"]
    assert [point["point_id"].rpartition("/")[2] for point in points] == committed(stage)
    assert [point["requests"] for point in points[-2:]] == [54, 49]
    assert stage.progress.snapshot().points_total == 10
    probe = stage.events("search_probe")[-1]
    assert (probe["point_id"], probe["verdict"], probe["passes"]) == ("arm/load/c49", "accepted", False)
    (check,) = probe["checks"]
    assert check == {"metric": "ttft_ms_p95", "value": pytest.approx(490), "limit": 450, "holds": False}


def test_the_merge_comes_to_the_same_result_and_counts_the_goodput(on_stage: type[Stage]) -> None:
    stage = on_stage(searching(SLO), linear())
    play(stage)
    (entry,) = entries(stage)
    ended = stage.events("search_ended")[-1]
    assert {name: entry[name] for name in result(stage)} == result(stage)
    assert entry["goodput"] == ended["goodput"]
    # 45 requests in one wave of a second; all are within the limit
    assert (entry["goodput"]["n"], entry["goodput"]["good"]) == (45, 45)
    assert entry["goodput"]["requests_per_s"] == pytest.approx(45)
    assert entry["goodput"]["requests_per_s_low"] == pytest.approx(45 / (1 + 1.959964**2 / 45))
    assert [probe["level"] for probe in entry["probes"]] == [1, 2, 4, 8, 16, 32, 64, 45, 54, 49]
    assert entry["probes"][-1]["goodput"]["good"] == 0


def test_a_knee_is_where_throughput_stops_to_grow(on_stage: type[Stage]) -> None:
    """20 streams are served at once, more take longer: 18.2 of them give the highest rate less a tenth."""
    stage = on_stage(searching(KNEE), FakeEngine(service_s=lambda streams: max(1.0, streams / 20)))
    outcome = play(stage)
    assert outcome.exit_code == 0
    assert committed(stage) == ["c1", "c2", "c4", "c8", "c16", "c32", "c64", "c23", "c19", "c17", "c18"]
    assert result(stage) == {"status": "found", "level": 19, "passes": 18, "fails": 19}
    (entry,) = entries(stage)
    assert {name: entry[name] for name in result(stage)} == result(stage)
    assert entry["goodput"] is None


@pytest.mark.parametrize("interrupted_in", [1, 3, 7, 9])
def test_a_resumed_search_goes_on_exactly_where_it_was(on_stage: type[Stage], interrupted_in: int) -> None:
    stage = on_stage(searching(SLO), linear(), hang_in=interrupted_in)

    outcome = asyncio.run(stage.play_until_it_hangs())
    assert (outcome.status, outcome.accepted, outcome.missing) == ("interrupted", interrupted_in - 1, 1)
    (entry,) = entries(stage)
    assert (entry["status"], len(entry["probes"])) == ("unfinished", interrupted_in - 1)
    again = play(stage)
    assert (again.status, again.accepted, again.exit_code) == ("complete", 10, 0)
    assert committed(stage) == LEVELS
    assert result(stage) == FOUND
    planned = [point["point_id"] for point in stage.run.read_manifest()["points"]]
    assert sorted(planned) == sorted(f"arm/load/{level}" for level in LEVELS)


def test_a_run_whose_searches_have_ended_is_not_done_again(on_stage: type[Stage]) -> None:
    stage = on_stage(searching(SLO), linear())
    first = play(stage)
    asked = list(stage.engine.log)
    assert play(stage) == first
    assert stage.engine.log == asked
    assert len(stage.run.read_manifest()["points"]) == 10


def test_a_void_probe_stops_the_run_and_is_measured_again_on_resume(on_stage: type[Stage]) -> None:
    stage = on_stage(searching(SLO, guards="prewarm_requests: 0, attempts_max: 1"), linear(hits_at={16}))
    outcome = play(stage)
    assert (outcome.status, outcome.accepted, outcome.void) == ("stopped", 4, 1)
    assert not stage.events("search_ended")
    (entry,) = entries(stage)
    assert (entry["status"], entry["passes"], entry["fails"]) == ("unfinished", 8, None)
    stage.engine.hits_at.clear()
    assert play(stage).exit_code == 0
    assert committed(stage)[4:6] == ["c16", "c16"]
    assert result(stage) == {"status": "found", "level": 45, "passes": 45, "fails": 49}
    assert entries(stage)[0]["notes"] == []


def test_with_on_void_next_a_void_probe_is_gone_round_and_the_run_ends_non_zero(on_stage: type[Stage]) -> None:
    stage = on_stage(searching(SLO, guards=NEXT), linear(hits_at={16, 53}))
    outcome = play(stage)
    assert (outcome.status, outcome.void, outcome.exit_code) == ("complete", 2, 1)
    assert committed(stage) == ["c1", "c2", "c4", "c8", "c16", "c11", "c22", "c44", "c64", "c53", "c51", "c47"]
    assert result(stage) == {"status": "found", "level": 44, "passes": 44, "fails": 47}
    (entry,) = entries(stage)
    assert entry["notes"] == ["no valid number at 16, 53: counts neither as passing nor as failing"]
    void = next(probe for probe in entry["probes"] if probe["level"] == 16)
    assert (void["verdict"], void["passes"], void["checks"]) == ("void", None, [])


def test_a_search_that_ended_for_void_probes_is_taken_up_again(on_stage: type[Stage]) -> None:
    stage = on_stage(searching(SLO, guards=NEXT), linear(hits_at=set(range(9, 17))))
    outcome = play(stage)
    assert (outcome.status, outcome.exit_code) == ("complete", 1)
    assert result(stage) == {"status": "void_probes", "level": 8, "passes": 8, "fails": None}
    stage.engine.hits_at.clear()
    again = play(stage)
    assert result(stage) == {"status": "found", "level": 45, "passes": 45, "fails": 49}
    # 16 is measured again, the levels around it are not needed any more and stay void
    assert (again.status, again.void, again.exit_code) == ("complete", 4, 1)
    (entry,) = entries(stage)
    assert {name: entry[name] for name in result(stage)} == result(stage)
    assert sorted(probe["level"] for probe in entry["probes"] if probe["verdict"] == "void") == [10, 11, 12, 13]


def test_the_active_limit_bounds_a_search_that_may_not_exceed_it(on_stage: type[Stage]) -> None:
    given = searching(SLO, more=", over_active_limit: skip")
    stage = on_stage(given, linear(max_running_requests=20))
    assert play(stage).exit_code == 0
    assert committed(stage) == ["c1", "c2", "c4", "c8", "c16", "c20"]
    assert result(stage) == {"status": "above_maximum", "level": 20, "passes": 20, "fails": None}
    (entry,) = entries(stage)
    assert entry["bounded_by"] == "active limit: concurrency 21 > 20 running requests"
    assert "Searched up to C=20 only: active limit: concurrency 21" in render(
        "report", sections(read_source(stage.run), ENGLISH)
    )


def test_a_target_that_cannot_hold_the_minimum_is_a_skipped_point_and_a_result(on_stage: type[Stage]) -> None:
    stage = on_stage(searching(SLO), linear(context_tokens=60))
    outcome = play(stage)
    assert (outcome.status, outcome.skipped, outcome.exit_code) == ("complete", 1, 0)
    assert stage.commits() == [("arm/load/c1", None, "skipped")]
    assert result(stage) == {"status": "skipped", "level": None, "passes": None, "fails": None}
    (entry,) = entries(stage)
    assert entry["notes"] == ["context limit: 64 input + 4 output + 2 reserved = 70 > 60 tokens"]
    assert entry["probes"] == []


def test_searches_stand_between_listed_workloads_in_the_order_of_the_file(on_stage: type[Stage]) -> None:
    listed = "\n  - {name: after, input_tokens: 64, output_tokens: 4, concurrency: [2]}"
    stage = on_stage(searching("{slo: {ttft_ms_p95: 15}, maximum: 4}", listed=listed), linear())
    assert play(stage).exit_code == 0
    assert [name for name, _, _ in stage.commits()] == ["arm/load/c1", "arm/load/c2", "arm/after/c2"]
    planned = [point["point_id"] for point in stage.run.read_manifest()["points"]]
    assert planned == ["arm/load/c1", "arm/load/c2", "arm/after/c2"]


def test_the_report_tells_every_probe_with_its_reason(on_stage: type[Stage]) -> None:
    stage = on_stage(searching(SLO, guards=NEXT), linear(hits_at={16}))
    play(stage)
    merge(stage.run)
    text = render("report", sections(read_source(stage.run), ENGLISH))
    section = text[text.index("## Searches") :]
    assert "### load on arm: the highest level with ttft_ms_p95 <= 450" in section
    assert "- C=44; C=48 fails." in section
    assert "44 of 44 requests met the limits each by itself, 44.0 requests/s" in section
    assert "| C=48 | accepted | fails | ttft_ms_p95 480 > 450 | 0.00 |" in section
    assert "| C=44 | accepted | passes | ttft_ms_p95 440 <= 450 | 44.0 |" in section
    assert "| C=16 | void | — | — | — |" in section
    assert json.loads(stage.run.searches_json.read_text())
