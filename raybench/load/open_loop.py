"""One worker's part of an open loop: each request is sent when it is due, whatever became of the others.

Runs in a load worker, beside the slots of the closed loop. Nothing is skipped: a request whose time has passed is
sent at once, and its record tells how late that was (`sent_ns` - `scheduled_ns`, the waits for a
connection included), so that latencies can be told from when it should have been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from raybench.load.pacer import Sends
from raybench.records.clock import Clock

#: Bodies that are made ahead of their time: the work for one is done while nothing is due.
BODIES_AHEAD = 64
#: Connections that are opened before the start: for what is due in the first seconds, within limits. More are
#: opened when a request finds none free.
OPEN_AHEAD_S, CONNECTIONS_MAX = 5, 256
#: The loop's timers have whole milliseconds. What is left of one is spent looking at the clock, but only by
#: workers whose sends are rarer than this a second, since others would fill a core by it.
EXACT_SENDS_PER_S = 100
#: Sends after which reads get their turn when many are due at once.
SENDS_AT_ONCE = 32


class OpenLoop:
    """make_bodies: of these tickets. exchange: sends one, given when it was due (monotonic ns).

    begun: told by how many ns each request was begun late, its wait for a connection not included.
    """

    def __init__(
        self,
        sends: Sends,
        clock: Clock,
        make_bodies: Callable[[Iterable[int]], None],
        exchange: Callable[[int, int], Awaitable[object]],
        begun: Callable[[int], None],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._tickets: list[int] = sends.tickets.tolist()
        self._due_ns: list[int] = sends.due_ns.tolist()
        self._now = clock.monotonic_ns
        self._make_bodies = make_bodies
        self._exchange = exchange
        self._begun = begun
        self._sleep = sleep
        span_s = self._due_ns[-1] / 1e9 if self._due_ns else 0.0
        self._exact = len(self._due_ns) <= EXACT_SENDS_PER_S * span_s

    @property
    def connections(self) -> int:
        """How many to open before the start."""
        early = sum(due <= OPEN_AHEAD_S * 1e9 for due in self._due_ns)
        return min(max(early, bool(self._tickets)), CONNECTIONS_MAX)

    def prepare(self) -> None:
        """Make the first bodies."""
        self._make_bodies(self._tickets[:BODIES_AHEAD])

    async def run(self, start_ns: int) -> None:
        """Send all, each at `start_ns` + its offset, and wait for the last answer.

        When cancelled, requests under way are ended and recorded; the others are not sent.
        """
        async with asyncio.TaskGroup() as under_way:
            for number, (ticket, due_ns) in enumerate(zip(self._tickets, self._due_ns, strict=True)):
                scheduled_ns = start_ns + due_ns
                self._begun(await self._until(scheduled_ns))
                under_way.create_task(self._send(ticket, scheduled_ns))
                if number % SENDS_AT_ONCE == 0:
                    await self._sleep(0)
                ahead = number + BODIES_AHEAD
                self._make_bodies(self._tickets[ahead : ahead + 1])

    async def _send(self, ticket: int, scheduled_ns: int) -> None:
        await self._exchange(ticket, scheduled_ns)

    async def _until(self, scheduled_ns: int) -> int:
        """By how much it is past that time."""
        while (left_ns := scheduled_ns - self._now()) > 0:
            whole_ms = left_ns // 1_000_000 if self._exact else -(-left_ns // 1_000_000)
            await self._sleep(whole_ms / 1000)
        return -left_ns
