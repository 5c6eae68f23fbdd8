"""An arm beside numbers that somebody else published: orders of magnitude, and no verdict. Pure.

Other hardware, another version, unknown settings: nothing here says better or worse. Points of the same
workload and level stand beside each other, and so do the two best points of a workload, since published
tables rarely have our levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raybench.analysis.comparison import key_of, shape_of
from raybench.analysis.difference import advantage, fastest, leader, value_of
from raybench.analysis.points import Point, has_numbers


@dataclass(frozen=True)
class Beside:
    """One metric of two points. factor: how many times the value that is ahead is better, 1 or more.

    ahead: `run`, `baseline`, or None where the two are equal. best: whether these are the two sides' best
    points, whatever their levels. shapes_differ: the prompts or answers are not of one length.
    """

    workload: str
    level_run: str
    level_baseline: str
    metric: str
    run: float
    baseline: float
    factor: float | None
    ahead: str | None
    best: bool
    shapes_differ: bool


def beside(run: Sequence[Point], baseline: Sequence[Point], metrics: Sequence[str]) -> list[Beside]:
    """By workload in the order of the baseline: equal levels first, then the best points where the run lacks
    the level of the baseline's best."""
    found: list[Beside] = []
    ours = [point for point in run if has_numbers(point)]
    for workload in dict.fromkeys(point["workload"] for point in baseline):
        own = [point for point in ours if point["workload"] == workload]
        theirs = [point for point in baseline if point["workload"] == workload and has_numbers(point)]
        for their in theirs:
            for our in own:
                if key_of(our) == key_of(their):
                    found += _metrics(our, their, metrics, best=False)
        best_run, best_baseline = fastest(own), fastest(theirs)
        if best_run and best_baseline and key_of(best_baseline[1]) not in map(key_of, own):
            found += _metrics(best_run[1], best_baseline[1], metrics, best=True)
    return found


def _metrics(our: Point, their: Point, metrics: Sequence[str], *, best: bool) -> Iterator[Beside]:
    for metric in metrics:
        run, baseline = value_of(our, metric), value_of(their, metric)
        if run is None or baseline is None:
            continue
        yield Beside(
            workload=our["workload"],
            level_run=key_of(our)[1],
            level_baseline=key_of(their)[1],
            metric=metric,
            run=run,
            baseline=baseline,
            factor=advantage(run, baseline),
            ahead={-1: "run", 0: None, 1: "baseline"}[leader(metric, run, baseline, floor_percent=0)],
            best=best,
            shapes_differ=shape_of(our) != shape_of(their),
        )
