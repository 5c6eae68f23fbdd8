"""Slots and leases: properties of the book, and of a whole load in a simulation without a clock."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.load.leases import BULK_LEAVES_PER_SLOT, LeaseBook, split_slots


@given(concurrency=st.integers(0, 5000), workers=st.integers(1, 300))
def test_shares_sum_up_and_differ_by_at_most_one(concurrency: int, workers: int) -> None:
    shares = split_slots(concurrency, workers)
    assert len(shares) == workers
    assert sum(shares) == concurrency
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize(("concurrency", "workers"), [(-1, 2), (4, 0)])
def test_a_split_that_makes_no_sense_is_a_bug(concurrency: int, workers: int) -> None:
    with pytest.raises(ValueError, match="cannot split"):
        split_slots(concurrency, workers)


@given(
    requests=st.integers(0, 2000),
    slots=st.lists(st.integers(0, 20), min_size=1, max_size=8),
    calls=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 20)), max_size=300),
)
def test_every_ticket_is_handed_out_once_and_in_order(
    requests: int, slots: list[int], calls: list[tuple[int, int]]
) -> None:
    book = LeaseBook(requests, slots)
    given_out: list[int] = []
    everyone = [(worker, 1) for worker in range(len(slots))]
    for worker, free in [*calls, *everyone * (requests + 1)]:
        before = book.unsent
        lease = book.take(worker % len(slots), free)
        given_out += lease
        assert before - book.unsent == len(lease)
        if book.unsent == 0:
            break
    assert given_out == list(range(len(given_out)))
    assert len(given_out) + book.unsent == requests


@given(st.integers(1, 50), st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_the_first_lease_fills_the_slots_whoever_comes_first(more: int, slots: list[int]) -> None:
    """A fast worker that comes again and again takes nothing of what another's slots begin with."""
    requests = sum(slots) + more
    book = LeaseBook(requests, slots)
    greedy = max(range(len(slots)), key=slots.__getitem__)
    assert len(book.take(greedy)) == slots[greedy]
    while book.take(greedy, slots[greedy] or 1):
        pass
    for worker, share in enumerate(slots):
        if worker != greedy:
            assert len(book.take(worker)) == share
    assert book.unsent == 0


def test_a_worker_with_share_0_gets_nothing_at_first() -> None:
    assert list(LeaseBook(8, [1, 1, 1, 0]).take(3)) == []


def test_fewer_requests_than_slots_are_handed_out_once() -> None:
    book = LeaseBook(3, [2, 2])
    assert [list(book.take(worker)) for worker in (0, 1, 0, 1)] == [[0, 1], [2], [], []]


def test_a_closed_book_hands_out_nothing() -> None:
    book = LeaseBook(100, [2, 2])
    book.take(0)
    book.close()
    assert [list(book.take(worker)) for worker in (0, 1)] == [[], []]
    assert book.unsent == 0


# A whole load, event by event


@dataclass
class Worker:
    """A load worker as the simulation sees it: leased tickets that wait for a slot."""

    number: int
    slots: int
    queue: deque[int] = field(default_factory=deque)


@dataclass
class Load:
    """Runs a load to its end; after each moment looks whether a slot idles while a ticket is unsent."""

    requests: int
    concurrency: int
    workers: int
    seed: int
    durations: range

    def __post_init__(self) -> None:
        slots = split_slots(self.concurrency, self.workers)
        self.book = LeaseBook(self.requests, slots)
        self.members = [Worker(number, share) for number, share in enumerate(slots) if share]
        self.random = random.Random(self.seed)
        # A worker of its own speed, whose requests differ as well, all within `durations`.
        self.ends: list[tuple[int, int]] = []
        self.started: list[int] = []
        self.calls = 0

    def run(self) -> None:
        for worker in self.random.sample(self.members, len(self.members)):
            self._fill(worker, worker.slots)
        assert len(self.ends) == min(self.concurrency, self.requests)
        while self.ends:
            self._look()
            now = self.ends[0][0]
            free = [0] * self.workers
            while self.ends and self.ends[0][0] == now:
                free[heapq.heappop(self.ends)[1]] += 1
            for worker in self.random.sample(self.members, len(self.members)):
                if free[worker.number]:
                    self._fill(worker, free[worker.number], now)
        assert sorted(self.started) == list(range(self.requests))

    def _fill(self, worker: Worker, free: int, now: int = 0) -> None:
        """What `load.worker` does with free slots: own tickets first, then one lease for the rest."""
        while free:
            if not worker.queue:
                self.calls += 1
                worker.queue.extend(self.book.take(worker.number, free))
            if not worker.queue:
                return
            self.started.append(worker.queue.popleft())
            heapq.heappush(self.ends, (now + self._duration(worker), worker.number))
            free -= 1

    def _duration(self, worker: Worker) -> int:
        least, most = self.durations[0], self.durations[-1]
        slowness = random.Random(self.seed + worker.number).choice((least, least, most, (least + most) // 2))
        return self.random.choice((slowness, self.random.randint(least, most)))

    def _look(self) -> None:
        in_flight = len(self.ends)
        assert in_flight <= self.concurrency
        assert in_flight == self.concurrency or len(self.started) == self.requests, (
            f"{in_flight} of {self.concurrency} in flight, {self.requests - len(self.started)} unsent"
        )


loads = st.tuples(st.integers(1, 24), st.integers(1, 7), st.integers(0, 2**32))


@given(load=loads, per_slot=st.integers(1, 60))
def test_no_slot_idles_while_a_ticket_is_unsent_if_requests_differ_fourteen_fold(
    load: tuple[int, int, int], per_slot: int
) -> None:
    """The promise of BULK_LEAVES_PER_SLOT: slowest to fastest below 15."""
    concurrency, workers, seed = load
    extra = seed % concurrency
    least = 100
    most = least * (BULK_LEAVES_PER_SLOT - 1) - 1
    Load(concurrency * per_slot + extra, concurrency, workers, seed, range(least, most + 1)).run()


@given(load=loads, per_slot=st.integers(1, BULK_LEAVES_PER_SLOT + 1))
def test_short_points_are_exact_however_much_requests_differ(load: tuple[int, int, int], per_slot: int) -> None:
    """Up to 17 requests a slot no bulk is ever leased."""
    concurrency, workers, seed = load
    Load(concurrency * per_slot, concurrency, workers, seed, range(1, 100_000)).run()


class OneSlowWorker(Load):
    """Two workers of four slots: one fast, one whose slots take turns in ending, which is the worst case:
    what it leases in bulk waits for almost the whole of its slowest request."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.slow_starts = 0

    def _duration(self, worker: Worker) -> int:
        least, most = self.durations[0], self.durations[-1]
        if worker.number == 0:
            return least
        self.slow_starts += 1
        return most * self.slow_starts // 4 if self.slow_starts <= 4 else most


def run_slow_worker_loads() -> None:
    for requests in range(8, 700):
        OneSlowWorker(requests, 8, 2, seed=1, durations=range(100, 1500)).run()


def test_a_slow_worker_never_strands_a_ticket() -> None:
    run_slow_worker_loads()


def test_a_bulk_that_left_less_to_the_others_would_strand_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybench.load.leases.BULK_LEAVES_PER_SLOT", 4)
    with pytest.raises(AssertionError, match=r"of 8 in flight, \d+ unsent"):
        run_slow_worker_loads()


def test_long_points_lease_in_bulk() -> None:
    load = Load(20_000, 100, 4, seed=1, durations=range(100, 200))
    load.run()
    assert load.calls < 4_000


def test_a_batch_that_ends_at_once_is_refilled_by_one_call_a_worker() -> None:
    load = Load(requests=200, concurrency=100, workers=4, seed=1, durations=range(100, 101))
    load.run()
    # 4 to begin with, 4 for the second batch, 4 that hear that nothing is left
    assert load.calls == 12
