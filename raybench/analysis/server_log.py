"""Hit rate by the engine's own log: prefill batches between two positions, twins left out.

Pure; used by the check of an attempt, and again by anyone who has the run directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raybench.records.rundir import RunDirectory
from raybench.records.schema import SERVER_LOG
from raybench.records.stream import read_part, unify


@dataclass(frozen=True)
class LogSpan:
    """Rows of `part` whose position lies in (begin, end]."""

    part: str
    begin: int
    end: int


@dataclass(frozen=True)
class PrefillLog:
    """What the log tells of a span. new/cached tokens: sums over the data-parallel groups, None = no prefill line.

    retractions: requests that were retracted. contradictions: lines whose own rate is 0 and whose cached
    tokens are not. gaps: why lines may be missing. groups: data-parallel ranks with a prefill line (None where
    there is but one).
    """

    new_tokens: int | None
    cached_tokens: int | None
    retractions: int
    contradictions: int
    gaps: tuple[str, ...]
    groups: frozenset[int | None]

    @property
    def input_tokens(self) -> int | None:
        if self.new_tokens is None or self.cached_tokens is None:
            return None
        return self.new_tokens + self.cached_tokens

    @property
    def hit_rate(self) -> float | None:
        """cached / (new + cached). Unknown is not zero: None without a prefill line."""
        total = self.input_tokens
        return self.cached_tokens / total if total and self.cached_tokens is not None else None


def log_rows(run: RunDirectory, span: LogSpan) -> pa.Table:
    """The rows of a span, from the part file. Raises RunDirectoryError when there is no such part."""
    table = unify([read_part(run.path / span.part).table], SERVER_LOG)
    inside = pc.and_(pc.greater(table["position"], span.begin), pc.less_equal(table["position"], span.end))
    return table.filter(inside)


def prefill_log(rows: pa.Table) -> PrefillLog:
    """Sums over rows of records.schema.SERVER_LOG: one pipeline stage, all data-parallel groups, no twins."""
    told = _without_twins(rows.to_pylist())
    prefill = [row for row in told if row["kind"] == "prefill"]
    return PrefillLog(
        new_tokens=sum(row["new_tokens"] for row in prefill) if prefill else None,
        cached_tokens=sum(row["cached_tokens"] for row in prefill) if prefill else None,
        retractions=sum(row["requests"] or 0 for row in told if row["kind"] == "retraction"),
        contradictions=sum(row["told_hit_rate"] == 0 and row["cached_tokens"] > 0 for row in prefill),
        gaps=tuple(row["note"] for row in told if row["kind"] == "gap"),
        groups=frozenset(row["dp_group"] for row in prefill),
    )


def groups_by_flush(rows: pa.Table) -> tuple[frozenset[int | None], frozenset[int | None]]:
    """Data-parallel groups whose last word on a flush was that it was done, and that it was not."""
    last: dict[int | None, str] = {
        row["dp_group"]: row["kind"] for row in rows.to_pylist() if row["kind"] in ("flush", "flush_refused")
    }
    done = frozenset(group for group, kind in last.items() if kind == "flush")
    return done, frozenset(last) - done


def _without_twins(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each data-parallel group only the lowest rank that printed: the others repeat its batches."""
    lowest: dict[int | None, tuple[object, ...]] = {}
    for row in rows:
        if row["kind"] != "gap":
            group, rank = row["dp_group"], _rank(row)
            lowest[group] = min(lowest.get(group, rank), rank)
    return [row for row in rows if row["kind"] == "gap" or _rank(row) == lowest[row["dp_group"]]]


def _rank(row: dict[str, Any]) -> tuple[object, ...]:
    """Comparable: the stage, then the numbers of the twins' tags in the order of their names."""
    tags = tuple(
        (tag.rstrip("0123456789"), int(tag[len(tag.rstrip("0123456789")) :])) for tag in row["twins"].split()
    )
    return (row["stage"], tags)
