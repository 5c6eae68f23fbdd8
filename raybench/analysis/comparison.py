"""B against A, point by point: which points can be compared, and what is then said of each metric. Pure.

A side is one arm of one or of several runs (repeats). Points of the same workload and level meet. A point
that cannot be compared stays in the result with the reason, never as a zero and never dropped (cases O-K1,
O-K2). Sides that change places flip every verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from raybench.analysis.crossover import Crossover, Series, crossovers
from raybench.analysis.difference import (
    HEADLINE_METRICS,
    NOISE_FLOOR_PERCENT,
    Difference,
    Verdict,
    difference,
)
from raybench.analysis.points import Point, has_numbers, id_parts
from raybench.analysis.pooling import Pooled, noise_floor_percent, overlap, pool

#: A point whose highest known hit rate is not above this is cold, as the guards have it by default.
COLD_HIT_RATE_MAX = 0.01


class NotCompared(StrEnum):
    """Why a point of one side or both has no comparison."""

    ONLY_IN_A = "only in A"
    ONLY_IN_B = "only in B"
    NOT_VALID_IN_A = "not valid in A"
    NOT_VALID_IN_B = "not valid in B"
    NOT_VALID_IN_BOTH = "not valid in both"
    OTHER_SHAPE = "other shape"
    OTHER_CACHE_STATE = "some cold, some not"


_FLIPPED = {
    NotCompared.ONLY_IN_A: NotCompared.ONLY_IN_B,
    NotCompared.ONLY_IN_B: NotCompared.ONLY_IN_A,
    NotCompared.NOT_VALID_IN_A: NotCompared.NOT_VALID_IN_B,
    NotCompared.NOT_VALID_IN_B: NotCompared.NOT_VALID_IN_A,
}


def flipped(reason: NotCompared | None) -> NotCompared | None:
    """The reason with the sides' places changed."""
    return None if reason is None else _FLIPPED.get(reason, reason)


@dataclass(frozen=True)
class Side:
    """One arm, as one or several runs measured it. name: what tables call it. repeats: each run's points."""

    name: str
    repeats: tuple[Sequence[Point], ...]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """(workload, level) of every point of any repeat, in the order of the plans."""
        return list(dict.fromkeys(key_of(point) for points in self.repeats for point in points))

    def points(self, key: tuple[str, str]) -> list[Point]:
        return [point for points in self.repeats for point in points if key_of(point) == key]


def key_of(point: Point) -> tuple[str, str]:
    """(workload, level), where the level is the last part of the point's id: `c64`."""
    return point["workload"], id_parts(point["point_id"])[2]


@dataclass(frozen=True)
class PointComparison:
    """One workload and level on both sides.

    not_compared: None for a compared point, else why there are no differences; detail says more (the reasons
    of a void point, the two shapes, the two hit rates). samples: the sizes of the samples of TTFT, summed over
    the repeats. attempts: which attempt of each side's first run counts, 1 but for a retest inside the run.
    pooled: per metric the observations of A and B.
    """

    workload: str
    level: str
    concurrency: int | None
    not_compared: NotCompared | None
    detail: str
    differences: tuple[Difference, ...]
    pooled: Mapping[str, tuple[Pooled, Pooled]]
    repeats: tuple[int, int]
    samples: tuple[int | None, int | None]
    attempts: tuple[int | None, int | None]

    @property
    def regressed(self) -> bool:
        """Whether any metric of B is clearly worse."""
        return any(one.verdict is Verdict.WORSE for one in self.differences)


def compare(
    a: Side,
    b: Side,
    metrics: Sequence[str] = HEADLINE_METRICS,
    floor_percent: float = NOISE_FLOOR_PERCENT,
    *,
    ignore_cache_state: bool = False,
) -> list[PointComparison]:
    """Every point of either side, in A's order, then those only in B.

    floor_percent: for points of single runs; repeats bring their own (`pooling.noise_floor_percent`).
    """
    keys = list(dict.fromkeys([*a.keys, *b.keys]))
    return [
        _compared(key, a.points(key), b.points(key), metrics, floor_percent, ignore_cache_state) for key in keys
    ]


def _compared(
    key: tuple[str, str],
    in_a: Sequence[Point],
    in_b: Sequence[Point],
    metrics: Sequence[str],
    floor_percent: float,
    ignore_cache_state: bool,
) -> PointComparison:
    valid_a, valid_b = ([point for point in points if has_numbers(point)] for points in (in_a, in_b))
    reason, detail = _obstacle(in_a, in_b, valid_a, valid_b, ignore_cache_state)
    pooled = {}
    if reason is None:
        pooled = {name: (pool(valid_a, name), pool(valid_b, name)) for name in metrics}
    differences = [_difference(name, *both, floor_percent) for name, both in pooled.items()]
    return PointComparison(
        workload=key[0],
        level=key[1],
        concurrency=(in_a or in_b)[0]["concurrency"],
        not_compared=reason,
        detail=detail,
        differences=tuple(one for one in differences if one.verdict is not Verdict.NOT_KNOWN),
        pooled=pooled,
        repeats=(len(valid_a), len(valid_b)),
        samples=(_samples(valid_a), _samples(valid_b)),
        attempts=(_attempt(valid_a), _attempt(valid_b)),
    )


def _difference(metric: str, a: Pooled, b: Pooled, floor_percent: float) -> Difference:
    floor = noise_floor_percent(a, b, floor_percent)
    return difference(metric, a.value, b.value, floor, overlap=overlap(a, b))


def _obstacle(
    in_a: Sequence[Point],
    in_b: Sequence[Point],
    valid_a: Sequence[Point],
    valid_b: Sequence[Point],
    ignore_cache_state: bool,
) -> tuple[NotCompared | None, str]:
    """Why the two cannot be compared, and more about it; (None, "") where they can."""
    if not in_b:
        return NotCompared.ONLY_IN_A, ""
    if not in_a:
        return NotCompared.ONLY_IN_B, ""
    if not valid_a and not valid_b:
        return NotCompared.NOT_VALID_IN_BOTH, f"{_reasons(in_a)} | {_reasons(in_b)}"
    if not valid_a:
        return NotCompared.NOT_VALID_IN_A, _reasons(in_a)
    if not valid_b:
        return NotCompared.NOT_VALID_IN_B, _reasons(in_b)
    if len({shape_of(point) for point in (*valid_a, *valid_b)}) > 1:
        return NotCompared.OTHER_SHAPE, f"{_shapes(valid_a)} | {_shapes(valid_b)}"
    states = {is_cold(point) for point in (*valid_a, *valid_b)} - {None}
    if len(states) > 1 and not ignore_cache_state:
        return NotCompared.OTHER_CACHE_STATE, f"hit rate {_rates(valid_a)} | {_rates(valid_b)}"
    return None, ""


def crossovers_of(
    points: Sequence[PointComparison], names: tuple[str, str], metrics: Sequence[str]
) -> list[Crossover]:
    """Of each workload and metric, over the levels that both sides have valid, by the floors of the verdicts."""
    found = []
    for workload in dict.fromkeys(point.workload for point in points):
        own = [point for point in points if point.workload == workload]
        for metric in metrics:
            series, floors = _series(own, metric)
            found += crossovers(workload, metric, names, series, floors)
    return found


def _series(points: Sequence[PointComparison], metric: str) -> tuple[tuple[Series, Series], Series]:
    """By concurrency the values of A and of B where both are known, and the floor between them: infinite where the
    intervals overlap."""
    known = {
        point.concurrency: one
        for point in points
        for one in point.differences
        if one.metric == metric and point.concurrency is not None
    }
    a = {level: one.a for level, one in known.items() if one.a is not None and one.b is not None}
    b = {level: one.b for level, one in known.items() if one.a is not None and one.b is not None}
    return (a, b), {level: math.inf if one.overlap else one.floor_percent for level, one in known.items()}


def hit_rate(point: Point) -> float | None:
    """The highest hit rate that any source told of the point; None where none did."""
    rates = [*(point.get("hit_rates") or {}).values(), point.get("prefix_hit_rate")]
    return max((rate for rate in rates if rate is not None), default=None)


def is_cold(point: Point) -> bool | None:
    """Whether the point was measured on cold caches; None where nobody knows."""
    rate = hit_rate(point)
    return None if rate is None else rate <= COLD_HIT_RATE_MAX


def _reasons(points: Iterable[Point]) -> str:
    """`void: not cold`, `not measured`: the verdict, and the reasons that say more than it does."""
    told = []
    for point in points:
        word = point["verdict"] or "not measured"
        reasons = [reason for reason in point["reasons"] or [] if reason != word]
        told.append(f"{word}: {', '.join(reasons)}" if reasons else word)
    return "; ".join(dict.fromkeys(told))


def shape_of(point: Point) -> tuple[int | None, int | None]:
    return point["input_tokens"], point["output_tokens"]


def _shapes(points: Iterable[Point]) -> str:
    return ", ".join(sorted({f"{size_in} -> {size_out}" for size_in, size_out in map(shape_of, points)}))


def _rates(points: Sequence[Point]) -> str:
    known = [rate for point in points if (rate := hit_rate(point)) is not None]
    return ", ".join(f"{rate:.4f}" for rate in sorted(set(known)))


def _samples(points: Sequence[Point]) -> int | None:
    known = [point["ttft_ms_n"] for point in points if point.get("ttft_ms_n") is not None]
    return sum(known) if known else None


def _attempt(points: Sequence[Point]) -> int | None:
    return points[0]["final_attempt"] if points else None
