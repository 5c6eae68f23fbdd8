"""The tickets of a worker while it works: taken by its slots, leased ahead, given back when recalled.

Runs in a load worker's event loop, which makes it the authority on what is sent: a ticket is taken by a slot
or given back in one step of the loop, never both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from raybench.load.leases import Recall, Returned, TicketQueue

#: Leases tickets for (free slots, tickets settled): see `load.worker.Desk.lease`.
Lease = Callable[[int, int], Awaitable[list[int]]]


class TicketSupply:
    """One order's tickets at one worker. At most one lease is under way at a time."""

    def __init__(self, slots: int, lease: Lease) -> None:
        self._queue = TicketQueue(slots)
        self._lease = lease
        self._asking: asyncio.Task[None] | None = None

    async def first(self) -> None:
        """The lease before the start, which fills the slots."""
        if self._queue.free_slots:
            await self._ask()

    def next_ones(self, count: int) -> list[int]:
        """The tickets that the next `count` slots will take, fewer if there are not as many."""
        return self._queue.head(count)

    async def take(self) -> int | None:
        """The next ticket for an idle slot; None when none is left anywhere. Raises what the lease raised."""
        while not self._queue and not self._queue.drained:
            await self._ask()
        if not self._queue:
            return None
        ticket = self._queue.take()
        if self._queue.low and self._asking is None:
            self._asking = asyncio.ensure_future(self._answer())  # begins once the slot has sent its request
        return ticket

    def slot_ended(self) -> None:
        """A slot's request has ended; the slot is idle."""
        self._queue.slot_ended()

    async def recall(self, recall: Recall) -> Returned:
        """Give tickets back for another worker.

        What was handed to this worker and has not come yet is waited for: the answer to its lease is on
        the way, and an account without it would be wrong.
        """
        if self._queue.leased < recall.leased and self._asking is not None:
            await asyncio.wait([self._asking])
        return self._queue.give_back(recall)

    async def close(self) -> None:
        """End the lease under way, if there is one."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
        """Wait for the answer to the lease under way, or to a new one: one call for all slots that wait."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._answer())
        await asyncio.shield(self._asking)

    async def _answer(self) -> None:
        """One lease. A failed one stays the last, so that every slot that needs a ticket hears of it."""
        queue = self._queue
        free_slots = queue.free_slots
        queue.answered(await self._lease(free_slots, queue.settled), free_slots)
        self._asking = None
