"""Where load workers come to: leases, record pieces, signs of life. Runs in the coordinator.

Holds the state of the one order set under way. Pieces of part files are written where the
coordinator runs, so that a dead client host takes nothing with it that it has already sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raybench.load.leases import LeaseBook
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


@dataclass
class OpenOrder:
    """The order set under way: what is leased to whom."""

    point_id: str
    attempt: int
    phase: str
    requests: int
    book: LeaseBook
    index: Mapping[str, int]
    opened_ns: int
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

    def open(self, point_id: str, attempt: int, phase: str, requests: int, slots: Mapping[str, int]) -> None:
        """Begin an order set; `slots` says each worker's share of the concurrency."""
        index = {worker: number for number, worker in enumerate(slots)}
        book = LeaseBook(requests, list(slots.values()))
        self._open = OpenOrder(point_id, attempt, phase, requests, book, index, self._clock.monotonic_ns())

    def close(self) -> None:
        """End the order set: parts are synced and closed, later leases are empty."""
        self._open = None
        while self._open_parts:
            self._files.close(self._open_parts.pop())
        self._files.sync()

    @property
    def leased(self) -> int:
        """How many requests of the order set under way were handed out to workers."""
        return 0 if self._open is None else self._open.requests - self._open.book.unsent

    def stop_leasing(self) -> None:
        """No new request leaves any worker; those in flight go on."""
        if self._open is not None:
            self._open.book.close()

    async def lease(self, worker: str, point_id: str, attempt: int, phase: str, free_slots: int) -> list[int]:
        order = self._open
        if order is None or (point_id, attempt, phase) != (order.point_id, order.attempt, order.phase):
            return []  # a worker of an order that was given up
        return list(order.book.take(order.index[worker], free_slots))

    async def append(self, worker: str, point_id: str, attempt: int, phase: str, kind: str, data: bytes) -> None:
        name = ".".join([worker, *([phase] if phase != "load" else []), *([kind] if kind != "requests" else [])])
        path = self._run.relative(self._run.part(point_id, attempt, name))
        self._open_parts.add(path)
        self._files.append(path, data)

    async def append_part(self, relative_path: str, data: bytes) -> None:
        """A piece of a monitor's part file."""
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
