"""`raybench compare RUN --baseline FILE`: a run beside published numbers, as orders of magnitude only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from raybench.analysis.baseline import Beside, beside
from raybench.analysis.conditions import Condition, differing, flat
from raybench.errors import ConfigError, ConfigProblem
from raybench.report import numbers
from raybench.report.compare import condition_blocks
from raybench.report.compare_source import ArmOfRun, read_side
from raybench.report.document import Heading, Paragraph, Row, Table, Told
from raybench.report.metric_words import label, shown
from raybench.report.published import PublishedTable, declared_facts, read_published

ORDER_OF_MAGNITUDE = "order of magnitude only"


@dataclass(frozen=True)
class BaselineArm:
    """One arm of the run beside one of the published table."""

    arm: str
    published_arm: str
    conditions: list[Condition]
    stated_of_run_only: list[str]
    rows: list[Beside]


@dataclass(frozen=True)
class BaselineComparison:
    """not_stated: what the published source does not tell. unmatched: its arms that no arm of the run meets."""

    run: str
    source: str
    not_stated: list[str]
    arms: list[BaselineArm]
    unmatched: list[str]


def compare_baseline(spec: str, file: Path, metrics: Sequence[str]) -> BaselineComparison:
    """spec: `RUN` or `RUN:ARM`. A published arm meets the arm that its `against` names, else its namesake, else
    the only one there is. Raises RunDirectoryError and ConfigError for what cannot be read or does not meet."""
    arms, table = read_side(spec), read_published(file)
    published = list(dict.fromkeys(str(point["arm"]) for point in table.points))
    met = [(ours, name) for name in published if (ours := _counterpart(name, arms, table)) is not None]
    if not met:
        raise ConfigError(
            str(file),
            ConfigProblem(
                f"none of its arms meets one of the run: {', '.join(published)}",
                path="arms",
                allowed=", ".join(arm.arm for arm in arms),
                way_out="name the arm of the run that each is held against, as `against`",
            ),
        )
    compared = [_beside(ours, name, table, metrics) for ours, name in met]
    if not any(arm.rows for arm in compared):
        workloads = ", ".join(dict.fromkeys(str(point["workload"]) for arm in arms for point in arm.points))
        raise ConfigError(
            str(file),
            ConfigProblem("no workload in common", way_out=f"the run's workloads are called {workloads}"),
        )
    missed = [name for name in published if name not in {name for _, name in met}]
    return BaselineComparison(arms[0].run, table.about.source, table.about.not_stated, compared, missed)


def _counterpart(name: str, arms: Sequence[ArmOfRun], table: PublishedTable) -> ArmOfRun | None:
    declared = table.about.arms.get(name)
    wanted = name if declared is None or declared.against is None else declared.against
    found = [arm for arm in arms if arm.arm == wanted]
    return found[0] if found else arms[0] if len(arms) == 1 else None


def _beside(ours: ArmOfRun, name: str, table: PublishedTable, metrics: Sequence[str]) -> BaselineArm:
    theirs = dict(flat(table.about.conditions)) | dict(flat(declared_facts(table, name)))
    # Of its own settings a measured run tells far more than any table: names are enough where B is silent.
    differ = [one for one in differing(ours.conditions, theirs) if one.name != "provenance"]
    shared = [one for one in differ if one.b is not None]
    silent = [one.name for one in differ if one.b is None and "." not in one.name and " " not in one.name]
    points = [point for point in table.points if point["arm"] == name]
    return BaselineArm(ours.arm, name, shared, silent, beside(ours.points, points, metrics))


def baseline_json(comparison: BaselineComparison) -> dict[str, object]:
    return {"claim": ORDER_OF_MAGNITUDE, **asdict(comparison)}


def baseline_blocks(comparison: BaselineComparison) -> Iterator[Told]:
    """The declared differences above the numbers."""
    yield Paragraph(f"A: {comparison.run}")
    yield Paragraph(f"B: published, not measured by raybench: {comparison.source}")
    yield Paragraph(f"{ORDER_OF_MAGNITUDE.capitalize()}: conditions differ, nothing here is a verdict.", "warn")
    if comparison.not_stated:
        yield Paragraph(f"Not stated by the source: {', '.join(comparison.not_stated)}.", "warn")
    for arm in comparison.arms:
        yield Heading(f"A {arm.arm} beside B {arm.published_arm}", level=2)
        yield from condition_blocks(arm.conditions)
        if arm.stated_of_run_only:
            yield Paragraph(f"Unknown of B: {', '.join(arm.stated_of_run_only)}.")
        yield _table(arm.rows)
    if any(row.best for arm in comparison.arms for row in arm.rows):
        yield Paragraph("best: each side's level of the highest throughput; the two measured other levels.")
    if any(row.shapes_differ for arm in comparison.arms for row in arm.rows):
        yield Paragraph("~: prompts or answers of the two are not of one length.")
    if comparison.unmatched:
        yield Paragraph(f"Only in the published table: {', '.join(comparison.unmatched)}.")


def _table(rows: Sequence[Beside]) -> Table:
    drawn = []
    for row in rows:
        level = f"best {row.level_run}|{row.level_baseline}" if row.best else row.level_run
        factor = "equal" if row.ahead is None else f"{'A' if row.ahead == 'run' else 'B'} {_times(row.factor)}"
        drawn.append(
            Row(
                (
                    f"{row.workload} {level}{' ~' if row.shapes_differ else ''}",
                    label(row.metric),
                    shown(row.metric, row.run),
                    shown(row.metric, row.baseline),
                    factor,
                )
            )
        )
    return Table(("Point", "Metric", "A", "B published", "Ahead, about"), drawn, right=frozenset({2, 3}))


def _times(factor: float | None) -> str:
    return "from 0" if factor is None else numbers.times(factor)
