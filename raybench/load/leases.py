"""Which request goes to which worker: slots, leases ahead and their recall. Pure.

A ticket is the sequence number of a request in its attempt. Each worker has a fixed number of slots; a
slot sends one request after the other. A worker leases up to one ticket a slot ahead, so that an ended
request is followed by the next without a call. Once the coordinator's `LeaseBook` has none left, a worker
that runs dry gets tickets that others hold ahead: the book knows how many these may be, the holder's
`TicketQueue` says which they are. A ticket is always in one place: with the book, with one worker, or
on the way between them, where it counts as the worker's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice


def split_slots(concurrency: int, workers: int) -> list[int]:
    """Shares of `concurrency` that sum up exactly and differ by at most one; zeros stand last."""
    if concurrency < 0 or workers < 1:
        raise ValueError(f"cannot split {concurrency} slots over {workers} workers")
    base, extra = divmod(concurrency, workers)
    return [base + (index < extra) for index in range(workers)]


@dataclass(frozen=True)
class Recall:
    """Asks a worker for tickets that it holds ahead, in favour of another.

    leased: how many it was handed in all, less those it gave back; it answers once all have reached it.
    free_slots, ahead: of the other, its slots without a ticket and the tickets that it holds ahead.
    """

    leased: int
    free_slots: int
    ahead: int


@dataclass(frozen=True)
class Returned:
    """What a worker gives back. settled: how many of its tickets are sent, or have a slot that waits for them."""

    tickets: list[int]
    settled: int


def worth_moving(held_ahead: int, recall: Recall) -> int:
    """How many of the tickets held ahead a recall takes: one for each free slot, or what balances the two.

    Shares of slots differ by at most one, so that halves are fair.
    """
    return min(held_ahead, max(recall.free_slots, (held_ahead - recall.ahead) // 2))


class TicketQueue:
    """The tickets of one worker, on its side. `slots` of them are idle until they take one."""

    def __init__(self, slots: int) -> None:
        self._tickets: deque[int] = deque()
        self._idle = slots
        self._sent = 0
        self._ahead_at_answer = 0
        #: Nothing is left anywhere: set by an empty answer to a lease for free slots.
        self.drained = False

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def free_slots(self) -> int:
        """Idle slots for which there is no ticket."""
        return max(0, self._idle - len(self._tickets))

    @property
    def ahead(self) -> int:
        """Tickets for which there is no idle slot: what may be given back."""
        return max(0, len(self._tickets) - self._idle)

    @property
    def leased(self) -> int:
        """Tickets that have reached this worker, less those it gave back."""
        return self._sent + len(self._tickets)

    @property
    def settled(self) -> int:
        """Tickets that are sent or will be as soon as their idle slot runs. Never falls."""
        return self.leased - self.ahead

    @property
    def low(self) -> bool:
        """Less than half of what was ahead after the last answer is left: time to ask for more.

        Near the end, when answers are small or empty, this makes the pauses between them a share of what
        is left, so that a worker asks a few times and not at each ticket.
        """
        return not self.drained and 2 * self.ahead < self._ahead_at_answer

    def head(self, count: int) -> list[int]:
        """The first tickets of the queue, at most `count`."""
        return list(islice(self._tickets, count))

    def take(self) -> int:
        """The next ticket, for an idle slot."""
        self._idle -= 1
        self._sent += 1
        return self._tickets.popleft()

    def slot_ended(self) -> None:
        """A slot's request has ended."""
        self._idle += 1

    def answered(self, tickets: Iterable[int], asked_for: int) -> None:
        """The answer to a lease that was asked for with `asked_for` free slots."""
        before = len(self._tickets)
        self._tickets.extend(tickets)
        self._ahead_at_answer = self.ahead
        self.drained = asked_for > 0 and len(self._tickets) == before

    def give_back(self, recall: Recall) -> Returned:
        """The last tickets of the queue, as many as the other worker is due; never one of an idle slot."""
        count = worth_moving(self.ahead, recall)
        given = [self._tickets.pop() for _ in range(count)]
        return Returned(given[::-1], self.settled)


class LeaseBook:
    """The tickets of one attempt, on the coordinator's side, handed out in order.

    `slots[i]` is the share of worker i. The first lease of a worker fills its slots.
    """

    def __init__(self, requests: int, slots: list[int]) -> None:
        self._requests = requests
        self._next = 0
        self._came_back: deque[int] = deque()
        self._closed = False
        self._slots = slots
        self._waiting = {worker for worker, share in enumerate(slots) if share}  # no first lease yet
        self._reserved = min(sum(slots), requests)  # for first leases
        self._leased = [0] * len(slots)
        self._settled = [0] * len(slots)

    @property
    def unsent(self) -> int:
        """Tickets with no worker."""
        return 0 if self._closed else self._requests - self._next + len(self._came_back)

    @property
    def handed_out(self) -> int:
        """Tickets that went to workers and did not come back."""
        return sum(self._leased)

    def ahead(self, worker: int) -> int:
        """How many tickets this worker holds ahead at most, those on the way to it included."""
        return self._leased[worker] - self._settled[worker]

    def take(self, worker: int, free_slots: int, settled: int) -> list[int]:
        """Tickets for a worker: one for each free slot, and its share of the rest up to one a slot ahead.

        settled: `TicketQueue.settled` of the worker. Empty when the book has none for it.
        """
        self._note_settled(worker, settled)
        share = self._slots[worker]
        if worker in self._waiting:
            others = sum(self._slots[one] for one in self._waiting)
            self._waiting.remove(worker)
            needed = min(share, self._reserved)
            self._reserved -= needed
        else:
            others = sum(self._slots)
            needed = min(free_slots, max(0, self.unsent - self._reserved))
        spare = max(0, self.unsent - self._reserved - needed)
        fair = -(-spare * share // others) if others else 0
        ahead = max(0, min(share - self.ahead(worker), fair, spare))
        tickets = self._hand_out(needed + ahead)
        self._leased[worker] += len(tickets)
        self._settled[worker] += needed  # a slot waits for each of these, wherever they are
        return tickets

    def holders(self, worker: int, free_slots: int) -> list[int]:
        """From whom to recall tickets for a worker to which the book gives none: the richest, as few as do.

        Empty when nobody holds tickets that it should get; with free slots that means that none is unsent.
        """
        found: list[int] = []
        missing = max(1, free_slots)
        others = [other for other in range(len(self._slots)) if other != worker]
        for other in sorted(others, key=self.ahead, reverse=True):
            worth = worth_moving(self.ahead(other), self.recall(other, worker, free_slots))
            if self._closed or missing <= 0 or worth <= 0:
                break
            found.append(other)
            missing -= worth
        return found

    def recall(self, holder: int, worker: int, free_slots: int) -> Recall:
        """What to ask of `holder` in favour of `worker`."""
        return Recall(self._leased[holder], free_slots, self.ahead(worker))

    def came_back(self, holder: int, returned: Returned | None) -> None:
        """The answer to a recall. None: the worker is gone, and with it what it held."""
        if returned is None:
            self._settled[holder] = self._leased[holder]
            return
        self._came_back.extend(returned.tickets)
        self._leased[holder] -= len(returned.tickets)
        self._note_settled(holder, returned.settled)

    def close(self) -> None:
        """Hand out nothing more: the attempt was given up."""
        self._closed = True
        self._reserved = 0

    def _note_settled(self, worker: int, settled: int) -> None:
        """Messages of a worker may overtake each other; the number itself never falls."""
        self._settled[worker] = max(self._settled[worker], settled)

    def _hand_out(self, count: int) -> list[int]:
        count = min(count, self.unsent)
        back = [self._came_back.popleft() for _ in range(min(count, len(self._came_back)))]
        begin, self._next = self._next, self._next + count - len(back)
        return [*back, *range(begin, self._next)]
