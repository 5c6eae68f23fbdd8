"""Where load workers come to: leases, record pieces, signs of life. Runs in the coordinator.

Holds the state of the one order set under way. Pieces of part files are written where the
coordinator runs, so that a dead client host takes nothing with it that it has already sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from raybench.load.leases import LeaseBook, Recall, Returned
from raybench.load.order import OrderKey
from raybench.records.clock import Clock
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory


@dataclass(frozen=True)
class Pulse:
    """A worker's last sign of life; judged by receipt time on the coordinator's clock."""

    received_ns: int
    in_flight: int
    completed: int
    output_tokens: int


#: Asks a worker for tickets; None when it is gone (`protocol.fleet.LoadFleet.recall`).
AskBack = Callable[[str, OrderKey, Recall], Awaitable[Returned | None]]


@dataclass
class OpenOrder:
    """The order set under way: what is leased to whom. recalls: those not answered yet, one a worker."""

    key: OrderKey
    requests: int
    book: LeaseBook
    workers: list[str]
    ask_back: AskBack
    opened_ns: int
    recalls: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    pulses: dict[str, Pulse] = field(default_factory=dict)


class OrderDesk:
    """`load.worker.Desk` on the coordinator's side."""

    def __init__(self, run: RunDirectory, files: PartFiles, clock: Clock) -> None:
        self._run = run
        self._files = files
        self._clock = clock
        self._open: OpenOrder | None = None
        self._open_parts: set[str] = set()

    @property
    def order(self) -> OpenOrder | None:
        return self._open

    def open(self, key: OrderKey, requests: int, slots: Mapping[str, int], ask_back: AskBack) -> None:
        """Begin an order set; `slots` says each worker's share of the concurrency."""
        book = LeaseBook(requests, list(slots.values()))
        now_ns = self._clock.monotonic_ns()
        self._open = OpenOrder(key, requests, book, list(slots), ask_back, now_ns)

    def close(self) -> None:
        """End the order set: parts are synced and closed, later leases are empty."""
        self._open = None
        while self._open_parts:
            self._files.close(self._open_parts.pop())
        self._files.sync()

    @property
    def leased(self) -> int:
        """How many requests of the order set under way were handed out to workers."""
        return 0 if self._open is None else self._open.book.handed_out

    def stop_leasing(self) -> None:
        """Hand out nothing more: workers send only what they hold."""
        if self._open is not None:
            self._open.book.close()

    async def lease(self, worker: str, key: OrderKey, free_slots: int, settled: int) -> list[int]:
        """Tickets from the book, else from workers that hold some ahead.

        With free slots the answer is empty only when nothing is unsent but what others are about to send. A worker
        that does not answer a recall is waited for until the fleet gives it up.
        """
        order = self._open
        if order is None or key != order.key:
            return []  # a worker of an order that was given up
        index = order.workers.index(worker)
        tickets = order.book.take(index, free_slots, settled)
        while not tickets and (holders := order.book.holders(index, free_slots)):
            recalls = [self._recall(order, holder, index, free_slots) for holder in holders]
            await asyncio.wait(recalls)
            for recall in recalls:
                recall.result()
            if order is not self._open:
                return []
            tickets = order.book.take(index, free_slots, settled)
        return tickets

    def _recall(self, order: OpenOrder, holder: int, worker: int, free_slots: int) -> asyncio.Task[None]:
        """The recall from `holder` under way, else a new one in favour of `worker`.

        One at a time from each, so that what came back and what is still on the way are never confused. A task
        of its own: what a worker has given back is taken in, whatever becomes of the one that asked for it.
        """
        if holder not in order.recalls:
            recall = order.book.recall(holder, worker, free_slots)
            order.recalls[holder] = asyncio.ensure_future(self._carry_out(order, holder, recall))
        return order.recalls[holder]

    async def _carry_out(self, order: OpenOrder, holder: int, recall: Recall) -> None:
        try:
            returned = await order.ask_back(order.workers[holder], order.key, recall)
            order.book.came_back(holder, returned)
        finally:
            del order.recalls[holder]

    async def append(self, worker: str, key: OrderKey, kind: str, data: bytes) -> None:
        """Write a piece. What comes of an order that is over, from a worker that was given up behind a cut link,
        is dropped: its part is closed, and its attempt is judged."""
        if self._open is None or key != self._open.key:
            return
        phase = [key.phase] if key.phase != "load" else []
        name = ".".join([worker, *phase, *([kind] if kind != "requests" else [])])
        path = self._run.relative(self._run.part(key.point_id, key.attempt, name))
        self._open_parts.add(path)
        self._files.append(path, data)

    async def append_part(self, relative_path: str, data: bytes) -> None:
        """A piece of a monitor's part file. What comes of one that was given up behind a cut link is dropped."""
        if not self._files.was_closed(relative_path):
            self._files.append(relative_path, data)

    async def close_part(self, relative_path: str) -> None:
        self._files.close(relative_path)

    def last_pulse_ns(self, worker: str) -> int | None:
        """When this worker was last heard of in the order set under way, on the coordinator's monotonic clock."""
        pulse = None if self._open is None else self._open.pulses.get(worker)
        return None if pulse is None else pulse.received_ns

    async def heartbeat(self, worker: str, in_flight: int, completed: int, output_tokens: int) -> None:
        if self._open is not None:
            self._open.pulses[worker] = Pulse(self._clock.monotonic_ns(), in_flight, completed, output_tokens)
