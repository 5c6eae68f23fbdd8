"""Scenario + limits -> the points to measure, the points that cannot be, and the corpus windows needed.

Pure. Nothing is contacted: limits are what the scenario declares, what a simulated profile is known to
hold, and what a caller has read from the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raybench.scenario.levels import Level
from raybench.scenario.limits import active_limit, declared_limits, merge_limits, queueing, structural_skip
from raybench.scenario.schema import Limits, Scenario
from raybench.scenario.search import Search, most_levels
from raybench.scenario.workload import Workload


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
    prompt_set: bool = False

    @property
    def level(self) -> Level:
        return Level(self.concurrency, self.rate_per_s, self.trace_speed)


@dataclass(frozen=True)
class PlannedSearch:
    """One arm x workload whose levels a search finds.

    search: with its maximum brought down to what the target can hold; bounded_by says why, where that is below
    the scenario's. lowest, highest: the points at its bounds. probes: the most points of a search that neither a
    void point nor noise disturbs; 0 when the target cannot hold the lowest.
    """

    arm: str
    workload: str
    search: Search
    lowest: Point
    highest: Point
    bounded_by: str | None
    probes: int


@dataclass(frozen=True)
class Plan:
    """All points in the order of measurement, skips included; those of a search as far as they are known.

    windows: arm -> input tokens -> corpus windows (requests with different text) that the arm's server
    is sent if every point needs all its attempts, prewarm included. Arms may use the same text.
    """

    points: tuple[Point, ...]
    searches: tuple[PlannedSearch, ...]
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


def make_plan(
    scenario: Scenario,
    limits: Mapping[str, Limits] | None = None,
    probed: Mapping[tuple[str, str], Sequence[Level]] | None = None,
) -> Plan:
    """Arm by arm, workloads and levels in the order of the file.

    limits: what was read from the engines, by arm; it wins over what the scenario declares. probed: the levels
    that searches have come to so far, by (arm, workload).
    """
    points: list[Point] = []
    searches: list[PlannedSearch] = []
    windows: dict[str, Counter[int]] = {}
    for arm, settings in scenario.arms.items():
        known = merge_limits(declared_limits(settings), (limits or {}).get(arm, Limits()))
        windows[arm] = Counter()
        for workload in scenario.workloads_of(arm):
            levels = workload.levels or (probed or {}).get((arm, workload.name), ())
            own = [make_point(scenario, arm, workload, level, known) for level in levels]
            points += own
            to_send = own
            if workload.search is not None:
                searches.append(_plan_search(scenario, arm, workload, workload.search.question, known))
                to_send = _most_points(scenario, workload, searches[-1], known)
            for point in to_send:
                if point.skip_reason is None and workload.prompt_set is None:
                    once = point.requests + point.prewarm_requests
                    windows[arm][point.input_tokens] += scenario.guards.attempts_max * once
    return Plan(tuple(points), tuple(searches), {arm: dict(needed) for arm, needed in windows.items()})


def _plan_search(
    scenario: Scenario, arm: str, workload: Workload, search: Search, limits: Limits
) -> PlannedSearch:
    """The search with its maximum brought down to what the target can hold."""

    def at(value: float) -> Point:
        return make_point(scenario, arm, workload, search.level(value), limits)

    lowest, highest, bounded_by = at(search.minimum), at(search.maximum), None
    if lowest.skip_reason is None and highest.skip_reason is not None:
        held, not_held = search.minimum, search.maximum
        while not_held - held > 1:
            middle = (held + not_held) // 2
            held, not_held = (middle, not_held) if at(middle).skip_reason is None else (held, middle)
        highest, bounded_by = at(held), at(not_held).skip_reason
    held_search = replace(search, maximum=highest.level.value)
    probes = 0 if lowest.skip_reason is not None else len(most_levels(held_search))
    return PlannedSearch(arm, workload.name, held_search, lowest, highest, bounded_by, probes)


def _most_points(scenario: Scenario, workload: Workload, planned: PlannedSearch, limits: Limits) -> list[Point]:
    levels = (planned.search.level(value) for value in most_levels(planned.search))
    return [make_point(scenario, planned.arm, workload, level, limits) for level in levels]


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
        prompt_set=workload.prompt_set is not None,
    )
