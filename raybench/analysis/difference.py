"""Is one number better than another? Direction, noise floor and the words for what cannot be said. Pure.

The one place that knows for each metric whether more or less is better, and that calls two values different.
Used by the comparison of runs, the crossovers and the insights. Runs wherever tables are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from raybench.analysis.points import Point, has_numbers, is_boundary

#: Two single runs that differ by no more than this are not called different.
NOISE_FLOOR_PERCENT = 3.0


class Verdict(StrEnum):
    """What is said of B against A. `flipped` is what is said of A against B."""

    BETTER = "better"
    WORSE = "worse"
    NO_CLEAR_DIFFERENCE = "no clear difference"
    NO_BASELINE = "no baseline"  # A has no value
    NO_VALUE = "no value"  # B has none
    NOT_KNOWN = "not known"  # neither has one
    NO_CLAIM = "no claim"  # there is a difference, but the environment drifted

    @property
    def flipped(self) -> Verdict:
        return _FLIPPED.get(self, self)


#: By who is ahead, as `leader` says.
_VERDICTS = {-1: Verdict.WORSE, 0: Verdict.NO_CLEAR_DIFFERENCE, 1: Verdict.BETTER}

_FLIPPED = {
    Verdict.BETTER: Verdict.WORSE,
    Verdict.WORSE: Verdict.BETTER,
    Verdict.NO_BASELINE: Verdict.NO_VALUE,
    Verdict.NO_VALUE: Verdict.NO_BASELINE,
}

_LATENCIES = ("ttft_ms", "ttft_scheduled_ms", "tpot_ms", "e2e_ms", "chunk_gap_ms")
_MORE_IS_BETTER = (
    "input_tokens_per_s",
    "output_tokens_per_s",
    "decode_tokens_per_s",
    "requests_per_s",
    "input_tokens_per_s_steady",
    "output_tokens_per_s_steady",
)
_LESS_IS_BETTER = (
    *(f"{name}_{part}" for name in _LATENCIES for part in ("mean", "p50", "p95", "p99", "max")),
    "ttft_ms_p95_steady",
    "tpot_ms_p95_steady",
    "preemptions",
    "requests_failed",
    "failure_share",
    "failed_output_tokens",
)

#: Every column of points.parquet that can be judged: 1 where more is better, -1 where less is. A column that is
#: not here (an accept length, a wall time, a memory peak) describes a run and is neither good nor bad.
DIRECTIONS: Mapping[str, int] = dict.fromkeys(_MORE_IS_BETTER, 1) | dict.fromkeys(_LESS_IS_BETTER, -1)

#: What arms are compared by: throughputs and the latencies that a user feels.
MAIN_METRICS = ("input_tokens_per_s", "output_tokens_per_s", "ttft_ms_p95", "tpot_ms_p95")

#: What a comparison shows where nobody asks for more.
HEADLINE_METRICS = (*MAIN_METRICS, "preemptions")

#: Metrics that say nothing of a boundary point.
_NEEDS_DECODE = ("output_tokens_per_s", "decode_tokens_per_s", "tpot_ms", "chunk_gap_ms")


@dataclass(frozen=True)
class Difference:
    """B against A in one metric, in the metric's own unit.

    percent: (B - A) / A x 100; None where it is not defined (`from_zero`, or a value that is not known).
    floor_percent: the noise floor that the verdict was made with. overlap: whether the intervals of A and B
    overlap, which alone makes the difference not clear; False where either has none.
    """

    metric: str
    a: float | None
    b: float | None
    percent: float | None
    verdict: Verdict
    floor_percent: float
    overlap: bool = False

    @property
    def from_zero(self) -> bool:
        """A is zero and B is not: there is a difference, and no percentage of it."""
        return self.a == 0 and bool(self.b)


def value_of(point: Point, metric: str) -> float | None:
    """A point's value of a metric; None where it has no numbers that count, or the metric says nothing."""
    if not has_numbers(point):
        return None
    if is_boundary(point) and metric.startswith(_NEEDS_DECODE):
        return None
    return point.get(metric)


def is_clear(a: float, b: float, floor_percent: float) -> bool:
    """Whether two values differ by more than the floor, against the larger of the two in size.

    Against the larger, so that the answer is the same for (a, b) and (b, a), and so that either way of
    writing the percentage is over the floor.
    """
    return abs(b - a) > floor_percent / 100 * max(abs(a), abs(b))


def difference(
    metric: str,
    a: float | None,
    b: float | None,
    floor_percent: float = NOISE_FLOOR_PERCENT,
    *,
    overlap: bool = False,
) -> Difference:
    """What can be said of B against A. Unknown is never taken for zero (case O-K1)."""
    percent = None
    if a is not None and b is not None:
        percent = (b - a) / abs(a) * 100 if a else 0.0 if not b else None
        verdict = _VERDICTS[0 if overlap else leader(metric, a, b, floor_percent)]
    elif a is None and b is None:
        verdict = Verdict.NOT_KNOWN
    else:
        verdict = Verdict.NO_BASELINE if a is None else Verdict.NO_VALUE
    return Difference(metric, a, b, percent, verdict, floor_percent, overlap)


def leader(metric: str, a: float, b: float, floor_percent: float) -> int:
    """-1 where A is clearly ahead, +1 where B is, 0 where there is no clear difference."""
    if not is_clear(a, b, floor_percent):
        return 0
    return 1 if (b - a) * DIRECTIONS[metric] > 0 else -1


def advantage(a: float, b: float) -> float | None:
    """How many times the better value is better: 3.0 for 49.6 and 16.7 tok/s, or 10 and 30 ms. None of a zero."""
    return max(a, b) / min(a, b) if min(a, b) else None


def fastest(points: Sequence[Point]) -> tuple[str, Point] | None:
    """The metric and the point of the highest output throughput; of input throughput where none has the other."""
    for metric in ("output_tokens_per_s", "input_tokens_per_s"):
        known = [point for point in points if value_of(point, metric) is not None]
        if known:
            return metric, max(known, key=lambda point: float(point[metric]))
    return None
