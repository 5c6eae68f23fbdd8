"""Runs of one scenario as repeats: one row a point by the rule of `analysis.pooling`, and its spread. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from raybench.analysis.difference import MAIN_METRICS
from raybench.analysis.points import id_parts
from raybench.analysis.pooling import Pooled, pooled_point
from raybench.errors import ConfigError, ConfigProblem
from raybench.report import numbers
from raybench.report.document import Row, Table
from raybench.report.metric_words import shown
from raybench.report.points import Point, by_level, level
from raybench.report.source import ArmFacts, Source
from raybench.report.text import Text


def pool_repeats(source: Source) -> Source:
    """The points of runs of the same scenario (by its sha256) as one row each; what has no repeat stays as it is.

    Raises ConfigError where no two runs are of one scenario: then nothing here is a repeat.
    """
    scenarios: list[Hashable] = [
        run.manifest.get("scenario_sha256") or index for index, run in enumerate(source.runs)
    ]
    if len(set(scenarios)) == len(scenarios):
        runs = ", ".join(run.run_id for run in source.runs)
        problem = "no two runs are of one scenario (by its sha256), so none repeats another"
        way_out = "leave --pool out, or hold them against each other with raybench compare --repeat-a, --repeat-b"
        raise ConfigError("--pool", ConfigProblem(problem, value=runs, way_out=way_out))
    plain = {(scenarios[point["run"]], _arm(point)) for point in source.points}
    taken = Counter(arm for _, arm in plain)
    groups: dict[tuple[Hashable, str], list[Point]] = {}
    for point in source.points:
        groups.setdefault((scenarios[point["run"]], point["point_id"]), []).append(point)
    points: list[Point] = []
    by_arm: dict[str, ArmFacts] = {}
    for (scenario, point_id), found in groups.items():
        arm = _arm(found[0])
        first = source.runs[scenarios.index(scenario)]
        name = arm if taken[arm] == 1 else f"{arm} @ {first.run_id}"
        by_arm.setdefault(name, source.by_arm[found[0]["arm"]])
        names = {"arm": name, "name": name + point_id.removeprefix(arm)}
        repeated = scenarios.count(scenario) > 1
        points.append(pooled_point(found) | {"index": None} | names if repeated else found[0] | names)
    return Source(source.runs, points, by_arm, source.searches)


def _arm(point: Point) -> str:
    """The arm as its run calls it."""
    return id_parts(point["point_id"])[0]


def repeats_table(pooled: Source, text: Text) -> Table:
    """Mean, lowest and highest run, and spread of each pooled point."""
    rows = []
    for points in pooled.workloads.values():
        for point in by_level(points, pooled.arms):
            if "pooled" not in point:
                continue
            valid, runs = point["repeats"]
            told = [_spread(metric, point["pooled"][metric]) for metric in MAIN_METRICS]
            cells = (point["workload"], level(point), point["arm"], f"{valid}/{runs}", *told)
            values = {k: point["pooled"][metric].spread_percent for k, metric in enumerate(MAIN_METRICS, 4)}
            rows.append(Row(cells, values=values))
    return Table(text.repeats_columns, rows, right=frozenset(range(3, 8)))


def _spread(metric: str, pooled: Pooled) -> str:
    """`16.7 (16.5 .. 16.9; 2.4 %)`."""
    if pooled.spread_percent is None:
        return shown(metric, pooled.value)
    low, high = (shown(metric, fold(pooled.observations)) for fold in (min, max))
    return f"{shown(metric, pooled.value)} ({low} .. {high}; {numbers.fixed(pooled.spread_percent, 1)} %)"
