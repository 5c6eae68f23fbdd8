"""The sender of an open loop on a clock that the test owns: on time, never early, none left out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest

from raybench.load.open_loop import BODIES_AHEAD, CONNECTIONS_MAX, OpenLoop
from raybench.load.pacer import Sends

MS = 1_000_000
START = 10_000 * MS


@dataclass
class Scene:
    """A clock that moves by sleeping, and by `stall_ms` at each look; requests that take a second or for ever."""

    stall_ms: float = 0.0
    ns: int = START - 5 * MS
    made: list[int] = field(default_factory=list)
    sent: list[tuple[int, int, int]] = field(default_factory=list)  # ticket, scheduled, when
    unprepared: list[int] = field(default_factory=list)
    stuck: bool = False
    ended: list[int] = field(default_factory=list)
    late_ns: list[int] = field(default_factory=list)

    def monotonic_ns(self) -> int:
        self.ns += round(self.stall_ms * MS)
        return self.ns

    def unix_ns(self) -> int:
        return self.ns

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)  # what was sent leaves at once
        self.ns += max(round(seconds * 1e9), 1000)

    def make_bodies(self, tickets: Iterable[int]) -> None:
        self.made += tickets

    async def exchange(self, ticket: int, scheduled_ns: int) -> None:
        self.sent.append((ticket, scheduled_ns, self.ns))
        if ticket not in self.made:
            self.unprepared.append(ticket)
        try:
            if self.stuck:
                await asyncio.Event().wait()
        finally:
            self.ended.append(ticket)

    def loop(self, due_ms: Iterable[float], *, first: int = 0, step: int = 1) -> OpenLoop:
        due_ns = np.rint(np.asarray(list(due_ms)) * MS).astype(np.int64)
        tickets = np.arange(first, first + step * len(due_ns), step, dtype=np.int64)
        return OpenLoop(
            Sends(tickets, due_ns), self, self.make_bodies, self.exchange, self.late_ns.append, self.sleep
        )

    def carry_out(self, loop: OpenLoop) -> None:
        loop.prepare()
        asyncio.run(loop.run(START))


def test_each_request_is_sent_at_its_time_and_never_before() -> None:
    scene = Scene()
    due_ms = [0.0, 0.4, 17.3, 17.3, 900.0]
    scene.carry_out(scene.loop(due_ms, first=1, step=3))
    assert [ticket for ticket, _, _ in scene.sent] == [1, 4, 7, 10, 13]
    assert [scheduled - START for _, scheduled, _ in scene.sent] == [round(due * MS) for due in due_ms]
    assert all(0 <= when - scheduled <= MS for _, scheduled, when in scene.sent)
    assert len(scene.late_ns) == len(due_ms)
    assert all(0 <= late <= MS for late in scene.late_ns)


def test_a_busy_worker_sends_up_to_a_timer_s_millisecond_late() -> None:
    scene = Scene()
    scene.carry_out(scene.loop([k * 0.25 for k in range(4000)]))
    assert all(0 <= when - scheduled <= 2 * MS for _, scheduled, when in scene.sent)


def test_a_client_that_cannot_keep_up_sends_all_of_them_late() -> None:
    scene = Scene(stall_ms=3)
    scene.carry_out(scene.loop(range(500)))
    assert [ticket for ticket, _, _ in scene.sent] == list(range(500))
    delays = [when - scheduled for _, scheduled, when in scene.sent]
    assert [scheduled - START for _, scheduled, _ in scene.sent] == [k * MS for k in range(500)]
    assert delays[-1] > 900 * MS, "two of three milliseconds are lost at each of 500 sends"
    assert all(0 <= late <= delay for late, delay in zip(scene.late_ns, delays, strict=True))
    assert max(scene.late_ns) > 900 * MS, "the worker's own health says so too"


def test_bodies_are_made_before_they_are_due_and_not_all_at_once() -> None:
    scene = Scene()
    loop = scene.loop([k * 10 for k in range(300)])
    loop.prepare()
    assert len(scene.made) == BODIES_AHEAD
    asyncio.run(loop.run(START))
    assert scene.made == list(range(300))
    assert scene.unprepared == []


def test_all_requests_are_under_way_at_once_if_none_is_answered() -> None:
    scene = Scene(stuck=True)

    async def play() -> None:
        run = asyncio.ensure_future(scene.loop([0.0] * 100).run(START))
        while len(scene.sent) < 100:
            await asyncio.sleep(0)
        assert scene.ended == []
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(play())
    assert sorted(scene.ended) == list(range(100)), "those under way are ended, so that each has its record"


def test_a_worker_without_a_share_sends_nothing() -> None:
    scene = Scene()
    loop = scene.loop([])
    assert loop.connections == 0
    scene.carry_out(loop)
    assert scene.sent == []


def test_connections_are_opened_for_what_is_due_at_first() -> None:
    scene = Scene()
    assert scene.loop([k * 100 for k in range(300)]).connections == 51
    assert scene.loop([60_000.0]).connections == 1
    assert scene.loop([0.0] * 5000).connections == CONNECTIONS_MAX
