"""The section of a report over a run directory that `raybench retest --output` made: before, after, what counts.

Both values of every repeated point stay visible; the one that does not count is struck through.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from raybench.analysis.retest import Final
from raybench.records.rundir import read_json
from raybench.report import numbers
from raybench.report.document import Block, Paragraph, Row, Table
from raybench.report.metric_words import label, shown
from raybench.report.retest import RETEST_JSON
from raybench.report.source import Source
from raybench.report.text import Text


def retest_section(source: Source, text: Text) -> Iterator[Block]:
    """Nothing where no run is the outcome of a retest."""
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
        yield _table(told, text)


def _table(told: Any, text: Text) -> Table:
    rows = []
    for arm in told["arms"]:
        for point in arm["retest"]["points"]:
            compared = point["comparison"]
            name = f"{arm['arm']}/{compared['workload']}/{compared['level']}"
            rows += [
                _row(name, one, point, may_claim=arm["may_claim"], text=text)
                for one in compared["differences"]
                if one["a"] is not None or one["b"] is not None
            ]
    return Table(text.retest_columns, rows, right=frozenset({2, 3, 4}))


def _row(name: str, one: Any, point: Any, *, may_claim: bool, text: Text) -> Row:
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
