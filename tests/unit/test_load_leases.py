"""Slots, the book of leases and the queue of a worker. Whole loads are in test_load_supply.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.load.leases import LeaseBook, Recall, Returned, TicketQueue, split_slots, worth_moving


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
    settled = [0] * len(slots)
    given_out: list[int] = []
    everyone = [(worker, 1) for worker in range(len(slots))]
    for called, free in [*calls, *everyone * (requests + 1)]:
        worker = called % len(slots)
        lease = book.take(worker, free, settled[worker])
        settled[worker] += len(lease)
        given_out += lease
        assert book.unsent + book.handed_out == requests
        if book.unsent == 0:
            break
    assert given_out == list(range(requests))


@given(more=st.integers(0, 50), slots=st.lists(st.integers(0, 20), min_size=1, max_size=8), data=st.data())
def test_the_first_lease_fills_the_slots_whoever_comes_first(
    more: int, slots: list[int], data: st.DataObject
) -> None:
    """A fast worker that comes again and again takes nothing of what another's slots begin with; what is more
    than that is shared out ahead, up to one a slot."""
    book = LeaseBook(sum(slots) + more, slots)
    order = data.draw(st.permutations(range(len(slots))))
    greedy, settled = order[0], 0
    while lease := book.take(greedy, slots[greedy] or 1, settled):
        settled += len(lease)
    for worker in order[1:]:
        assert slots[worker] <= len(book.take(worker, slots[worker], 0)) <= 2 * slots[worker]


def test_what_is_left_after_the_slots_is_shared_out_ahead() -> None:
    book = LeaseBook(14, [4, 4])
    assert [len(book.take(worker, 4, 0)) for worker in (0, 1)] == [7, 7]
    book = LeaseBook(1000, [4, 4])
    assert [len(book.take(worker, 4, 0)) for worker in (0, 1)] == [8, 8]


def test_a_later_lease_fills_up_what_is_ahead_and_no_more() -> None:
    book = LeaseBook(1000, [4, 4])
    book.take(0, 4, 0)
    assert book.take(0, 0, 4) == []
    assert len(book.take(0, 0, 7)) == 3


def test_near_the_end_a_lease_takes_a_fair_share_of_the_book() -> None:
    book = LeaseBook(19, [4, 4])
    for worker in (0, 1):
        book.take(worker, 4, 0)
    assert [book.take(0, 0, 8), book.take(1, 0, 8)] == [[16, 17], [18]]


def test_a_worker_with_share_0_gets_nothing_at_first() -> None:
    assert LeaseBook(8, [1, 1, 1, 0]).take(3, 0, 0) == []


def test_fewer_requests_than_slots_are_handed_out_once() -> None:
    book = LeaseBook(3, [2, 2])
    assert [book.take(worker, 2, 0) for worker in (0, 1, 0, 1)] == [[0, 1], [2], [], []]


def test_a_closed_book_hands_out_nothing_and_recalls_nothing() -> None:
    book = LeaseBook(100, [2, 2])
    book.take(0, 2, 0)
    book.close()
    assert [book.take(worker, 2, 0) for worker in (0, 1)] == [[], []]
    assert (book.unsent, book.handed_out, book.holders(1, 2)) == (0, 4, [])


# Recalls


@given(held=st.integers(0, 100), free=st.integers(0, 100), ahead=st.integers(0, 100))
def test_a_recall_moves_what_free_slots_need_and_else_never_turns_the_tables(
    held: int, free: int, ahead: int
) -> None:
    moved = worth_moving(held, Recall(0, free, ahead))
    assert min(held, free) <= moved <= held
    if moved > free:
        assert ahead + moved <= held - moved


def dealt(requests: int, slots: list[int]) -> tuple[LeaseBook, list[TicketQueue]]:
    """A book that is empty, as it knows its workers after the first leases and starts."""
    book, queues = LeaseBook(requests, slots), [TicketQueue(share) for share in slots]
    for worker, queue in enumerate(queues):
        queue.answered(book.take(worker, slots[worker], 0), slots[worker])
        for _ in range(slots[worker]):
            queue.take()
    assert [book.take(worker, 0, queue.settled) for worker, queue in enumerate(queues)] == [[]] * len(slots)
    return book, queues


def test_the_richest_are_asked_first_and_no_more_than_needed() -> None:
    book, queues = dealt(32, [4, 4, 4, 4])
    for _ in range(3):
        queues[1].slot_ended()
        queues[1].take()
    book.take(1, 0, queues[1].settled)
    assert [book.ahead(worker) for worker in range(4)] == [4, 1, 4, 4]
    assert book.holders(0, 2) == [2]
    assert book.holders(0, 5) == [2, 3]
    assert book.holders(3, 30) == [0, 2, 1]
    assert book.holders(0, 0) == []  # without a free slot nobody is rich enough
    assert book.holders(1, 0) == [0]


def test_tickets_on_their_way_back_still_count_as_the_holder_s() -> None:
    """Else another worker with a free slot would be told that none is left."""
    book, queues = dealt(16, [4, 4])
    returned = queues[0].give_back(Recall(8, 1, 2))
    assert (returned.tickets, returned.settled) == ([7], 4)
    assert book.take(0, 0, queues[0].settled) == []
    assert book.ahead(0) == 4
    book.came_back(0, returned)
    assert (book.ahead(0), book.unsent) == (3, 1)
    assert book.take(1, 1, 8) == [7]


def test_a_report_that_was_overtaken_changes_nothing() -> None:
    book, queues = dealt(16, [4, 4])
    queues[0].slot_ended()
    queues[0].take()
    book.take(0, 0, queues[0].settled)
    assert book.ahead(0) == 3
    book.take(0, 0, 4)
    assert book.ahead(0) == 3


def test_nothing_is_recalled_from_a_worker_that_is_gone() -> None:
    book, _ = dealt(16, [4, 4])
    assert book.holders(1, 1) == [0]
    book.came_back(0, None)
    assert book.holders(1, 1) == []


def test_a_ticket_whose_slot_waits_for_it_is_not_given_back() -> None:
    queue = TicketQueue(3)
    queue.answered([0, 1, 2, 3], 3)
    assert queue.settled == 3
    assert queue.give_back(Recall(4, 4, 0)) == Returned([3], 3)


def test_a_worker_asks_again_when_half_of_what_it_was_given_is_gone() -> None:
    queue = TicketQueue(4)
    queue.answered(range(8), 4)
    for _ in range(4):
        queue.take()
    low = []
    for _ in range(4):
        queue.slot_ended()
        queue.take()
        low.append(queue.low)
    assert low == [False, False, True, True]
    queue.answered([], 0)
    assert (queue.low, queue.drained) == (False, False)


def test_an_empty_answer_for_free_slots_is_the_end() -> None:
    queue = TicketQueue(1)
    queue.answered([], 1)
    assert queue.drained
