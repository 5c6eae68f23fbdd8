"""Load workers against a real server on loopback: exact concurrency, exact counts, whole records."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from fault_server import Asked, FaultServer, Wire, answer
from rig import INPUT_TOKENS, POINT, Fleet, assert_stamps_ordered, order, run, until

from raybench.corpus.synthetic import synthetic_ids
from raybench.load.leases import Recall, Returned
from raybench.load.order import OrderKey
from raybench.load.worker import no_garbage_collection
from raybench.records.clock import ClockOffset
from raybench.scenario.schema import SyntheticCorpus

PART = (POINT, 1, "w000")


class OneAtATime:
    """Answers the oldest request as soon as `concurrency` are open or all have come, then the next.

    A load that keeps fewer open than it should never gets an answer; one that keeps more is counted.
    """

    def __init__(self, concurrency: int, requests: int) -> None:
        self._concurrency = concurrency
        self._requests = requests
        self._waiting: deque[asyncio.Event] = deque()
        self.server = FaultServer(self._script)

    async def _script(self, _asked: Asked, wire: Wire) -> None:
        mine = asyncio.Event()
        self._waiting.append(mine)
        self._release()
        await mine.wait()
        await answer(self.server, wire)
        self._release()

    def _release(self) -> None:
        server = self.server
        full = server.in_flight == self._concurrency
        if self._waiting and (full or server.arrivals == self._requests):
            self._waiting.popleft().set()


@pytest.mark.parametrize(
    ("concurrency", "requests", "clients"), [(45, 90, 8), (32, 64, 32), (3, 8, 8), (10, 10, 4), (1, 8, 3)]
)
def test_o_l1_the_peak_is_the_concurrency_and_the_arrivals_are_the_requests(
    tmp_path: Path, concurrency: int, requests: int, clients: int
) -> None:
    async def scene() -> tuple[FaultServer, Fleet]:
        gate = OneAtATime(concurrency, requests)
        async with gate.server as server:
            fleet = Fleet(tmp_path, clients)
            summaries = await fleet.carry_out(order(server.url, requests=requests), concurrency)
        assert sum(summary.sent for summary in summaries) == requests
        return server, fleet

    server, fleet = run(scene())
    assert (server.peak, server.arrivals) == (concurrency, requests)
    rows = fleet.rows()
    assert [row["ticket"] for row in rows] == list(range(requests))
    assert {row["outcome"] for row in rows} == {"ok"}
    assert [row["window_start"] for row in rows] == [64 * ticket for ticket in range(requests)]
    for row in rows:
        assert_stamps_ordered(row)
        assert row["window_end"] - row["window_start"] == INPUT_TOKENS
    parts = [fleet.part(name) for name in fleet.names]
    assert all(part.closed for part in parts)
    assert [part.table.num_rows == 0 for part in parts] == [number >= concurrency for number in range(clients)]


def test_o_n1_256_requests_are_open_at_once(tmp_path: Path) -> None:
    """The server answers none until all are open, so that a silent cap of connections would hang."""

    async def scene() -> tuple[FaultServer, Fleet]:
        full = asyncio.Event()

        async def script(_asked: Asked, wire: Wire) -> None:
            if server.in_flight == 256:
                full.set()
            await full.wait()
            await answer(server, wire)

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 1)
            await fleet.carry_out(order(server.url, requests=256), 256)
        return server, fleet

    server, fleet = run(scene())
    assert (server.peak, server.arrivals) == (256, 256)
    rows = fleet.rows()
    assert {row["outcome"] for row in rows} == {"ok"}
    for row in rows:
        assert_stamps_ordered(row)
    # Nobody waited for a free connection: all had been sent before the first was answered.
    assert max(row["sent_ns"] for row in rows) < min(row["headers_ns"] for row in rows)


def test_o_n4_the_server_s_arrivals_are_the_tries_of_the_records(tmp_path: Path) -> None:
    """Two points of 8 requests at C=4; the server closes a connection on its second request."""

    async def scene() -> tuple[FaultServer, Fleet]:
        async def script(asked: Asked, wire: Wire) -> None:
            if asked.nth == 2:
                server.done()
                wire.close()
            else:
                await answer(server, wire)

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 2)
            for attempt in (1, 2):
                await fleet.carry_out(order(server.url, requests=8, attempt=attempt), 4)
        return server, fleet

    server, fleet = run(scene())
    rows = fleet.rows(attempt=1) + fleet.rows(attempt=2)
    assert {row["outcome"] for row in rows} == {"ok"}
    assert server.arrivals == sum(row["tries"] for row in rows)
    assert {row["tries"] for row in rows} == {1, 2}
    # A new attempt never begins on a connection that an earlier one left behind.
    for attempt in (1, 2):
        first = sorted(fleet.rows(attempt=attempt), key=lambda row: int(row["asked_ns"]))[:4]
        assert [row["tries"] for row in first] == [1] * 4


def test_no_garbage_is_collected_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybench.load.worker.no_garbage_collection", no_garbage_collection)
    enabled: list[bool] = []

    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            enabled.append(gc.isenabled())
            await answer(server, wire)

        server = FaultServer(script)
        async with server:
            await Fleet(tmp_path, 1).carry_out(order(server.url, requests=2), 1)

    run(scene())
    assert enabled == [False, False]
    assert gc.isenabled()


def test_each_request_carries_the_text_of_its_window(tmp_path: Path) -> None:
    gate = OneAtATime(2, 6)

    async def scene() -> Fleet:
        async with gate.server as server:
            fleet = Fleet(tmp_path, 2)
            await fleet.carry_out(order(server.url, requests=6), 2)
            return fleet

    fleet = run(scene())
    ids = synthetic_ids(SyntheticCorpus(tokens=64 * 1024))
    sent = {asked.json["rid"]: asked.json["input_ids"] for asked in gate.server.asked}
    rows = fleet.rows()
    assert {row["rid"] for row in rows} == sent.keys() and len(rows) == 6
    for row in rows:
        assert sent[row["rid"]] == ids[row["window_start"] : row["window_end"]].tolist()


def test_a_worker_that_is_cancelled_records_what_was_open_and_closes_its_part(tmp_path: Path) -> None:
    """The server goes silent after three answers; the load is given up once four are open."""

    async def scene() -> Fleet:
        full = asyncio.Event()

        async def script(_asked: Asked, wire: Wire) -> None:
            if server.arrivals <= 3:
                await answer(server, wire)
                return
            await wire.head()
            if server.in_flight == 4:
                full.set()
            await asyncio.Event().wait()

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 2)
            load = asyncio.ensure_future(fleet.carry_out(order(server.url, requests=40), 4))
            await full.wait()
            for worker in fleet.members.values():
                await worker.cancel()
            summaries = await load
        assert sum(summary.sent for summary in summaries) == 7
        return fleet

    fleet = run(scene())
    rows = fleet.rows()
    assert sorted(row["outcome"] for row in rows) == ["cancelled"] * 4 + ["ok"] * 3
    assert all(fleet.part(name).closed for name in fleet.names)
    for row in rows:
        assert_stamps_ordered(row)


def test_a_worker_that_is_cancelled_before_the_start_leaves_an_empty_closed_part(tmp_path: Path) -> None:
    async def scene() -> Fleet:
        async def script(_asked: Asked, _wire: Wire) -> None:
            raise AssertionError("a request left before the start")

        async with FaultServer(script) as server:
            fleet = Fleet(tmp_path, 1)
            worker = fleet.members["w000"]
            fleet.desk.open(OrderKey("arm/load/c1", 1, "load"), 4, {"w000": 2}, fleet.recall)
            await worker.arm(order(server.url, requests=4, slots=2))
            far = fleet.clock.unix_ns() + 3_600_000_000_000
            load = asyncio.ensure_future(worker.run(fleet.desk, far, ClockOffset(0, 0)))
            await until(lambda: fleet.desk.order is None or fleet.desk.order.book.unsent < 4)
            await worker.cancel()
            assert (await load).sent == 0
            fleet.desk.close()
            return fleet

    part = run(scene()).part("w000")
    assert (part.closed, part.table.num_rows) == (True, 0)


def test_a_load_that_is_given_up_during_a_recall_ends(tmp_path: Path) -> None:
    """w000 has one request that does not end and one ahead; w001 is done and waits for that one."""

    async def scene() -> Fleet:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def script(one: Asked, wire: Wire) -> None:
            if one.json["rid"].endswith("00000000"):
                await wire.head()
                await asyncio.Event().wait()
            await answer(server, wire)

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 2)
            recall = fleet.recall

            async def late(worker: str, *what: Any) -> Returned | None:
                asked.set()
                await answered.wait()
                return await recall(worker, *what)

            fleet.recall = late  # type: ignore[method-assign]
            load = asyncio.ensure_future(fleet.carry_out(order(server.url, requests=4), 2))
            await asked.wait()
            for worker in fleet.members.values():
                await worker.cancel()
            await load
            answered.set()
        return fleet

    fleet = run(scene())
    assert [row["ticket"] for row in fleet.rows()] == [0, 2, 3]
    assert fleet.rows()[0]["outcome"] == "cancelled"


def test_what_a_worker_holds_ahead_goes_to_the_one_whose_slot_is_free(tmp_path: Path) -> None:
    """w000's first request ends only after everything else is done, by w001."""

    async def scene() -> Fleet:
        others = asyncio.Event()

        async def script(one: Asked, wire: Wire) -> None:
            if one.json["rid"].endswith("00000000"):
                await others.wait()
            await answer(server, wire)
            if server.arrivals == 4:
                others.set()

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 2)
            await fleet.carry_out(order(server.url, requests=4), 2)
        return fleet

    rows = run(scene()).rows()
    assert [(row["ticket"], row["worker"]) for row in rows] == [(0, "w000"), *((t, "w001") for t in (1, 2, 3))]


def test_a_recall_of_another_order_or_of_none_is_answered_with_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            await wire.head()
            await asyncio.Event().wait()

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 1)
            worker = fleet.members["w000"]
            recall = Recall(leased=0, free_slots=1, ahead=0)
            assert await worker.recall(OrderKey(POINT, 1, "load"), recall) is None
            load = asyncio.ensure_future(fleet.carry_out(order(server.url, requests=4), 2))
            await until(lambda: server.in_flight == 2)
            assert await worker.recall(OrderKey(POINT, 1, "prewarm"), recall) is None
            assert await worker.recall(OrderKey(POINT, 2, "load"), recall) is None
            assert await worker.recall(OrderKey(POINT, 1, "load"), recall) == Returned([3], 2)
            await worker.cancel()
            await load
            assert await worker.recall(OrderKey(POINT, 1, "load"), recall) is None

    run(scene())


def test_a_bug_in_one_slot_ends_all_slots_and_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            await wire.head()
            await asyncio.Event().wait()

        def broken(_self: object, ticket: int) -> bytes:
            if ticket == 3:
                raise ZeroDivisionError("a bug")
            return b"{}"

        monkeypatch.setattr("raybench.load.worker._Armed.body", broken)
        async with FaultServer(script) as server:
            fleet = Fleet(tmp_path, 1)
            with pytest.raises(ZeroDivisionError, match="a bug"):
                await fleet.carry_out(order(server.url, requests=8), 4)
            running = [str(task.get_coro()) for task in asyncio.all_tasks()]
            assert not [name for name in running if "_Shift" in name], running

    run(scene())


def test_records_that_come_during_a_slow_flush_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load ends while the coordinator still takes the batch before."""
    monkeypatch.setattr("raybench.load.worker.FLUSH_S", 0.01)

    async def scene() -> Fleet:
        first_batch, last_answer = asyncio.Event(), asyncio.Event()

        async def script(_asked: Asked, wire: Wire) -> None:
            if server.arrivals == 2:
                await first_batch.wait()
            await answer(server, wire)
            if server.arrivals == 2:
                last_answer.set()

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 1)
            append = fleet.desk.append

            async def slow(*call: Any) -> None:
                if call[2] == "requests" and not first_batch.is_set() and fleet.run.part(*PART).exists():
                    first_batch.set()
                    await last_answer.wait()
                    await asyncio.sleep(0.05)
                await append(*call)

            fleet.desk.append = slow  # type: ignore[method-assign]
            await fleet.carry_out(order(server.url, requests=2), 1)
            return fleet

    fleet = run(scene())
    assert [row["ticket"] for row in fleet.rows()] == [0, 1]
    assert fleet.part("w000").closed


def test_records_that_cannot_be_stored_end_the_load(tmp_path: Path) -> None:
    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            if server.arrivals > 4:
                await asyncio.Event().wait()
            await answer(server, wire)

        server = FaultServer(script)
        async with server:
            fleet = Fleet(tmp_path, 1)
            stored = 0
            append = fleet.desk.append

            async def full_disk(*call: object) -> None:
                nonlocal stored
                stored += 1
                if stored > 2:
                    raise OSError(28, "No space left on device")
                await append(*call)  # type: ignore[arg-type]

            fleet.desk.append = full_disk  # type: ignore[method-assign, assignment]
            with pytest.raises(OSError, match="No space left"):
                await fleet.carry_out(order(server.url, requests=40), 2)

    run(scene())
