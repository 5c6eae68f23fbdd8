"""`raybench retest`: before and after of repeated points, the drift of the anchors, and the values that count.

What it found is told by the command, kept as retest.json in a run directory of the values that count, and told
again by the report of that.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import raybench
from raybench.analysis.comparison import Side, key_of
from raybench.analysis.conditions import Condition
from raybench.analysis.points import Point, read_points, write_points
from raybench.analysis.retest import Final, Retest, RetestPoint, retest
from raybench.errors import ConfigError, ConfigProblem
from raybench.records.rundir import RunDirectory, safe_name
from raybench.records.strict_json import read_json, write_json
from raybench.report import numbers
from raybench.report.compare import condition_blocks, not_compared, point_tables
from raybench.report.compare_source import Pair, differing_conditions, pair_arms
from raybench.report.document import Block, Heading, Paragraph, Row, Table, Told
from raybench.report.metric_words import label, shown
from raybench.report.source import Source, run_and_arm
from raybench.report.text import Text

#: Both values of each repeated point, in the run directory of the final ones.
RETEST_JSON = "retest.json"


@dataclass(frozen=True)
class RetestOfArm:
    arm: str
    conditions: list[Condition]
    retest: Retest


@dataclass(frozen=True)
class RetestResult:
    """before, after: the two runs, each `RUN` or `RUN:ARM`."""

    before: str
    after: str
    arms: list[RetestOfArm]

    @property
    def may_claim(self) -> bool:
        return all(arm.retest.may_claim for arm in self.arms)


def compare_retest(
    before: str,
    after: str,
    anchors: Sequence[str],
    metrics: Sequence[str],
    *,
    floor_percent: float,
    drift_limit_percent: float,
    final: Final | None,
) -> RetestResult:
    """anchors: `workload/c8` of the only arm, or `arm/workload/c8`. Raises ConfigError for one that was not
    repeated, and when there is none: without an anchor nothing tells drift from difference."""
    pairs, _, _ = pair_arms([before], [after])
    by_arm = _anchors(anchors, pairs)
    arms = []
    for pair in pairs:
        a, b = (Side(name, side.repeats) for name, side in zip(("before", "after"), pair.sides, strict=True))
        told = retest(
            a,
            b,
            by_arm.get(pair.a[0].arm, []),
            metrics,
            floor_percent=floor_percent,
            drift_limit_percent=drift_limit_percent,
            final=final,
        )
        arms.append(RetestOfArm(pair.a[0].arm, differing_conditions(pair.a[0], pair.b[0]), told))
    return RetestResult(before, after, arms)


def _anchors(names: Sequence[str], pairs: Sequence[Pair]) -> dict[str, list[tuple[str, str]]]:
    """By arm the (workload, level) of its anchors; all arms that repeat points need one."""
    repeated = {
        f"{pair.a[0].arm}/{'/'.join(key)}": (pair.a[0].arm, key)
        for pair in pairs
        for key in pair.sides[0].keys
        if key in pair.sides[1].keys
    }
    found: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        full = name if name.count("/") == 2 else f"{pairs[0].a[0].arm}/{name}" if len(pairs) == 1 else name
        if full not in repeated:
            raise ConfigError(
                "--anchor", ConfigProblem("not measured in both runs", value=name, allowed=", ".join(repeated))
            )
        arm, key = repeated[full]
        found.setdefault(arm, []).append(key)
    bare = [arm for arm in dict.fromkeys(arm for arm, _ in repeated.values()) if arm not in found]
    if bare or not repeated:
        raise ConfigError(
            "--anchor",
            ConfigProblem(
                f"names no anchor of {', '.join(bare)}: nothing would tell drift from difference"
                if repeated
                else "the two runs have no point in common",
                allowed=", ".join(repeated) or None,
            ),
        )
    return found


def write_final(result: RetestResult, path: Path) -> RunDirectory:
    """A run directory of the values that count, for report and compare; both values are in retest.json.

    Raises RunDirectoryError when something is there already.
    """
    before, after = (RunDirectory(run_and_arm(spec)[0]) for spec in (result.before, result.after))
    rows = _final_rows(result, before, after)
    run = RunDirectory(path)
    run.create()
    for source, arms in ((before, None), (after, _arms_of_later_values(result))):
        _copy_arms(source, run, arms)
    write_json(run.path / RETEST_JSON, retest_json(result))
    write_points(run, rows)
    manifest = before.read_manifest()
    about = {
        "before": {"run_id": manifest.get("run_id"), "path": str(before.path)},
        "after": {"run_id": after.read_manifest().get("run_id"), "path": str(after.path)},
        "final": {
            f"{arm.arm}/{'/'.join(_key(point))}": point.final.value
            for arm in result.arms
            for point in arm.retest.points
        },
        "environment_drifted": any(arm.retest.drifted for arm in result.arms),
    }
    changes = {"run_id": path.name, "raybench_version": raybench.__version__, "provenance": "retest"}
    write_json(run.manifest, {**manifest, **changes, "retest": about})
    return run


def _arms_of_later_values(result: RetestResult) -> list[str]:
    """Arms with a final value of the later run: its facts are then the ones that belong to the arm."""
    return [arm.arm for arm in result.arms if any(point.final is Final.AFTER for point in arm.retest.points)]


def _copy_arms(source: RunDirectory, run: RunDirectory, arms: Sequence[str] | None) -> None:
    """Facts and logs of the arms (None: of all), over those that are there."""
    folders = source.arms.iterdir() if arms is None else (source.arms / safe_name(arm) for arm in arms)
    for folder in folders if source.arms.is_dir() else ():
        if folder.is_dir():
            shutil.copytree(folder, run.arms / folder.name, dirs_exist_ok=True)


def _final_rows(result: RetestResult, before: RunDirectory, after: RunDirectory) -> Iterable[Point]:
    """Rows of the earlier run in their order, each replaced where the later one is final, then the added ones."""
    chosen, later = _rows(before), _rows(after)
    for arm in result.arms:
        final = [_key(point) for point in arm.retest.points if point.final is Final.AFTER]
        chosen |= {(arm.arm, *key): later[arm.arm, *key] for key in [*final, *arm.retest.added]}
    return chosen.values()


def _rows(run: RunDirectory) -> dict[tuple[str, str, str], Point]:
    return {(row["arm"], *key_of(row)): row for row in read_points(run)}


def _key(point: RetestPoint) -> tuple[str, str]:
    return point.comparison.workload, point.comparison.level


def retest_json(result: RetestResult) -> dict[str, object]:
    """Before, after and drift for programs, full precision."""
    return {
        "before": result.before,
        "after": result.after,
        "may_claim": result.may_claim,
        "arms": [
            {"environment_drifted": arm.retest.drifted, "may_claim": arm.retest.may_claim, **asdict(arm)}
            for arm in result.arms
        ],
    }


def retest_blocks(result: RetestResult) -> Iterator[Told]:
    yield Paragraph(f"A, before: {result.before}")
    yield Paragraph(f"B, after: {result.after}")
    for arm in result.arms:
        yield Heading(f"Retest of {arm.arm}", level=2)
        yield from condition_blocks(arm.conditions)
        yield from _drift(arm.retest)
        yield from point_tables([p.comparison for p in arm.retest.points if p.comparison.not_compared is None])
        yield from _finals(arm.retest)


def _drift(told: Retest) -> Iterator[Told]:
    """The anchors, and what they allow to say."""
    rows = [
        Row(
            (
                f"{one.workload} {one.level}",
                label(one.metric),
                shown(one.metric, one.before),
                shown(one.metric, one.after),
                numbers.change(one.percent, decimals=2),
                "drifted" if one.exceeds else "within",
            ),
            tone="bad" if one.exceeds else "good",
        )
        for one in told.drifts
    ]
    limit = f"{told.drift_limit_percent:g} %"
    yield Paragraph(f"Anchors, repeated though nothing was changed for them; limit {limit}:")
    yield Table(("Anchor", "Metric", "Before", "After", "Drift", f"of {limit}"), rows, right=frozenset({2, 3, 4}))
    for workload, level in told.unknown_anchors:
        yield Paragraph(
            f"Anchor {workload} {level} has no valid value on both sides: drift unknown, no claim.", "bad"
        )
    if told.drifted:
        yield Paragraph("Environment drifted: differences may be drift, so nothing is claimed.", "bad")
    elif told.may_claim:
        yield Paragraph(
            f"No anchor moved by more than {limit}: differences of the other points are theirs.", "good"
        )


def _finals(told: Retest) -> Iterator[Told]:
    yield from not_compared([point.comparison for point in told.points])
    for final in Final:
        names = [f"{' '.join(_key(point))}" for point in told.points if point.final is final]
        if names:
            yield Paragraph(f"Final value from {final.value}: {', '.join(names)}.")
    if told.unrepeated:
        yield Paragraph(f"Not repeated, as before: {', '.join(' '.join(key) for key in told.unrepeated)}.", "dim")
    if told.added:
        yield Paragraph(f"Only in the later run: {', '.join(' '.join(key) for key in told.added)}.", "dim")


# -- the section of a report -----------------------------------------------------------------------


def retest_section(source: Source, text: Text) -> Iterator[Block]:
    """Both values of every repeated point, the one that does not count struck through. Nothing where no run is the
    outcome of a retest."""
    for run in source.runs:
        about = run.manifest.get("retest")
        path = run.directory.path / RETEST_JSON
        if not about or not path.is_file():
            continue
        told: Any = read_json(path)
        yield Paragraph(text.retest_note.format(before=about["before"]["run_id"], after=about["after"]["run_id"]))
        drifted = [arm["arm"] for arm in told["arms"] if arm["environment_drifted"]]
        if drifted:
            yield Paragraph(text.retest_drifted.format(arms=", ".join(drifted)), "warn")
        yield _section_table(told, text)


def _section_table(told: Any, text: Text) -> Table:
    rows = []
    for arm in told["arms"]:
        for point in arm["retest"]["points"]:
            compared = point["comparison"]
            name = f"{arm['arm']}/{compared['workload']}/{compared['level']}"
            rows += [
                _section_row(name, one, point, may_claim=arm["may_claim"], text=text)
                for one in compared["differences"]
                if one["a"] is not None or one["b"] is not None
            ]
    return Table(text.retest_columns, rows, right=frozenset({2, 3, 4}))


def _section_row(name: str, one: Any, point: Any, *, may_claim: bool, text: Text) -> Row:
    is_after = point["final"] == Final.AFTER
    clear = one["verdict"] in ("better", "worse")
    change = numbers.UNKNOWN
    if one["a"] is not None and one["b"] is not None:
        change = numbers.change(one["percent"]) if clear and may_claim else text.retest_unclear
    cells = (
        f"{name} ({text.retest_anchor})" if point["is_anchor"] else name,
        label(one["metric"]),
        shown(one["metric"], one["a"]),
        shown(one["metric"], one["b"]),
        change,
        text.retest_final["after" if is_after else "before"],
    )
    unused = 2 if is_after else 3
    struck = frozenset({unused}) if cells[unused] != numbers.UNKNOWN else frozenset()
    return Row(cells, struck=struck, values={2: one["a"], 3: one["b"], 4: one["percent"]})
