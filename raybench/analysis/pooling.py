"""The same point measured in several runs: one value, its interval, and the noise that repeats show. Pure.

The rule: each run's own value (its rate, its own percentile) is one observation; requests of different runs
are never thrown into one percentile. The pooled value is the mean of the observations that count. Repeats
also say how much the same thing differs from itself: that, and not a guess, is then the noise floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from raybench.analysis.difference import NOISE_FLOOR_PERCENT, value_of
from raybench.analysis.intervals import REPEATS_MIN, Interval, mean_interval
from raybench.analysis.point_metrics import interval_columns


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


def pool(points: Sequence[Mapping[str, Any]], metric: str) -> Pooled:
    """One metric of the repeats of a point (rows of points.parquet)."""
    told = [(point, value) for point in points if (value := value_of(point, metric)) is not None]
    known = tuple(value for _, value in told)
    if not known:
        return Pooled((), None, None, None)
    if len(known) == 1:
        return Pooled(known, known[0], _own_interval(told[0][0], metric), None)
    size = fmean(abs(value) for value in known)
    spread = (max(known) - min(known)) / size * 100 if size else 0.0
    return Pooled(known, fmean(known), mean_interval(known), spread)


def _own_interval(point: Mapping[str, Any], metric: str) -> Interval | None:
    low, high = (point.get(name) for name in interval_columns(metric))
    return None if low is None or high is None else Interval(low, high)


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
