"""The table of points for a terminal of 80 columns, with the reasons of what is not valid below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.analysis.agreement import read_agreements
from raybench.report import agreement, searches, tables
from raybench.report.markdown import notes, summary
from raybench.report.source import read_source
from raybench.report.text import ENGLISH, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from rich.table import Table as RichTable

    from raybench.records.rundir import RunDirectory

_STYLES = {"accepted": "green", "void": "red", "skipped": "yellow", None: "yellow"}


def closing_line(outcome: Mapping[str, object]) -> str:
    """How a run ended, in one line, from the fields of its outcome."""
    counts = ", ".join(f"{outcome[name]} {name}" for name in ("accepted", "void", "skipped", "missing"))
    line = f"{outcome['status']}: {counts}"
    return f"{line}; {outcome['reason']}" if outcome.get("reason") else line


def print_points(run: RunDirectory, console: Console, text: Text = ENGLISH) -> None:
    """Print one table a workload, what searches found, then the points without a valid number and how to read
    the rest.

    Raises RunDirectoryError when the run was not merged.
    """
    source = read_source(run)
    for workload, points in source.workloads.items():
        console.print(f"{workload} ({tables.shape(points[0])})", style="bold", highlight=False, markup=False)
        table = tables.result_table(points, source.arms, text, why=False)
        console.print(_drawn(table, text, can_strike=console.is_terminal))
    for entry in source.searches:
        console.print(searches.title(entry, text), style="bold", highlight=False, markup=False)
        for line in searches.answer(entry, text):
            console.print(f"  {line}", highlight=False, markup=False)
    for point in source.points:
        if point["verdict"] != "accepted":
            line = f"{point['point_id']}: {tables.verdict(point, text)}"
            console.print(line, style=_STYLES[point["verdict"]], highlight=False, markup=False)
    for line in notes(source, text):
        console.print(line, style="dim", highlight=False, markup=False)
    console.print(summary(source, text)[0], highlight=False, markup=False)


def print_agreement(run: RunDirectory, console: Console, text: Text = ENGLISH) -> bool:
    """Print what the engine says of itself beside the records; whether nothing of it was flagged.

    Raises RunDirectoryError when the run was not merged.
    """
    from rich import box
    from rich.table import Table

    agreements = read_agreements(run)
    for one in agreements:
        table = agreement.agreement_table([one], text)
        if table.rows:
            drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
            for k, column in enumerate(table.columns[1:], start=1):
                drawn.add_column(column, justify="right" if k in table.right else "left", overflow="fold")
            for row in table.rows:
                drawn.add_row(*row.cells[1:])
            console.print(one.point_id, style="bold", highlight=False, markup=False)
            console.print(drawn)
    for line in agreement.flags(agreements, text):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(text.agreement.note, style="dim", highlight=False, markup=False)
    console.print(agreement.verdict_line(agreements, text), highlight=False, markup=False)
    return not any(one.flagged for one in agreements)


def _drawn(table: tables.Table, text: Text, *, can_strike: bool) -> RichTable:
    """can_strike: whether the output can show text struck through; else `~` stands round it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text as Cell

    styles = {text.verdicts[verdict]: style for verdict, style in _STYLES.items()}
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for k, column in enumerate(table.columns):
        drawn.add_column(column, justify="right" if k in table.right else "left", overflow="fold")
    for row in table.rows:
        cells = [
            Cell(cell if can_strike or k not in row.struck else f"~{cell}~", "strike" if k in row.struck else "")
            for k, cell in enumerate(row.cells)
        ]
        cells[-1].stylize(styles[row.cells[-1]])
        drawn.add_row(*cells)
    return drawn
