"""Part files -> tables on one schema and one time line. Used by the merge, and by the check of an attempt.

Every row names the part from which it came (`source_part`). A torn part gives its whole batches and a
warning. The result does not depend on the order in which parts are found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from raybench.analysis.alignment import ClockReading, align_monotonic, offset_text
from raybench.analysis.client_load import Writer, tokens_by_second
from raybench.analysis.history import Clocks, History
from raybench.records.clock import ClockOffset
from raybench.records.rundir import RunDirectory
from raybench.records.schema import GPU, REQUESTS, SERVER, WORKER
from raybench.records.stream import SOURCE_COLUMN, Part, name_source, read_part, unify

#: Only parts of the worker's own health have it.
_HEALTH_COLUMN = "loop_lag_ms_max"
_CHUNK_COLUMNS = ("chunk_ns", "chunk_tokens")


@dataclass(frozen=True)
class _Kind:
    """Of one kind of parts: the schema, its monotonic stamps with the columns that hold them on the coordinator's
    clock, and the order of the rows."""

    schema: pa.Schema
    stamps: Mapping[str, str]
    order: tuple[str, ...]

    @property
    def columns(self) -> pa.Schema:
        """What every table of this kind has; unknown columns of its parts come behind."""
        aligned = [(name, pa.int64()) for name in self.stamps.values()]
        return pa.schema([*self.schema, *aligned, (SOURCE_COLUMN, pa.string())])


_SAMPLE_STAMPS = {"sample_ns": "aligned_unix_ns"}
_REQUESTS = _Kind(
    REQUESTS,
    {"sent_ns": "sent_unix_ns", "end_ns": "end_unix_ns"},
    ("phase", "ticket", "worker", "sent_ns", SOURCE_COLUMN),
)
_HEALTH = _Kind(WORKER, _SAMPLE_STAMPS, ("worker", "sample_ns", SOURCE_COLUMN))
_GPU = _Kind(GPU, _SAMPLE_STAMPS, ("host", "gpu_uuid", "aligned_unix_ns", "sample_ns", SOURCE_COLUMN))
_SERVER = _Kind(SERVER, _SAMPLE_STAMPS, ("arm", "aligned_unix_ns", SOURCE_COLUMN))

#: Of `AttemptParts.health`, also of a run that ended before anything was sent.
HEALTH_COLUMNS = _HEALTH.columns


@dataclass(frozen=True)
class Gathered:
    """Rows of some parts, sorted, and what was wrong with the parts."""

    table: pa.Table
    warnings: tuple[str, ...]


class AttemptParts:
    """What one attempt left, prewarm included; each part is read once."""

    def __init__(self, run: RunDirectory, point_id: str, attempt: int, history: History) -> None:
        parts = [read_part(path) for path in run.parts_of(point_id, attempt)]
        self._run = run
        self._health = [part for part in parts if _is_health(part)]
        self._requests = [part for part in parts if not _is_health(part)]
        self._clocks = history.attempt_clocks(point_id, attempt)

    def requests(self, *, chunks: bool = True) -> Gathered:
        """The records, with `sent_unix_ns` and `end_unix_ns`.

        chunks: with the lists of the chunks, which are nine tenths of the records; else these are null.
        """
        parts = self._requests
        if not chunks:
            parts = [replace(part, table=_without_chunks(part.table)) for part in parts]
        return _gather(self._run, parts, _REQUESTS, self._clocks)

    def health(self) -> Gathered:
        """The workers' own health, with `aligned_unix_ns`."""
        return _gather(self._run, self._health, _HEALTH, self._clocks)

    def writers(self) -> dict[str, Writer]:
        """By worker, of the parts of the load; one without an anchor does not say on which host it was written."""
        return {
            part.metadata["worker"]: Writer(
                part.anchor.host, part.metadata.get("client", ""), tokens_by_second(part.table)
            )
            for part in self._requests
            if part.anchor is not None
            and "worker" in part.metadata
            and part.metadata.get("phase", "load") == "load"
        }


def request_columns(run: RunDirectory) -> pa.Schema:
    """The columns of `AttemptParts.requests` for any attempt of the run: unknown ones of any part included."""
    parts = (
        read_part(path)
        for point_id in run.points()
        for attempt in run.attempts(point_id)
        for path in run.parts_of(point_id, attempt)
    )
    schemas = [part.table.schema for part in parts if not _is_health(part)]
    return unify([schema.empty_table() for schema in schemas], _REQUESTS.columns).schema


def gpu_samples(run: RunDirectory, history: History) -> Gathered:
    """The samples of all GPU monitors, with `aligned_unix_ns`."""
    parts = [read_part(path) for path in run.gpu_parts()]
    gathered = _gather(run, parts, _GPU, history.all_clocks())
    not_measured = tuple(f"{run.relative(part.path)}: {text}" for part in parts if (text := _not_measured(part)))
    return Gathered(gathered.table, (*gathered.warnings, *not_measured))


def server_samples(run: RunDirectory, history: History) -> Gathered:
    """The scrapes of all engines, with `aligned_unix_ns`."""
    parts = [read_part(path) for path in run.server_parts()]
    return _gather(run, parts, _SERVER, history.all_clocks())


def log_warnings(run: RunDirectory) -> list[str]:
    """What is wrong with the parts of the engines' logs, whose rows are in no table of the merge."""
    return [text for path in run.server_log_parts() for text in _damage(run, read_part(path))]


def _damage(run: RunDirectory, part: Part) -> list[str]:
    if part.warning is None:
        return []
    return [f"{run.relative(part.path)}: {part.warning.removeprefix(f'{part.path.name}: ')}"]


def _not_measured(part: Part) -> str | None:
    """What is to be said of the clock of a monitor outside the cluster; None where it is known exactly."""
    source, offset = part.metadata.get("offset_source"), ClockOffset.from_metadata(part.metadata)
    if offset is None or source not in ("given", "assumed"):
        return None
    return offset_text(source, offset)


def _without_chunks(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names if name not in _CHUNK_COLUMNS])


def _is_health(part: Part) -> bool:
    return _HEALTH_COLUMN in part.table.column_names


def _gather(run: RunDirectory, parts: Sequence[Part], kind: _Kind, clocks: Clocks) -> Gathered:
    """All rows in the order of their kind, with their stamps on the coordinator's clock."""
    tables: list[pa.Table] = []
    warnings: list[str] = []
    for part in parts:
        name = run.relative(part.path)
        warnings += _damage(run, part)
        readings = _readings(part, clocks)
        table = part.table
        for source, aligned in kind.stamps.items():
            if source in table.column_names:
                table = table.append_column(aligned, _aligned(part, table[source], readings))
        if part.anchor is None and table.num_rows:
            warnings.append(f"{name}: carries no clock anchor, its rows are on no common time line")
        tables.append(name_source(table, name))
    rows = unify(tables, kind.columns).sort_by([(key, "ascending") for key in kind.order])
    return Gathered(rows, tuple(sorted(warnings)))


def _readings(part: Part, clocks: Clocks) -> Sequence[ClockReading]:
    """Offsets of the clock on which a part hangs: measured when it was begun, and after that.

    Measurements from before are of another anchor, and say nothing of this part if it has its own.
    """
    name = part.metadata.get("worker") or part.metadata.get("clock") or Path(part.path).stem
    journalled = clocks.get(name, ())
    offset = ClockOffset.from_metadata(part.metadata)
    if offset is None or part.anchor is None:
        return journalled
    begun = ClockReading(offset.to_coordinator_ns(part.anchor.unix_ns), offset.offset_ns, offset.uncertainty_ns)
    return [begun, *(reading for reading in journalled if reading.at_unix_ns > begun.at_unix_ns)]


def _aligned(part: Part, stamps: pa.ChunkedArray, readings: Sequence[ClockReading]) -> pa.Array:
    if part.anchor is None:
        return pa.nulls(len(stamps), pa.int64())
    return align_monotonic(stamps, part.anchor, readings)
