"""The closed loop over many workers, in virtual time: every ticket once, every slot filled while one is unsent."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest
from closed_loop import ClosedLoop, run
from hypothesis import given, settings
from hypothesis import strategies as st

from raybench.analysis.in_flight import handover_gaps_ms, in_flight
from raybench.load.leases import Recall
from raybench.load.supply import TicketSupply


def assert_each_once(load: ClosedLoop) -> None:
    assert sorted(load.sent) == list(range(load.requests))
    order = load.desk.order
    assert order is not None
    assert order.recalls == {}


@settings(max_examples=200)
@given(
    concurrency=st.integers(1, 24),
    workers=st.integers(1, 7),
    requests=st.integers(0, 300),
    spread=st.sampled_from([1, 3, 100, 10_000]),
    delay_ms=st.sampled_from([0, 1, 20, 2_000]),
    seed=st.integers(0, 2**32),
)
def test_any_order_of_messages_sends_each_ticket_once_and_leaves_none_behind(
    concurrency: int, workers: int, requests: int, spread: int, delay_ms: int, seed: int
) -> None:
    """Messages overtake each other, take longer than requests, and a worker may be slower than all others.

    That no slot leaves while a ticket waits without one, and that never more than C are in flight, is
    looked at in each step of the load.
    """
    dice = random.Random(seed)
    slowness = [dice.choice((1, 1, spread)) for _ in range(workers)]
    load = ClosedLoop(
        requests,
        min(concurrency, requests),
        workers,
        lambda worker, _: dice.randint(1, 10) * dice.choice((1, slowness[worker])),
        lambda: dice.randint(0, delay_ms),
    )
    run(load.carry_out())
    assert_each_once(load)


def spread_load(requests: int, delay_ms: int, seed: int = 1) -> ClosedLoop:
    """C = 64 over 4 workers; requests take 10 ms to 1 s, 1x to 100x."""
    dice = random.Random(seed)
    load = ClosedLoop(requests, 64, 4, lambda *_: round(10 * 100 ** dice.random()), lambda: delay_ms)
    run(load.carry_out())
    assert_each_once(load)
    return load


@pytest.mark.parametrize("requests", [65, 100, 128, 960])
@pytest.mark.parametrize("seed", range(5))
def test_o_l1_64_in_flight_over_4_workers_until_nothing_is_unsent(requests: int, seed: int) -> None:
    """Messages take no time here: every empty moment would be one in which nobody tried to fill the slot."""
    load = spread_load(requests, delay_ms=0, seed=seed)
    sent, end = load.stamps()
    trace = in_flight(sent, end)
    until_last_send = trace.level[trace.at_ns < sent.max()]
    assert (set(until_last_send.tolist()), trace.peak) == ({64}, 64)


def test_with_messages_that_take_time_most_hand_overs_wait_for_none() -> None:
    """5 ms a message, as long as a short request takes by half; the others wait at most two recalls."""
    load = spread_load(960, delay_ms=5)
    gaps = np.sort(handover_gaps_ms(*load.stamps(), 64))
    assert np.median(gaps) == 0.0
    assert (gaps == 0.0).mean() > 0.9
    assert gaps.max() <= 2 * 4 * 5
    assert load.leases < 960 / 4


def test_one_slow_worker_keeps_no_ticket_from_the_others() -> None:
    """What it leased ahead is done by the others, long before it would come to it."""
    load = ClosedLoop(64, 16, 2, lambda worker, _: 10_000 if worker == 1 else 10, lambda: 1)
    run(load.carry_out())
    assert_each_once(load)
    sent, end = load.stamps()
    assert len(sent) == 64
    assert end.max() <= 10_100 * 1_000_000, "the slow worker had one request a slot"


def test_a_worker_that_is_alone_calls_once_for_half_of_its_slots() -> None:
    load = ClosedLoop(4096, 64, 1, lambda _, ticket: 100 + ticket % 7, lambda: 1)
    run(load.carry_out())
    assert_each_once(load)
    assert load.recalls == 0
    assert load.leases <= 4096 / 32 + 2


def test_a_worker_without_slots_asks_for_nothing() -> None:
    load = ClosedLoop(6, 2, 4, lambda *_: 10)
    run(load.carry_out())
    assert_each_once(load)
    assert load.members["w3"].supply.next_ones(1) == []


# What goes wrong


async def never(free_slots: int, settled: int) -> list[int]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def test_a_failed_lease_is_heard_of_by_every_slot_that_needs_a_ticket() -> None:
    async def scene() -> list[object]:
        async def lease(free_slots: int, settled: int) -> list[int]:
            raise ConnectionError("the coordinator is gone")

        supply = TicketSupply(3, lease)
        heard = await asyncio.gather(*(supply.take() for _ in range(3)), return_exceptions=True)
        await supply.close()
        return list(heard)

    assert [str(one) for one in run(scene())] == ["the coordinator is gone"] * 3


def test_a_recall_gets_its_answer_though_the_lease_that_it_waits_for_is_given_up() -> None:
    async def scene() -> None:
        supply = TicketSupply(2, never)
        slot = asyncio.ensure_future(supply.take())
        await asyncio.sleep(0)
        recall = asyncio.ensure_future(supply.recall(Recall(leased=4, free_slots=1, ahead=0)))
        await asyncio.sleep(0)
        assert not recall.done()
        await supply.close()
        returned = await recall
        assert (returned.tickets, returned.settled) == ([], 0)
        with pytest.raises(asyncio.CancelledError):
            await slot

    run(scene())
