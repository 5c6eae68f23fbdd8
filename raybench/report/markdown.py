"""Blocks as Markdown that pastes into a chat document: a whole report, or the answer of a command. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from raybench.report.document import Block, Bullets, Code, Figures, Heading, Paragraph, Row, Section, Table


def render(title: str, sections: Sequence[Section], images: str | None = None) -> str:
    """The whole report. images: an ending (`svg`, `png`) where the figures lie in a folder `plots` beside it."""
    told = [f"# {escape(title)}"]
    for section in sections:
        told += [f"## {section.heading}", *_blocks(section.blocks, images)]
    return "\n\n".join(told) + "\n"


def answer(blocks: Iterable[Block]) -> str:
    """What a command tells."""
    return "\n\n".join(_blocks(blocks, None)) + "\n"


def _blocks(blocks: Iterable[Block], images: str | None) -> Iterator[str]:
    """Each that is not empty."""
    return (drawn for block in blocks if (drawn := _block(block, images)))


def _block(block: Block, images: str | None) -> str:
    match block:
        case Paragraph(text):
            return f"**{escape(text)}**" if block.warns else escape(text)
        case Heading(text, level):
            return f"{'#' * level} {escape(text)}"
        case Bullets(items):
            return "\n".join(
                line
                for item in items
                for line in [
                    f"- **{escape(item.text)}**" if item.lines else f"- {escape(item.text)}",
                    *(f"  - {escape(line)}" for line in item.lines),
                ]
            )
        case Code(text):
            return f"```\n{text}\n```"
        case Figures(figures):
            if images is None:
                return ""
            return "\n\n".join(f"![{escape(figure.caption)}](plots/{figure.name}.{images})" for figure in figures)
        case Table():
            return _table(block)


#: What a Markdown reader would take for markup; a lone `<` it would not.
_MARKUP = re.compile(r"[\\`*~|]|<(?=[A-Za-z/!?])")


def escape(text: str) -> str:
    """Text that stands as it is: names and reasons hold `*`, `|` and `<` as they like."""
    return _MARKUP.sub(r"\\\g<0>", text).replace("\n", " ")


def _table(table: Table) -> str:
    """Empty when it has no rows."""
    if not table.rows:
        return ""
    rules = ["---:" if k in table.right else "---" for k in range(len(table.columns))]
    lines = [tuple(map(escape, table.columns)), tuple(rules), *(_cells(row) for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(_cell(escape(cell), k in row.struck, k in row.strong) for k, cell in enumerate(row.cells))


def _cell(text: str, struck: bool, strong: bool) -> str:
    if struck:
        return f"~~{text}~~"
    return f"**{text}**" if strong else text
