"""A report as Markdown that pastes into a chat document. Pure: sections in, text out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from raybench.report.document import Block, Bullets, Code, Figures, Paragraph, Section, Subheading
from raybench.report.tables import Row, Table


def render(title: str, sections: Sequence[Section], images: str | None = None) -> str:
    """The whole report. images: an ending (`svg`, `png`) where the figures lie in a folder `plots` beside it."""
    blocks = [f"# {escape(title)}"]
    for section in sections:
        blocks.append(f"## {section.heading}")
        blocks += [drawn for block in section.blocks if (drawn := _block(block, images))]
    return "\n\n".join(blocks) + "\n"


def _block(block: Block, images: str | None) -> str:
    match block:
        case Paragraph(text, warns):
            return f"**{escape(text)}**" if warns else escape(text)
        case Subheading(text):
            return f"### {escape(text)}"
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
            return draw(block)


#: What a Markdown reader would take for markup; a lone `<` it would not.
_MARKUP = re.compile(r"[\\`*~|]|<(?=[A-Za-z/!?])")


def escape(text: str) -> str:
    """Text that stands as it is: names and reasons hold `*`, `|` and `<` as they like."""
    return _MARKUP.sub(r"\\\g<0>", text).replace("\n", " ")


def draw(table: Table) -> str:
    """A Markdown table; empty when it has no rows."""
    if not table.rows:
        return ""
    rules = ["---:" if k in table.right else "---" for k in range(len(table.columns))]
    lines = [table.columns, tuple(rules), *(_cells(row) for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(_cell(escape(cell), k in row.struck, k in row.strong) for k, cell in enumerate(row.cells))


def _cell(text: str, struck: bool, strong: bool) -> str:
    if struck:
        return f"~~{text}~~"
    return f"**{text}**" if strong else text
