"""Scenario + limits -> the points to measure, the points that cannot be, and the corpus windows needed.

Pure. Nothing is contacted: limits are what the scenario declares, what a simulated profile is known to
hold, and what a caller has read from the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from raybench.scenario.levels import Level
from raybench.scenario.limits import active_limit, declared_limits, merge_limits, queueing, structural_skip
from raybench.scenario.schema import Limits, Scenario, Workload


@dataclass(frozen=True)
class Point:
    """One arm x workload x level: a row of every table, measured or skipped.

    Exactly one of concurrency, rate_per_s and trace_speed is given. requests and prewarm_requests are those of
    one attempt. active_limit and queueing are None when the target's limits are not known, queueing also for
    an open loop. skip_reason: why the target cannot hold it; None for a point to measure.
    """

    point_id: str
    arm: str
    workload: str
    concurrency: int | None
    requests: int
    input_tokens: int
    output_tokens: int
    active_limit: int | None
    queueing: bool | None
    skip_reason: str | None
    prewarm_requests: int = 0
    rate_per_s: float | None = None
    trace_speed: float | None = None

    @property
    def level(self) -> Level:
        return Level(self.concurrency, self.rate_per_s, self.trace_speed)


@dataclass(frozen=True)
class Plan:
    """All points in the order of measurement, skips included.

    windows: arm -> input tokens -> corpus windows (requests with different text) that the arm's server
    is sent if every point needs all its attempts, prewarm included. Arms may use the same text.
    """

    points: tuple[Point, ...]
    windows: Mapping[str, Mapping[int, int]]

    @property
    def measured(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.skip_reason is None)

    @property
    def skipped(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.skip_reason is not None)


def point_id(arm: str, workload: str, level: Level) -> str:
    """`arm/workload/c64`: the point's name in every file, and its folder under `parts/`."""
    return f"{arm}/{workload}/{level.name}"


def make_plan(scenario: Scenario, limits: Mapping[str, Limits] | None = None) -> Plan:
    """Arm by arm, workloads and levels in the order of the file.

    limits: what was read from the engines, by arm; it wins over what the scenario declares.
    """
    points: list[Point] = []
    windows: dict[str, dict[int, int]] = {}
    for arm, settings in scenario.arms.items():
        known = merge_limits(declared_limits(settings), (limits or {}).get(arm, Limits()))
        of_arm = [
            make_point(scenario, arm, workload, level, known)
            for workload in scenario.points_of(arm)
            for level in workload.levels
        ]
        points += of_arm
        windows[arm] = _windows(of_arm, scenario.guards.attempts_max)
    return Plan(tuple(points), windows)


def make_point(scenario: Scenario, arm: str, workload: Workload, level: Level, limits: Limits) -> Point:
    """limits: all that is known of the arm, declared and read."""
    return Point(
        point_id=point_id(arm, workload.name, level),
        arm=arm,
        workload=workload.name,
        concurrency=level.concurrency,
        rate_per_s=level.rate_per_s,
        trace_speed=level.trace_speed,
        requests=workload.request_count(level),
        input_tokens=workload.input_tokens,
        output_tokens=workload.output_tokens,
        active_limit=active_limit(limits, workload.input_tokens, workload.output_tokens),
        queueing=queueing(limits, workload, level.concurrency),
        skip_reason=structural_skip(limits, workload, level.concurrency),
        prewarm_requests=scenario.prewarm_requests_of(workload),
    )


def _windows(points: list[Point], attempts: int) -> dict[int, int]:
    needed: Counter[int] = Counter()
    for point in points:
        if point.skip_reason is None:
            needed[point.input_tokens] += attempts * (point.requests + point.prewarm_requests)
    return dict(needed)
