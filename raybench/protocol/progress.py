"""What a user sees while a run is under way: one small snapshot, made on demand. Runs in the coordinator."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass

from raybench.protocol.desk import OrderDesk
from raybench.records.clock import Clock
from raybench.scenario.plan import Point


@dataclass(frozen=True)
class Snapshot:
    """One look at the run. completed/requests are of the order set under way; left_s None = unknown.

    points_total: those known by now. search: where the search under way stands, None between searches.
    """

    arm: str | None
    point_id: str | None
    attempt: int
    step: str
    in_flight: int
    completed: int
    requests: int
    output_tokens_per_s: float
    left_s: float | None
    points_done: int
    points_total: int
    search: str | None
    last_verdicts: tuple[tuple[str, str], ...]


class Progress:
    """Collects where the coordinator is; the numbers come from the desk's pulses.

    points: those known so far. search is the coordinator's to set.
    """

    def __init__(self, desk: OrderDesk, clock: Clock, points: Sized) -> None:
        self._desk = desk
        self._clock = clock
        self._points = points
        self.search: str | None = None
        self._arm: str | None = None
        self._point: Point | None = None
        self._attempt = 0
        self._step = "start"
        self._done: list[tuple[str, str]] = []

    def arm_step(self, arm: str, step: str) -> None:
        self._arm, self._point, self._attempt, self._step = arm, None, 0, step

    def step(self, point: Point, attempt: int, step: str) -> None:
        self._arm, self._point, self._attempt, self._step = point.arm, point, attempt, step

    def point_done(self, point: Point, verdict: str) -> None:
        self._done.append((point.point_id, verdict))
        self._step = "done"

    def snapshot(self) -> Snapshot:
        order = self._desk.order
        pulses = [] if order is None else list(order.pulses.values())
        completed = sum(pulse.completed for pulse in pulses)
        requests = 0 if order is None else order.requests
        elapsed_s = 0.0 if order is None else (self._clock.monotonic_ns() - order.opened_ns) / 1e9
        tokens = sum(pulse.output_tokens for pulse in pulses)
        return Snapshot(
            arm=self._arm,
            point_id=None if self._point is None else self._point.point_id,
            attempt=self._attempt,
            step=self._step,
            in_flight=sum(pulse.in_flight for pulse in pulses),
            completed=completed,
            requests=requests,
            output_tokens_per_s=tokens / elapsed_s if elapsed_s > 0 else 0.0,
            left_s=elapsed_s * (requests - completed) / completed if completed else None,
            points_done=len(self._done),
            points_total=len(self._points),
            search=self.search,
            last_verdicts=tuple(self._done),
        )
