"""What a report says of processes on the target's host: how arms were started and ended, what they are made of.

Pure: what was kept of a run in, tables out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raybench.report import numbers
from raybench.report.document import Row, Table
from raybench.report.source import Source
from raybench.report.text import Text


def process_table(source: Source, text: Text) -> Table:
    """A row for each process that was started for an arm, in the order of their starts."""
    words = text.deployments
    rows = [
        Row(_process(arm, one, words.reasons)) for arm, kept in source.by_arm.items() for one in kept.processes
    ]
    return Table(words.process_columns, rows, right=frozenset({1, 2}))


def _process(arm: str, record: Mapping[str, Any], reasons: Mapping[str, str]) -> tuple[str, ...]:
    reason = reasons.get(record["reason"], numbers.UNKNOWN)
    code = "" if record["exit_code"] is None else f" ({record['exit_code']})"
    evidence = "" if record["evidence"] is None else f": {record['evidence']}"
    return arm, _seconds(record["load_s"]), _seconds(record["process_s"]), f"{reason}{code}{evidence}"


def ledger_table(source: Source, text: Text) -> Table:
    """Artifacts by content, images, working copies and versions, arm by arm."""
    rows = [Row((arm, *entry)) for arm, kept in source.by_arm.items() for entry in _entries(kept.inventory)]
    return Table(text.deployments.ledger_columns, rows)


def _entries(kept: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for artifact in kept.get("artifacts", []):
        yield artifact["as_given"], f"{artifact['sha256']} ({artifact['size_bytes']:,} B)"
    if kept.get("image") is not None:
        yield "image", kept["image"]
    if kept.get("git") is not None:
        yield f"git {kept['git']['path']}", kept["git"]["head"] + (" + changes" if kept["git"]["changed"] else "")
    yield from kept.get("versions", {}).items()


def _seconds(value: float | None) -> str:
    return numbers.UNKNOWN if value is None else f"{value:,.1f} s"
