"""What a report or a command has to tell, before it is Markdown, a page or a terminal: blocks. Pure data.

`markdown`, `html` and `terminal` draw them, so that what these say cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from raybench.report.chart import Figure

#: What a line or row means beyond its words, which say it too; empty for plain. A terminal shows it by colours,
#: Markdown and page only that the reader must not miss a paragraph (bad, warn).
Tone: TypeAlias = Literal["good", "bad", "warn", "dim", ""]


@dataclass(frozen=True)
class Heading:
    """level: 2 for a section of its own, 3 for a part of one."""

    text: str
    level: int = 3


@dataclass(frozen=True)
class Paragraph:
    text: str
    tone: Tone = ""

    @property
    def warns(self) -> bool:
        """The reader must not miss it."""
        return self.tone in ("bad", "warn")


@dataclass(frozen=True)
class Row:
    """Cells of one line.

    struck: indices of numbers that do not count; strong: of those clearly better than all they compete with, or
    not to be missed.
    values: what the cells are sorted by, where that is a number. point: index of the point behind the row.
    """

    cells: tuple[str, ...]
    tone: Tone = ""
    struck: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()
    values: Mapping[int, float | None] = field(default_factory=dict)
    point: int | None = None


@dataclass(frozen=True)
class Table:
    """A heading line and rows of equal width; `right` are the indices of columns of numbers."""

    columns: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    right: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        assert all(len(row.cells) == len(self.columns) for row in self.rows), "a row of another width"


@dataclass(frozen=True)
class Item:
    """One point of a list, with lines below it; then `text` is their heading."""

    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bullets:
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Code:
    """Text to be copied as it stands."""

    text: str


@dataclass(frozen=True)
class Figures:
    """Figures that may stand side by side."""

    figures: tuple[Figure, ...]


#: What the answer of a command consists of: a terminal of 80 columns can draw it, too.
Told: TypeAlias = Heading | Paragraph | Table
Block: TypeAlias = Told | Bullets | Code | Figures


@dataclass(frozen=True)
class Section:
    """key: the same in every language, for links."""

    key: str
    heading: str
    blocks: tuple[Block, ...]


def noted(note: str, table: Table) -> tuple[Paragraph | Table, ...]:
    """A table below what has to be known of it; nothing where it has no rows."""
    if not table.rows:
        return ()
    return (Paragraph(note), table) if note else (table,)


def bullets(*lines: str) -> Bullets:
    return Bullets(tuple(map(Item, lines)))
