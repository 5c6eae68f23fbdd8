"""Open loops through the coordinator, on fakes: the orders, the verdict of a late client, a resume."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from protocol_fakes import NS_PER_S, FakeEngine, Stage, scenario

from raybench.analysis.merge import merge
from raybench.analysis.parts import AttemptParts
from raybench.analysis.points import read_points
from raybench.engines import ENGINES
from raybench.load.pacer import due_ns_of_rate
from raybench.protocol.evidence import history_of, load_requests
from raybench.protocol.invocation import Outcome
from raybench.report.source import read_source
from raybench.report.write import write_report
from raybench.scenario.arrivals import Arrivals

RATES = (
    "  - {name: load, input_tokens: 64, output_tokens: 4, rate_per_s: [2, 0.5], requests: 7, arrivals: {seed: 3}}"
)
TRACE = "  - {name: load, input_tokens: 64, output_tokens: 4, trace: {path: t.jsonl, speeds: [2]}, requests: 3}"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setitem(ENGINES, "sglang", fake)
    return fake


def play(stage: Stage) -> Outcome:
    return asyncio.run(stage.play())


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_worker_is_dealt_its_part_of_one_schedule(tmp_path: Path, engine: FakeEngine, workers: int) -> None:
    stage = Stage(tmp_path, scenario(RATES), engine, workers=workers)
    assert play(stage).accepted == 2
    assert stage.commits() == [("arm/load/r2", 1, "accepted"), ("arm/load/r0.5", 1, "accepted")]
    orders = [order for order in stage.fleet.orders if order.point_id == "arm/load/r2" and order.phase == "load"]
    assert [order.slots for order in orders] == [0] * workers
    assert [order.first_route for order in orders] == list(range(workers)), "not all begin with the same address"
    parts = [order.sends for order in orders if order.sends is not None]
    assert len(parts) == workers
    due_ns = np.concatenate([part.due_ns for part in parts])[
        np.argsort(np.concatenate([p.tickets for p in parts]))
    ]
    assert due_ns.tolist() == due_ns_of_rate(Arrivals(seed=3), 2, 7).tolist()
    rows, _, _ = load_requests(AttemptParts(stage.run, "arm/load/r2", 1, history_of(stage.run)))
    assert sorted(rows["ticket"].to_pylist()) == list(range(7))
    assert rows["scheduled_ns"].null_count == 0


def test_the_prewarm_of_an_open_loop_has_slots_and_no_schedule(tmp_path: Path, engine: FakeEngine) -> None:
    stage = Stage(tmp_path, scenario(RATES, guards="prewarm_requests: 3"), engine)
    play(stage)
    prewarm = [order for order in stage.fleet.orders if order.phase == "prewarm"]
    assert [(order.slots, order.sends) for order in prewarm[:2]] == [(2, None), (1, None)]


def test_each_request_of_a_trace_has_its_own_length(tmp_path: Path, engine: FakeEngine) -> None:
    entries = [
        {"timestamp_s": 5, "input_tokens": 64, "output_tokens": 1},
        {"timestamp_s": 6, "input_tokens": 20},
        {"timestamp_s": 9, "output_tokens": 2},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, entries)))
    stage = Stage(tmp_path, scenario(TRACE), engine)
    assert play(stage).accepted == 1
    rows, _, _ = load_requests(AttemptParts(stage.run, "arm/load/x2", 1, history_of(stage.run)))
    by_ticket = sorted(rows.to_pylist(), key=lambda row: int(row["ticket"]))
    assert [row["input_tokens_asked"] for row in by_ticket] == [64, 20, 64]
    assert [row["output_tokens_asked"] for row in by_ticket] == [1, 4, 2]
    scheduled = [row["scheduled_ns"] for row in by_ticket]
    assert [stamp - scheduled[0] for stamp in scheduled] == [0, NS_PER_S // 2, 2 * NS_PER_S]
    assert len({prompt[:16] for prompt in engine.prompts}) == len(engine.prompts)


def test_a_client_that_is_late_voids_the_point_and_says_so(tmp_path: Path, engine: FakeEngine) -> None:
    stage = Stage(tmp_path, scenario(RATES), engine, late_ns=NS_PER_S)
    outcome = play(stage)
    assert (outcome.status, outcome.void, outcome.exit_code) == ("stopped", 1, 1)
    assert "schedule not kept: 7 of 7 requests were sent more than 20 ms after their time" in (
        outcome.reason or ""
    )


def test_a_resume_goes_on_with_the_same_schedule(tmp_path: Path, engine: FakeEngine) -> None:
    stage = Stage(tmp_path, scenario(RATES), engine, hang_in=2)

    assert asyncio.run(stage.play_interrupted()).accepted == 1
    before = [order.sends for order in stage.fleet.orders if order.point_id == "arm/load/r0.5" and order.sends]
    stage.hang_in = None
    assert play(stage).accepted == 2
    after = [order.sends for order in stage.fleet.orders if order.point_id == "arm/load/r0.5" and order.sends]
    assert [part.due_ns.tolist() for part in before] == [part.due_ns.tolist() for part in after]
    assert stage.commits() == [("arm/load/r2", 1, "accepted"), ("arm/load/r0.5", 2, "accepted")]


def test_merge_and_report_tell_both_rates_and_both_latencies(tmp_path: Path, engine: FakeEngine) -> None:
    stage = Stage(tmp_path, scenario(RATES), engine, late_ns=10_000_000)
    play(stage)
    merge(stage.run)
    row = next(row for row in read_points(stage.run) if row["point_id"] == "arm/load/r2")
    assert (row["concurrency"], row["rate_per_s"], row["trace_speed"]) == (None, 2.0, None)
    assert (row["late_sends"], row["in_flight_share"]) == (0, None)
    assert row["offered_rate_per_s"] == pytest.approx(row["sent_rate_per_s"])
    assert row["ttft_scheduled_ms_p95"] == row["ttft_ms_p95"] + 10
    assert row["e2e_scheduled_ms_p95"] == row["e2e_ms_p95"] + 10
    report = write_report(read_source(stage.run), stage.run.path).markdown.read_text(encoding="utf-8")
    assert "Open loop: each request is sent at its time" in report
    assert "Closed loop" not in report
    table = report.split("## Open loop\n")[1].split("\n## ")[0]
    (line,) = [line for line in table.splitlines() if line.startswith("| load | 2 req/s | arm |")]
    assert "| 0/7 | 10.0 / 10.0 / 10.0 ms | 500 / 510 ms | 1.00 / 1.01 s |" in line
