"""What the points of one or several arms say, as numbers: who leads where, crossovers, saturation. Pure.

For the report: each insight is a frozen record without a sentence, which any language can put in words.
`insights(points)` takes rows of points.parquet (as `points.read_points` gives them), of one run or of several
put together, and returns one `Insights`. Points without numbers that count (void, skipped, not measured) are in
none of them. Only clear differences are told (`analysis/difference.py`).

Concurrency levels are whole numbers; points without one (an open loop) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from raybench.analysis.crossover import Crossover, crossovers
from raybench.analysis.difference import (
    DIRECTIONS,
    MAIN_METRICS,
    NOISE_FLOOR_PERCENT,
    advantage,
    fastest,
    is_clear,
    value_of,
)
from raybench.analysis.points import Point, has_numbers
from raybench.analysis.pooling import floor_between, lead_between, own_noise_percent


@dataclass(frozen=True)
class LevelLead:
    """At one level the value of the arm ahead and that of the next best, `other`, and how many times it is better.

    advantage is always 1 or more, for throughputs and latencies alike; None against a zero.
    """

    concurrency: int
    ahead: float
    behind: float
    other: str
    advantage: float | None


@dataclass(frozen=True)
class Lead:
    """`arm` is clearly ahead of every other in `metric` at these levels of a workload, in rising order."""

    workload: str
    metric: str
    arm: str
    levels: tuple[LevelLead, ...]

    @property
    def largest(self) -> LevelLead:
        return max(self.levels, key=lambda level: level.advantage or float("inf"))


@dataclass(frozen=True)
class Tie:
    """Levels at which no arm is clearly ahead in a metric; `arms`: the best one and those that are not behind it.

    all_arms: whether these are all that measured the levels. of_repeats: whether repeats of some level have a
    noise floor of their own.
    """

    workload: str
    metric: str
    arms: tuple[str, ...]
    all_arms: bool
    levels: tuple[int, ...]
    of_repeats: bool


class Growth(StrEnum):
    """What the output throughput does at the highest levels measured."""

    CLIMBING = "climbing"  # the last step up still gave clearly more
    PLATEAU = "plateau"  # the last step or steps gave no clear difference
    FALLING = "falling"  # clearly less than the best level


@dataclass(frozen=True)
class Trend:
    """Output throughput of an arm over the levels of a workload.

    best_at, best: the level of the highest value, and that value. last_at, last: the highest level measured.
    step_percent: change of the last step (from `before_at` to `last_at`), (last - before) / before x 100.
    plateau_from: the lowest level from which on no level differs clearly from the last; None but for a plateau.
    """

    workload: str
    arm: str
    growth: Growth
    best_at: int
    best: float
    before_at: int
    last_at: int
    last: float
    step_percent: float | None
    plateau_from: int | None


@dataclass(frozen=True)
class Peak:
    """The highest throughput of a workload over all arms, as `difference.fastest` takes it."""

    workload: str
    metric: str
    arm: str
    concurrency: int
    value: float


@dataclass(frozen=True)
class QueueingPoint:
    """A level above the arm's active limit: so many requests wait inside the engine, and TTFT holds the wait."""

    workload: str
    arm: str
    concurrency: int
    waiting: int | None


@dataclass(frozen=True)
class TightestGpu:
    """The device of an arm with the least free memory under load, and where that was."""

    arm: str
    host: str
    gpu_index: int | None
    gpu_uuid: str
    headroom_min_bytes: int
    workload: str
    concurrency: int


@dataclass(frozen=True)
class Reach:
    """A workload that only `arm` could be measured on; `others`: the arms that skipped or voided all of it."""

    workload: str
    arm: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class Insights:
    """All of it, each list in the order of the plan. Empty lists where nothing can be said."""

    peaks: list[Peak]
    leads: list[Lead]
    ties: list[Tie]
    crossovers: list[Crossover]
    trends: list[Trend]
    queueing: list[QueueingPoint]
    tightest: list[TightestGpu]
    reaches: list[Reach]


def insights(points: Sequence[Point]) -> Insights:
    """Everything that the points say of their arms. Arms and workloads keep the order of the rows."""
    arms = list(dict.fromkeys(point["arm"] for point in points))
    valid = [point for point in points if has_numbers(point) and point["concurrency"] is not None]
    leads: list[Lead] = []
    ties: list[Tie] = []
    crossed: list[Crossover] = []
    trends: list[Trend] = []
    for workload in dict.fromkeys(point["workload"] for point in points):
        own = [point for point in valid if point["workload"] == workload]
        for metric in MAIN_METRICS:
            levels = list(_levels(own, metric))
            leads += _leads(workload, metric, arms, levels)
            ties += _ties(workload, metric, arms, levels)
            for pair in combinations(arms, 2):
                series = (_series(own, pair[0], metric), _series(own, pair[1], metric))
                crossed += crossovers(workload, metric, pair, series, _floors(own, pair, metric))
        trends += _trends(workload, arms, own)
    return Insights(
        peaks=list(_peaks(valid)),
        leads=leads,
        ties=ties,
        crossovers=crossed,
        trends=trends,
        queueing=[_queueing(point) for point in valid if point["queueing"]],
        tightest=list(_tightest(arms, valid)),
        reaches=list(_reaches(points)),
    )


def _series(points: Iterable[Point], arm: str, metric: str) -> dict[int, float]:
    """By level, in rising order, the known values of one arm."""
    own = [(point["concurrency"], value_of(point, metric)) for point in points if point["arm"] == arm]
    return dict(sorted((level, value) for level, value in own if value is not None))


def _floors(points: Sequence[Point], arms: tuple[str, str], metric: str) -> dict[int, float]:
    """By level that both arms have, the noise floor between them."""
    a, b = ({point["concurrency"]: point for point in points if point["arm"] == arm} for arm in arms)
    return {level: floor_between(a[level], b[level], metric) for level in a.keys() & b.keys()}


@dataclass(frozen=True)
class _Level:
    """The points of two arms or more at one level, the best first.

    front: the best, and those that it is not clearly ahead of.
    """

    concurrency: int
    points: Sequence[Point]
    front: Sequence[Point]

    def floor_of_repeats(self, metric: str) -> bool:
        """Whether what is in front lies within another floor than that of single runs."""
        best, *others = self.front
        return any(floor_between(best, other, metric) != NOISE_FLOOR_PERCENT for other in others)


def _levels(points: Sequence[Point], metric: str) -> Iterator[_Level]:
    """In rising order, those at which there is something to compare."""
    known = [point for point in points if value_of(point, metric) is not None]
    known.sort(key=lambda point: -DIRECTIONS[metric] * float(point[metric]))
    for level in sorted({point["concurrency"] for point in known}):
        own = [point for point in known if point["concurrency"] == level]
        if len(own) > 1:
            yield _Level(level, own, [point for point in own if lead_between(own[0], point, metric) == 0])


def _leads(workload: str, metric: str, arms: Sequence[str], levels: Sequence[_Level]) -> list[Lead]:
    found = []
    for arm in arms:
        ahead = tuple(
            _level_lead(level, metric) for level in levels if [point["arm"] for point in level.front] == [arm]
        )
        if ahead:
            found.append(Lead(workload, metric, arm, ahead))
    return found


def _level_lead(level: _Level, metric: str) -> LevelLead:
    first, second = level.points[:2]
    ahead, behind = first[metric], second[metric]
    return LevelLead(level.concurrency, ahead, behind, second["arm"], advantage(ahead, behind))


def _ties(workload: str, metric: str, arms: Sequence[str], levels: Sequence[_Level]) -> list[Tie]:
    """Levels with the same arms in front are one."""
    groups: dict[tuple[tuple[str, ...], bool], list[_Level]] = {}
    for level in levels:
        if len(level.front) > 1:
            names = {point["arm"] for point in level.front}
            front = tuple(arm for arm in arms if arm in names)
            groups.setdefault((front, len(front) == len(level.points)), []).append(level)
    return [
        Tie(
            workload,
            metric,
            front,
            all_arms,
            tuple(level.concurrency for level in tied),
            any(level.floor_of_repeats(metric) for level in tied),
        )
        for (front, all_arms), tied in groups.items()
    ]


def _trends(workload: str, arms: Sequence[str], points: Sequence[Point]) -> list[Trend]:
    metric, found = "output_tokens_per_s", []
    for arm in arms:
        series = _series(points, arm, metric)
        if len(series) > 1:
            own = [point for point in points if point["arm"] == arm]
            floor = max(own_noise_percent(point, metric) for point in own)
            found.append(trend(workload, arm, series, floor))
    return found


def trend(workload: str, arm: str, series: Mapping[int, float], floor_percent: float) -> Trend:
    """How the output throughput goes over its levels, of which there are at least two."""
    levels = sorted(series)
    *_, before_at, last_at = levels
    last = series[last_at]
    best_at = max(levels, key=lambda level: series[level])
    plateau_from = last_at
    for level in reversed(levels):
        if is_clear(series[level], last, floor_percent):
            break
        plateau_from = level
    if is_clear(series[best_at], last, floor_percent):
        growth = Growth.FALLING
    else:
        growth = Growth.PLATEAU if plateau_from < last_at else Growth.CLIMBING
    before = series[before_at]
    return Trend(
        workload=workload,
        arm=arm,
        growth=growth,
        best_at=best_at,
        best=series[best_at],
        before_at=before_at,
        last_at=last_at,
        last=last,
        step_percent=(last - before) / before * 100 if before else None,
        plateau_from=plateau_from if growth is Growth.PLATEAU else None,
    )


def _peaks(valid: Sequence[Point]) -> Iterable[Peak]:
    for workload in dict.fromkeys(point["workload"] for point in valid):
        found = fastest([point for point in valid if point["workload"] == workload])
        if found is not None:
            metric, best = found
            yield Peak(workload, metric, best["arm"], best["concurrency"], best[metric])


def _queueing(point: Point) -> QueueingPoint:
    limit = point["active_limit"]
    return QueueingPoint(
        workload=point["workload"],
        arm=point["arm"],
        concurrency=point["concurrency"],
        waiting=None if limit is None else point["concurrency"] - limit,
    )


def _tightest(arms: Sequence[str], valid: Sequence[Point]) -> Iterable[TightestGpu]:
    for arm in arms:
        seen = [
            (gpu["headroom_min_bytes"], point, gpu)
            for point in valid
            if point["arm"] == arm
            for gpu in point["gpus"] or ()
            if gpu["headroom_min_bytes"] is not None
        ]
        if seen:
            headroom, point, gpu = min(seen, key=lambda one: one[0])
            yield TightestGpu(
                arm=arm,
                host=gpu["host"],
                gpu_index=gpu["gpu_index"],
                gpu_uuid=gpu["gpu_uuid"],
                headroom_min_bytes=headroom,
                workload=point["workload"],
                concurrency=point["concurrency"],
            )


def _reaches(points: Sequence[Point]) -> Iterable[Reach]:
    for workload in dict.fromkeys(point["workload"] for point in points):
        own = [point for point in points if point["workload"] == workload]
        tried = list(dict.fromkeys(point["arm"] for point in own))
        measured = {point["arm"] for point in own if has_numbers(point)}
        if len(measured) == 1 and len(tried) > 1:
            others = tuple(arm for arm in tried if arm not in measured)
            yield Reach(workload, measured.pop(), others)
