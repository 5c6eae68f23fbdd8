"""What a report consists of, before it is Markdown or a page: sections of blocks. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.report.chart import Figure
from raybench.report.tables import Table


@dataclass(frozen=True)
class Paragraph:
    """warns: the reader must not miss it."""

    text: str
    warns: bool = False


@dataclass(frozen=True)
class Item:
    """One point of a list, with lines below it; then `text` is their heading."""

    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bullets:
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Subheading:
    text: str


@dataclass(frozen=True)
class Code:
    """Text to be copied as it stands."""

    text: str


@dataclass(frozen=True)
class Figures:
    """Figures that may stand side by side."""

    figures: tuple[Figure, ...]


Block = Paragraph | Bullets | Subheading | Code | Figures | Table


@dataclass(frozen=True)
class Section:
    """key: the same in every language, for links."""

    key: str
    heading: str
    blocks: tuple[Block, ...]


def bullets(*lines: str) -> Bullets:
    return Bullets(tuple(map(Item, lines)))
