"""Blocks on a terminal of 80 columns, with and without colour; and the points of runs as such blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as Cell

from raybench.analysis.points import has_numbers
from raybench.report import searches, tables
from raybench.report.document import Heading, Paragraph, Table, Told
from raybench.report.findings import counts_line
from raybench.report.sections import notes
from raybench.report.source import Source
from raybench.report.text import ENGLISH, Text

_STYLES = {"good": "green", "bad": "red", "warn": "yellow", "dim": "dim", "": ""}

#: A column of texts that is folded to less than this says nothing.
TEXT_WIDTH_MIN = 4


def print_blocks(blocks: Iterable[Told], console: Console) -> None:
    """A table that is too wide folds its texts, and its numbers only where nothing else is left to fold."""
    for block in blocks:
        match block:
            case Heading():
                console.print()
                console.print(block.text, style="bold")
            case Paragraph():
                console.print(block.text, style=_STYLES[block.tone])
            case Table():
                narrow = _numbers_width(block) > console.width
                console.print(_drawn(block, can_strike=console.is_terminal, fold_numbers=narrow))


def _numbers_width(table: Table) -> int:
    """Columns of a terminal that the table takes with its numbers whole and its texts folded as far as they go."""
    lines = [table.columns, *(row.cells for row in table.rows)]
    widths = [
        max(map(cell_len, cells)) if k in table.right else 0 for k, cells in enumerate(zip(*lines, strict=True))
    ]
    return sum(max(width, TEXT_WIDTH_MIN) + 2 for width in widths)


def _drawn(table: Table, *, can_strike: bool, fold_numbers: bool) -> RichTable:
    """can_strike: whether the output can show text struck through; else `~` stands round it."""
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for k, column in enumerate(table.columns):
        is_number = k in table.right
        drawn.add_column(
            column,
            justify="right" if is_number else "left",
            no_wrap=is_number and not fold_numbers,
            overflow="fold",
        )
    for row in table.rows:
        cells = [
            Cell(cell if can_strike or k not in row.struck else f"~{cell}~", "strike" if k in row.struck else "")
            for k, cell in enumerate(row.cells)
        ]
        cells[-1].stylize(_STYLES[row.tone])
        drawn.add_row(*cells)
    return drawn


def closing_line(outcome: Mapping[str, object]) -> str:
    """How a run ended, in one line, from the fields of its outcome."""
    counts = ", ".join(f"{outcome[name]} {name}" for name in ("accepted", "void", "skipped", "missing"))
    line = f"{outcome['status']}: {counts}"
    return f"{line}; {outcome['reason']}" if outcome.get("reason") else line


def print_points(source: Source, console: Console, text: Text = ENGLISH) -> None:
    """Print one table a workload, what searches found, then the points without a valid number and how to read
    the rest. Repeats that `repeats.pool_repeats` made one row of are one row."""
    print_blocks(_points(source, text), console)


def _points(source: Source, text: Text) -> Iterator[Told]:
    for workload, points in source.workloads.items():
        yield Heading(workload)
        yield tables.result_table(points, source.arms, text, why=False)
    if any("pooled" in point for point in source.points):
        yield Paragraph(text.pooled_note, "dim")
    for entry in source.searches:
        yield Heading(searches.title(entry, text))
        yield from (Paragraph(f"  {line}") for line in searches.answer(entry, text))
    for point in source.points:
        if not has_numbers(point):
            yield Paragraph(f"{point['name']}: {tables.verdict(point, text)}", tables.TONES[point["verdict"]])
    yield from (Paragraph(line, "dim") for line in notes(source, text))
    yield Paragraph(counts_line(source, text))
