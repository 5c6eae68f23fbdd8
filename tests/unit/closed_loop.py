"""A closed loop in virtual time: the real desk and the real supplies of several workers, and a network between.

Slots, requests and messages are pauses of an event loop whose clock jumps to the next timer, so that a load
of hours runs at once and every order of events can be had. Nothing that can still happen is a failure.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from protocol_fakes import FakeClock

from raybench.load.leases import Recall, Returned, split_slots
from raybench.load.order import OrderKey
from raybench.load.supply import TicketSupply
from raybench.protocol.desk import OrderDesk
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory

T = TypeVar("T")
KEY = OrderKey("arm/load/c1", 1, "load")


class _Jump(selectors.SelectSelector):
    """Waits for nothing: adds the wait to the clock."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everybody waits, and nothing is on its way")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine to its end in virtual time."""
    with closing(_VirtualLoop()) as loop:
        return loop.run_until_complete(coroutine)


async def pause(ms: int) -> None:
    """Virtual milliseconds; 0 gives way to what is ready."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(ms / 1e3, over.set)
    await over.wait()


@dataclass
class Member:
    """A worker: its supply, and what a test may know of it."""

    supply: TicketSupply
    slots: int
    holds: set[int] = field(default_factory=set)  # handed to it, not sent, not given back
    in_flight: int = 0


@dataclass
class ClosedLoop:
    """duration_ms(worker, ticket): how long a request takes. delay_ms(): how long each message is on its way."""

    requests: int
    concurrency: int
    workers: int
    duration_ms: Callable[[int, int], int]
    delay_ms: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        clock = FakeClock()
        nowhere = RunDirectory(Path("nowhere"))  # no records are sent to this desk
        self.desk = OrderDesk(nowhere, PartFiles(nowhere.path), clock)
        self.names = [f"w{number}" for number in range(self.workers)]
        shares = split_slots(self.concurrency, self.workers)
        self.members = {
            name: Member(TicketSupply(share, self._lease_of(name)), share)
            for name, share in zip(self.names, shares, strict=True)
        }
        self.desk.open(KEY, self.requests, dict(zip(self.names, shares, strict=True)), self._recall)
        self.sent: list[int] = []
        self.sent_ns: list[int] = []
        self.end_ns: list[int] = []
        self.leases = self.recalls = 0

    async def carry_out(self) -> None:
        """First leases, then all slots, to the end of the last."""
        await asyncio.gather(*(one.supply.first() for one in self.members.values()))
        slots = [self._slot(name) for name, one in self.members.items() for _ in range(one.slots)]
        await asyncio.gather(*slots)
        for one in self.members.values():
            await one.supply.close()

    def stamps(self) -> tuple[np.ndarray, np.ndarray]:
        """(sent, end) in virtual nanoseconds."""
        return np.array(self.sent_ns, dtype=np.int64), np.array(self.end_ns, dtype=np.int64)

    async def _slot(self, name: str) -> None:
        member = self.members[name]
        while (ticket := await member.supply.take()) is not None:
            member.holds.remove(ticket)
            self.sent.append(ticket)
            self.sent_ns.append(_now_ns())
            member.in_flight += 1
            assert sum(one.in_flight for one in self.members.values()) <= self.concurrency
            await pause(self.duration_ms(self.names.index(name), ticket))
            member.in_flight -= 1
            member.supply.slot_ended()
            self.end_ns.append(_now_ns())
        self._assert_nothing_is_left_for(member)

    def _assert_nothing_is_left_for(self, idle: Member) -> None:
        """A slot was told to go: every unsent ticket has a slot that waits for it, where it is or will be."""
        order = self.desk.order
        assert order is not None
        assert order.book.unsent == 0
        for member in self.members.values():
            assert len(member.holds) <= member.slots - member.in_flight, (
                "a slot left, another worker holds tickets"
            )
        assert not idle.holds

    def _lease_of(self, name: str) -> Callable[[int, int], Coroutine[Any, Any, list[int]]]:
        async def lease(free_slots: int, settled: int) -> list[int]:
            self.leases += 1
            await pause(self.delay_ms())
            tickets = await self.desk.lease(name, KEY, free_slots, settled)
            self.members[name].holds |= set(tickets)
            await pause(self.delay_ms())
            return tickets

        return lease

    async def _recall(self, name: str, _key: OrderKey, recall: Recall) -> Returned:
        self.recalls += 1
        await pause(self.delay_ms())
        returned = await self.members[name].supply.recall(recall)
        self.members[name].holds -= set(returned.tickets)
        await pause(self.delay_ms())
        return returned


def _now_ns() -> int:
    return round(asyncio.get_running_loop().time() * 1e9)
