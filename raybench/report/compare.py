"""`raybench compare`: B against A, as one result that terminal, Markdown and JSON show. Needs no Ray."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from raybench.analysis.comparison import PointComparison, compare
from raybench.analysis.conditions import Condition
from raybench.analysis.crossover import Crossover, Series, crossovers
from raybench.analysis.difference import NOISE_FLOOR_PERCENT, Verdict
from raybench.analysis.stats import PERCENTILE_METHOD
from raybench.report.compare_source import ArmOfRun, Pair, differing_conditions, pair_arms


@dataclass(frozen=True)
class PairComparison:
    """One arm of B against one of A. runs: the run directories of each side, repeats behind the first.

    uneven: conditions in which the repeats of one side differ among themselves.
    """

    arm_a: str
    arm_b: str
    runs_a: tuple[str, ...]
    runs_b: tuple[str, ...]
    conditions: list[Condition]
    uneven: list[str]
    points: list[PointComparison]
    crossovers: list[Crossover]

    @property
    def names(self) -> tuple[str, str]:
        """What the two are called in sentences: by their arms, or A and B where that is one name."""
        return ("A", "B") if self.arm_a == self.arm_b else (self.arm_a, self.arm_b)

    def count(self, verdict: Verdict) -> int:
        return sum(one.verdict is verdict for point in self.points for one in point.differences)

    @property
    def compared(self) -> list[PointComparison]:
        return [point for point in self.points if point.not_compared is None]


@dataclass(frozen=True)
class Comparison:
    """All pairs. unmatched_a, unmatched_b: arms of one side only."""

    metrics: tuple[str, ...]
    floor_percent: float
    pairs: list[PairComparison]
    unmatched_a: list[str]
    unmatched_b: list[str]

    @property
    def regressed(self) -> bool:
        return any(point.regressed for pair in self.pairs for point in pair.points)


def compare_runs(
    a: Sequence[str],
    b: Sequence[str],
    metrics: Sequence[str],
    floor_percent: float = NOISE_FLOOR_PERCENT,
    *,
    ignore_cache_state: bool = False,
) -> Comparison:
    """a, b: each a run directory (`RUN` or `RUN:ARM`), then repeats of it.

    Raises RunDirectoryError and ConfigError for what cannot be read or does not meet.
    """
    pairs, only_a, only_b = pair_arms(a, b)
    compared = [_compared(pair, metrics, floor_percent, ignore_cache_state) for pair in pairs]
    return Comparison(tuple(metrics), floor_percent, compared, only_a, only_b)


def _compared(
    pair: Pair, metrics: Sequence[str], floor_percent: float, ignore_cache_state: bool
) -> PairComparison:
    a, b = pair.sides
    points = compare(a, b, metrics, floor_percent, ignore_cache_state=ignore_cache_state)
    return PairComparison(
        arm_a=pair.a[0].arm,
        arm_b=pair.b[0].arm,
        runs_a=tuple(one.run for one in pair.a),
        runs_b=tuple(one.run for one in pair.b),
        conditions=differing_conditions(pair.a[0], pair.b[0]),
        uneven=[*_uneven(pair.a), *_uneven(pair.b)],
        points=points,
        crossovers=_crossovers((a.name, b.name), points, metrics),
    )


def _uneven(repeats: Sequence[ArmOfRun]) -> list[str]:
    return [
        f"{condition.name} ({repeats[0].run}: {condition.a}, {other.run}: {condition.b})"
        for other in repeats[1:]
        for condition in differing_conditions(repeats[0], other)
        if condition.known
    ]


def _crossovers(
    names: tuple[str, str], points: Sequence[PointComparison], metrics: Sequence[str]
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


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """The comparison for programs, full precision: `verdict` is what is said of B."""
    return {
        "noise_floor_percent": comparison.floor_percent,
        "percentile_method": PERCENTILE_METHOD,
        "regressed": comparison.regressed,
        "unmatched_arms": {"a": comparison.unmatched_a, "b": comparison.unmatched_b},
        "pairs": [
            {
                "a": {"arm": pair.arm_a, "runs": pair.runs_a},
                "b": {"arm": pair.arm_b, "runs": pair.runs_b},
                "conditions": [asdict(condition) for condition in pair.conditions],
                "uneven_repeats": pair.uneven,
                "points": [asdict(point) for point in pair.points],
                "crossovers": [asdict(crossover) for crossover in pair.crossovers],
            }
            for pair in comparison.pairs
        ],
    }
