"""What a command has to tell, as headings, sentences and tables, and two ways of drawing them.

For answers on a terminal (`compare`, `retest`, `query`), in 80 columns and without colour too, and the same as
Markdown for a chat document. The report of a run has sections of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

#: What a line or row means beyond its words, which say it too: good, bad, warn, dim; empty for plain.
_STYLES = {"good": "green", "bad": "red", "warn": "yellow", "dim": "dim", "": ""}


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Line:
    text: str
    tone: str = ""


@dataclass(frozen=True)
class Row:
    cells: tuple[str, ...]
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """A heading line and rows of equal width; `right` are the indices of columns of numbers."""

    columns: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    right: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        assert all(len(row.cells) == len(self.columns) for row in self.rows), "a row of another width"


Block: TypeAlias = Heading | Line | Table


def print_blocks(blocks: Iterable[Block], console: Console) -> None:
    """Draw on a terminal. A table that is too wide folds its texts, never its numbers."""
    for block in blocks:
        match block:
            case Heading():
                console.print()
                console.print(block.text, style="bold", highlight=False, markup=False)
            case Line():
                console.print(block.text, style=_STYLES[block.tone], highlight=False, markup=False)
            case Table():
                console.print(_drawn(block))


def _drawn(table: Table) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for k, column in enumerate(table.columns):
        is_number = k in table.right
        drawn.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in table.rows:
        *cells, last = row.cells
        drawn.add_row(*map(Text, cells), Text(last, _STYLES[row.tone]))
    return drawn


def markdown(blocks: Iterable[Block]) -> str:
    """The same as Markdown."""
    return "\n\n".join(_markdown(blocks)) + "\n"


def _markdown(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Heading():
                yield f"{'#' * block.level} {block.text}"
            case Line():
                yield f"**{_escaped(block.text)}**" if block.tone == "bad" else _escaped(block.text)
            case Table():
                rules = ["---:" if k in block.right else "---" for k in range(len(block.columns))]
                cells = [block.columns, *(row.cells for row in block.rows)]
                heading, *rows = [[_escaped(cell) for cell in line] for line in cells]
                lines = [heading, rules, *rows]
                yield "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")
