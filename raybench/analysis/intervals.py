"""Confidence intervals that need no shape of a distribution, and the refusal to give one of too little. Pure.

A percentile's interval is between two values that were seen (order statistics), a share's is Wilson's. A rate's is
Student's t over repeats of a whole point, or over equal slices of a steady state. None: n does not allow one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

import numpy as np

from raybench.analysis.stats import Floats, Stamps, Values

#: Of every interval that raybench shows.
CONFIDENCE_PERCENT = 95

#: Fewer means tell too little of their own spread.
REPEATS_MIN = 3

#: Of fewer requests one more or less moves a share by over 5 points, and a P95 is the maximum.
SHARE_N_MIN = 20

_TAIL = (1 - CONFIDENCE_PERCENT / 100) / 2
_Z = NormalDist().inv_cdf(1 - _TAIL)
#: Student's t for 95 %, two-sided, by degrees of freedom from 1 on; above, the expansion of `student_t`.
_STUDENT_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


@dataclass(frozen=True)
class Interval:
    """[low, high] in the unit of the values."""

    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high


def percentile_interval(values: Values, percent: int) -> Interval | None:
    """The 95 % interval of a percentile, between the two order statistics that enclose it.

    The number of values below the true percentile is binomial (n, p), whatever the distribution is. The ranks
    are those that leave at most 2.5 % on each side: H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed.,
    section 7.1. None where n has no such ranks: below 72 values for P95, below 6 for P50, below 368 for P99.
    """
    ranks = _ranks(len(values), percent)
    if ranks is None:
        return None
    low, high = ranks
    ordered = np.partition(np.asarray(values, dtype=np.float64), [low - 1, high - 1])
    return Interval(float(ordered[low - 1]), float(ordered[high - 1]))


def _ranks(n: int, percent: int) -> tuple[int, int] | None:
    """The 1-based ranks (low, high) with P(B < low) <= 2.5 % and P(B >= high) <= 2.5 %, B binomial (n, p)."""
    if n == 0 or not 1 <= percent < 100:
        return None
    cumulative = _binomial_cumulative(n, percent / 100)
    low = int(np.searchsorted(cumulative, _TAIL, side="right"))
    high = int(np.searchsorted(cumulative, 1 - _TAIL, side="left")) + 1
    return (low, high) if low >= 1 and high <= n else None


def _binomial_cumulative(n: int, p: float) -> Floats:
    """P(B <= k) for k = 0..n, by logarithms, so that no factorial overflows."""
    k = np.arange(n + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    log_choices = log_factorial[n] - log_factorial - log_factorial[::-1]
    return np.cumsum(np.exp(log_choices + k * math.log(p) + (n - k) * math.log1p(-p)))


def share_interval(successes: int, n: int) -> Interval | None:
    """The 95 % score interval of a share (Wilson 1927, J. Am. Stat. Assoc. 22, p. 209). None for n < 20.

    It stays within 0 and 1 and keeps its width where all or none succeed.
    """
    if n < SHARE_N_MIN:
        return None
    share, z2 = successes / n, _Z * _Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Interval(max(middle - half, 0.0), min(middle + half, 1.0))


def mean_interval(means: Sequence[float]) -> Interval | None:
    """The 95 % interval of the mean of independent repeats, by Student's t. None for fewer than three."""
    n = len(means)
    if n < REPEATS_MIN:
        return None
    half = student_t(n - 1) * stdev(means) / math.sqrt(n)
    middle = fmean(means)
    return Interval(middle - half, middle + half)


def student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's t.

    From 11 degrees of freedom on by the expansion around the normal quantile, right to 0.0003:
    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    if degrees < 1:
        raise ValueError(f"at least one degree of freedom is needed, got {degrees}")
    if degrees <= len(_STUDENT_T):
        return _STUDENT_T[degrees - 1]
    z = _Z
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


#: Slices into which a steady state is cut for the interval of its rate.
SLICES = 10


def rate_interval(
    stamps_ns: Stamps,
    amounts: Stamps,
    window_ns: tuple[int, int],
    correlated_ns: int,
) -> Interval | None:
    """The 95 % interval of a rate a second over a steady state, by batch means (A. M. Law, Simulation
    Modeling and Analysis, 5th ed., section 9.5.3): ten equal slices, their ten rates, Student's t.

    stamps_ns, amounts: what came when. correlated_ns: how long what happens now shapes what comes (the life
    of a request). None where a slice would be shorter than that, for then neighbouring slices are no repeats.
    """
    start, end = window_ns
    if end - start < SLICES * max(correlated_ns, 1):
        return None
    edges = np.linspace(start, end, SLICES + 1)
    came, _ = np.histogram(stamps_ns, bins=edges, weights=amounts)
    return mean_interval([float(amount) for amount in came / ((end - start) / 1e9 / SLICES)])
