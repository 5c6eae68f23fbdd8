"""Open loops against a real server on loopback: a slow server thins nothing out, and each has one record."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rig
from fault_server import Asked, FaultServer, Wire, answer, full_backlog
from rig import POINT, SHAPE, Fleet, assert_stamps_ordered, order, run

from raybench.load.order import Order, WorkerSummary
from raybench.load.pacer import Schedule, deal, due_ns_of_rate
from raybench.records.clock import ClockOffset
from raybench.scenario.arrivals import Arrivals
from raybench.scenario.schema import RequestLimits

MS = 1_000_000


async def carry_out(fleet: Fleet, whole: Order, schedule: Schedule) -> list[WorkerSummary]:
    """The schedule dealt to all workers, as the procedure does it."""
    slots = dict.fromkeys(fleet.names, 0)
    fleet.desk.open(whole.key, len(whole.windows), slots, fleet.recall)
    try:
        for number, name in enumerate(fleet.names):
            part = replace(
                whole, slots=0, sends=deal(schedule, number, len(fleet.names)), lengths=schedule.lengths
            )
            await fleet.members[name].arm(part)
        start = fleet.clock.unix_ns() + 50 * MS
        runs = [worker.run(fleet.desk, start, ClockOffset(0, 0)) for worker in fleet.members.values()]
        return list(await asyncio.gather(*runs))
    finally:
        fleet.desk.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_each_ticket_is_sent_once_at_or_after_its_time(tmp_path: Path, workers: int) -> None:
    schedule = Schedule(due_ns_of_rate(Arrivals(seed=5), 100, 40))

    async def scene() -> tuple[FaultServer, Fleet]:
        async def script(_asked: Asked, wire: Wire) -> None:
            await answer(server, wire)

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, workers)
            summaries = await carry_out(fleet, order(server.url, requests=40), schedule)
        assert sum(summary.sent for summary in summaries) == 40
        return server, fleet

    server, fleet = run(scene())
    assert server.arrivals == 40
    rows = fleet.rows()
    assert [row["ticket"] for row in rows] == list(range(40))
    assert {row["outcome"] for row in rows} == {"ok"}
    first = rows[0]["scheduled_ns"] - int(schedule.due_ns[0])
    for row in rows:
        assert_stamps_ordered(row)
        assert row["scheduled_ns"] - first == schedule.due_ns[row["ticket"]]
        assert row["scheduled_ns"] <= row["asked_ns"] <= row["sent_ns"]
        assert row["worker"] == fleet.names[row["ticket"] % workers]
    for name in fleet.names:
        health = fleet.part(f"{name}.worker").table
        delays = health["send_delay_ms_max"].drop_null().to_pylist()
        sends = [row["asked_ns"] - row["scheduled_ns"] for row in rows if row["worker"] == name]
        assert delays
        assert 0 <= max(delays) * MS <= max(sends), "how late its requests were begun is in the worker's own rows"


def test_coordinated_omission_a_server_that_answers_none_still_gets_all(tmp_path: Path) -> None:
    """The server answers nothing until every request has come: whoever waits for answers would hang."""

    async def scene() -> tuple[FaultServer, Fleet]:
        full = asyncio.Event()

        async def script(_asked: Asked, wire: Wire) -> None:
            if server.in_flight == 60:
                full.set()
            await full.wait()
            await answer(server, wire)

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 2)
            await carry_out(fleet, order(server.url, requests=60), Schedule(np.arange(60, dtype=np.int64) * MS))
        return server, fleet

    server, fleet = run(scene())
    assert (server.peak, server.arrivals) == (60, 60)
    rows = fleet.rows()
    assert max(row["sent_ns"] for row in rows) < min(row["headers_ns"] for row in rows)


def test_each_request_of_a_trace_asks_for_its_own_lengths(tmp_path: Path) -> None:
    lengths = np.array([[64, 2], [16, 2], [33, 3]], dtype=np.int64)

    async def scene() -> tuple[FaultServer, Fleet]:
        async def script(asked: Asked, wire: Wire) -> None:
            parameters = asked.json["sampling_params"]
            assert isinstance(parameters, dict)
            prompt = asked.json["input_ids"]
            assert isinstance(prompt, list)
            await answer(server, wire, tokens=int(parameters["max_new_tokens"]), prompt=len(prompt))

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 1)
            schedule = Schedule(np.arange(3, dtype=np.int64) * 5 * MS, lengths)
            await carry_out(fleet, order(server.url, requests=3, shape=SHAPE), schedule)
        return server, fleet

    server, fleet = run(scene())
    assert server.arrivals == 3
    rows = fleet.rows()
    pairs = [(64, 2), (16, 2), (33, 3)]
    assert [(row["input_tokens"], row["output_tokens"]) for row in rows] == pairs
    assert [(row["input_tokens_asked"], row["output_tokens_asked"]) for row in rows] == pairs
    assert [row["window_end"] - row["window_start"] for row in rows] == [64, 16, 33]


def test_a_server_that_takes_no_connection_makes_records_and_no_silence(tmp_path: Path) -> None:
    """Connecting hangs: the wait is in the records, before `sent`."""
    fleet = Fleet(tmp_path, 1)
    with full_backlog() as url:
        whole = order(url, requests=5, limits=RequestLimits(connect_timeout_s=0.2))
        run(carry_out(fleet, whole, Schedule(np.arange(5, dtype=np.int64) * MS)))
    rows = fleet.rows()
    assert [row["ticket"] for row in rows] == list(range(5))
    assert {(row["outcome"], row["error_class"]) for row in rows} == {("timeout", "timeout_connect")}
    assert all(row["sent_ns"] is None and row["scheduled_ns"] is not None for row in rows)


def test_a_cancelled_open_loop_records_what_was_under_way_and_sends_no_more(tmp_path: Path) -> None:
    async def scene() -> tuple[FaultServer, Fleet, list[WorkerSummary]]:
        some = asyncio.Event()

        async def script(_asked: Asked, _wire: Wire) -> None:
            if server.arrivals == 3:
                some.set()
            await asyncio.Event().wait()

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 1)
            due_ns = np.array([0, 0, 0, 3_600_000 * MS], dtype=np.int64)
            load = asyncio.ensure_future(carry_out(fleet, order(server.url, requests=4), Schedule(due_ns)))
            await some.wait()
            await fleet.members["w000"].cancel()
            summaries = await load
        return server, fleet, summaries

    server, fleet, (summary,) = run(scene())
    assert server.arrivals == 3
    assert summary.sent == 3
    assert [row["outcome"] for row in fleet.rows()] == ["cancelled"] * 3
    assert fleet.part("w000", 1, POINT).closed


def test_connections_are_opened_before_the_first_request_is_due(tmp_path: Path) -> None:
    async def scene() -> tuple[FaultServer, Fleet]:
        async def script(_asked: Asked, wire: Wire) -> None:
            await answer(server, wire)

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 1)
            await carry_out(fleet, order(server.url, requests=3), Schedule(np.zeros(3, dtype=np.int64)))
        return server, fleet

    server, fleet = run(scene())
    assert server.connections == 3
    opened = [row["connect_ms"] is not None for row in fleet.rows()]
    # set up before it was asked for; the plain client opens none ahead
    assert opened == [True] * 3 or rig.CLIENT == "plain"
