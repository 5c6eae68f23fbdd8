"""One order set: dealt to the workers, and carried out while the desk is open for it. Runs in the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from raybench.load.leases import split_slots
from raybench.load.order import Order
from raybench.load.pacer import Schedule, deal
from raybench.protocol.desk import OrderDesk
from raybench.protocol.fleet import FleetResult, LoadFleet
from raybench.records.clock import ClockOffset


@dataclass(frozen=True)
class Sent:
    """leased: requests that were handed out to workers, some of them ahead of a free slot."""

    result: FleetResult
    leased: int

    @property
    def requests(self) -> int:
        """How many were sent, by the workers that lived to say so."""
        return sum(summary.sent for summary in self.result.summaries)


async def send(
    order: Order,
    workers: Sequence[str],
    schedule: Schedule | None,
    fleet: LoadFleet,
    desk: OrderDesk,
    offsets: Mapping[str, ClockOffset],
    start_lead_s: float,
) -> Sent:
    """Let these workers carry the order out. order: its slots are those of all of them; 0 with a schedule."""
    requests = len(order.windows)
    slots = dict(zip(workers, split_slots(order.slots, len(workers)), strict=True))
    desk.open(order.key, requests, slots, fleet.recall)
    try:
        result = await fleet.execute(_dealt(order, slots, schedule), offsets, start_lead_s)
        return Sent(result, desk.leased if schedule is None else requests)
    finally:
        desk.close()


def _dealt(order: Order, slots: Mapping[str, int], schedule: Schedule | None) -> dict[str, Order]:
    """The order as each worker gets it."""
    if schedule is None:
        befores = accumulate(slots.values(), initial=0)
        shares = zip(slots.items(), befores, strict=False)
        return {worker: replace(order, slots=share, first_route=before) for (worker, share), before in shares}
    return {
        worker: replace(
            order, first_route=number, sends=deal(schedule, number, len(slots)), lengths=schedule.lengths
        )
        for number, worker in enumerate(slots)
    }
