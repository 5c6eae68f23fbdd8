"""Which request goes to which worker: slots, and leases of tickets (design section 5). Pure.

Runs in the coordinator. A ticket is the sequence number of a request in its attempt. Each worker has
a fixed number of slots; a slot sends one request after the other. Bulk leases save calls while
plenty is left; near the end a worker gets a ticket for each free slot and no more, so that none sits
on unsent requests while another's slot is free.
"""

from __future__ import annotations

#: A bulk lease leaves at least this many tickets a slot to the others. Within the time of one request all
#: slots of a worker become free once and take up its bulk (never more than its slots); to strand a ticket
#: of it, the others would have to use up the rest within that time: each slot BULK_LEAVES_PER_SLOT requests
#: or more. So none is stranded while the slowest request takes less than BULK_LEAVES_PER_SLOT - 1 times as
#: long as the fastest.
BULK_LEAVES_PER_SLOT = 16


def split_slots(concurrency: int, workers: int) -> list[int]:
    """Shares of `concurrency` that sum up exactly and differ by at most one; zeros stand last."""
    if concurrency < 0 or workers < 1:
        raise ValueError(f"cannot split {concurrency} slots over {workers} workers")
    base, extra = divmod(concurrency, workers)
    return [base + (index < extra) for index in range(workers)]


class LeaseBook:
    """The unsent tickets of one attempt, handed out in order.

    `slots[i]` is the share of worker i. The first lease of a worker fills its slots.
    """

    def __init__(self, requests: int, slots: list[int]) -> None:
        self._next = 0
        self._end = requests
        self._slots = slots
        self._concurrency = sum(slots)
        self._started = [False] * len(slots)
        self._reserved = min(self._concurrency, requests)  # first leases not yet taken

    @property
    def unsent(self) -> int:
        """Tickets not yet handed out."""
        return self._end - self._next

    def take(self, worker: int, free_slots: int = 1) -> range:
        """Tickets for a worker with free slots; empty when nothing is left for it."""
        if not self._started[worker]:
            self._started[worker] = True
            wanted = min(self._slots[worker], self._reserved)
            self._reserved -= wanted
            return self._hand_out(wanted)
        if self._slots[worker] == self._concurrency:
            return self._hand_out(self.unsent)  # nobody else could send them
        spare = self.unsent - self._reserved - BULK_LEAVES_PER_SLOT * self._concurrency
        bulk = min(self._slots[worker], spare // len(self._slots))
        return self._hand_out(min(max(free_slots, bulk), self.unsent - self._reserved))

    def close(self) -> None:
        """Hand out nothing more: the attempt was given up."""
        self._end = self._next
        self._reserved = 0

    def _hand_out(self, count: int) -> range:
        tickets = range(self._next, self._next + max(0, count))
        self._next = tickets.stop
        return tickets
