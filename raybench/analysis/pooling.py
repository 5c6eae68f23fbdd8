"""The same point measured in several runs: one value, its interval, and the noise that repeats show. Pure.

The rule: each run's own value (its rate, its own percentile) is one observation; requests of different runs
are never thrown into one percentile. The pooled value is the mean of the observations that count. Repeats
also say how much the same thing differs from itself: that, and not a guess, is then the noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from raybench.analysis.difference import DIRECTIONS, NOISE_FLOOR_PERCENT, leader, value_of
from raybench.analysis.intervals import REPEATS_MIN, Interval, mean_interval
from raybench.analysis.point_metrics import POINT_METRICS, interval_of, interval_row
from raybench.analysis.points import Point, has_numbers


@dataclass(frozen=True)
class Pooled:
    """Observations of one metric of one point, in the order of the runs; those not known are left out.

    value: their mean, None without any. interval: 95 %, by Student's t, from three repeats on; of a single
    run the one that its own requests give; None where neither can be had.
    spread_percent: (largest - smallest) / mean size x 100, None for fewer than two.
    """

    observations: tuple[float, ...]
    value: float | None
    interval: Interval | None
    spread_percent: float | None


def pool(points: Sequence[Point], metric: str) -> Pooled:
    """One metric of the repeats of a point (rows of points.parquet)."""
    told = [(point, value) for point in points if (value := value_of(point, metric)) is not None]
    known = tuple(value for _, value in told)
    if not known:
        return Pooled((), None, None, None)
    if len(known) == 1:
        return Pooled(known, known[0], interval_of(told[0][0], metric), None)
    size = fmean(abs(value) for value in known)
    spread = (max(known) - min(known)) / size * 100 if size else 0.0
    return Pooled(known, fmean(known), mean_interval(known), spread)


#: What is added up over the repeats, beside the numbers of samples; all other values are means of the runs' own.
_TOTALS = ("requests_planned", "requests", "requests_ok", "requests_failed", "preemptions", "attempts")


def pooled_point(repeats: Sequence[Point]) -> dict[str, Any]:
    """One row of the repeats of a point (rows of points.parquet, JSON decoded), of which some may not be valid.

    Columns that can be judged are means of the valid runs' own values, with their 95 % interval where there is
    one; counts and numbers of samples are totals, memory the highest peak and the least headroom. Other metrics
    are not known of several runs. `pooled` holds each metric's observations, `repeats` (valid runs, runs).
    """
    valid = [point for point in repeats if has_numbers(point)]
    first = (valid or repeats)[0]
    pooled = {metric: pool(valid, metric) for metric in DIRECTIONS}
    row = {name: None if name in POINT_METRICS else value for name, value in first.items()}
    for metric, one in pooled.items():
        row |= {metric: one.value, **interval_row(metric, one.interval)}
    samples = [name for name in POINT_METRICS if name.endswith("_n")]
    return row | {
        **{name: _over(sum, valid, name) for name in (*_TOTALS, *samples)},
        "gpu_memory_peak_bytes": _over(max, valid, "gpu_memory_peak_bytes"),
        "gpu_headroom_min_bytes": _over(min, valid, "gpu_headroom_min_bytes"),
        "gpus": [gpu for point in valid for gpu in point.get("gpus") or ()],
        "reasons": [reason for point in repeats for reason in point["reasons"] or ()],
        "queueing": any(point["queueing"] for point in repeats),
        "pooled": pooled,
        "repeats": (len(valid), len(repeats)),
    }


def _over(fold: Callable[[list[Any]], Any], points: Sequence[Point], name: str) -> Any:
    """Of the values that are known; None without any."""
    known = [point[name] for point in points if point.get(name) is not None]
    return fold(known) if known else None


def floor_between(a: Point, b: Point, metric: str) -> float:
    """The floor between two rows, each of one run or pooled. Infinite where the intervals overlap: then nothing is
    clear. Two single runs have the default."""
    if "pooled" not in a and "pooled" not in b:
        return NOISE_FLOOR_PERCENT
    sides = _side(a, metric), _side(b, metric)
    return math.inf if overlap(*sides) else noise_floor_percent(*sides)


def lead_between(a: Point, b: Point, metric: str) -> int:
    """-1 where row A is clearly ahead of row B, +1 where B is; 0 where neither is, or a value is not known."""
    value_a, value_b = value_of(a, metric), value_of(b, metric)
    if value_a is None or value_b is None:
        return 0
    return leader(metric, value_a, value_b, floor_between(a, b, metric))


def own_noise_percent(point: Point, metric: str) -> float:
    """The noise of a row, pooled or not."""
    return _noise_percent(_side(point, metric), NOISE_FLOOR_PERCENT)


def _side(point: Point, metric: str) -> Pooled:
    told: Pooled = point["pooled"][metric] if "pooled" in point else pool([point], metric)
    return told


def overlap(a: Pooled, b: Pooled) -> bool:
    """Whether the intervals of two sides overlap; False where either has none."""
    return a.interval is not None and b.interval is not None and a.interval.overlaps(b.interval)


def noise_floor_percent(a: Pooled, b: Pooled, default_percent: float = NOISE_FLOOR_PERCENT) -> float:
    """The floor below which A and B are not called different: the larger of the two sides' own noise.

    A side's noise is its spread where it has three repeats or more. With fewer it is the default, or the
    spread if that is larger: two runs that happen to agree prove no quiet machine.
    """
    return max(_noise_percent(side, default_percent) for side in (a, b))


def _noise_percent(side: Pooled, default_percent: float) -> float:
    if side.spread_percent is None:
        return default_percent
    if len(side.observations) >= REPEATS_MIN:
        return side.spread_percent
    return max(default_percent, side.spread_percent)
