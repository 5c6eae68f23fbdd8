"""Part files -> tables on one schema and one time line. Used by the merge, and by the check of an attempt.

Every row names the part from which it came (`source_part`). A torn part gives its whole batches and a
warning. The result does not depend on the order in which parts are found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from raybench.analysis.alignment import ClockReading, align_monotonic, offset_text
from raybench.analysis.client_load import Writer, tokens_by_second
from raybench.analysis.history import History
from raybench.records.clock import ClockOffset
from raybench.records.rundir import RunDirectory
from raybench.records.schema import GPU, REQUESTS, SERVER, WORKER
from raybench.records.stream import SOURCE_COLUMN, Part, name_source, read_part, unify

#: Only parts of the worker's own health have it.
_HEALTH_COLUMN = "loop_lag_ms_max"


#: Monotonic stamps of a part, and the columns that hold them on the coordinator's clock.
_REQUEST_STAMPS = {"sent_ns": "sent_unix_ns", "end_ns": "end_unix_ns"}
_SAMPLE_STAMPS = {"sample_ns": "aligned_unix_ns"}
_CHUNK_COLUMNS = ("chunk_ns", "chunk_tokens")


@dataclass(frozen=True)
class Gathered:
    """Rows of some parts, sorted, what was wrong with the parts, and of requests who wrote those of the load."""

    table: pa.Table
    warnings: tuple[str, ...] = ()
    writers: Mapping[str, Writer] = field(default_factory=dict)


def requests_of(
    run: RunDirectory, point_id: str, attempt: int, history: History, *, chunks: bool = True
) -> Gathered:
    """Request records of one attempt, prewarm included, with `sent_unix_ns` and `end_unix_ns`.

    chunks: with the lists of the chunks, which are nine tenths of the records; else these are null.
    """
    parts = _attempt_parts(run, point_id, attempt, health=False)
    writers = _writers(parts)
    if not chunks:
        parts = [replace(part, table=_without_chunks(part.table)) for part in parts]
    gathered = _gather(run, parts, REQUESTS, _REQUEST_STAMPS, history, point_id, attempt)
    order = ["phase", "ticket", "worker", "sent_ns", SOURCE_COLUMN]
    return Gathered(_sorted(gathered.table, order), gathered.warnings, writers)


def request_columns(run: RunDirectory) -> pa.Schema:
    """The columns of `requests_of` for any attempt of the run: unknown ones of any part included."""
    parts = (
        part
        for point_id in run.points()
        for attempt in run.attempts(point_id)
        for part in _attempt_parts(run, point_id, attempt, health=False)
    )
    return unify([part.table.slice(0, 0) for part in parts], _known(REQUESTS, _REQUEST_STAMPS)).schema


def worker_columns() -> pa.Schema:
    """The columns of `worker_health_of`, also of a run that ended before anything was sent."""
    return _known(WORKER, _SAMPLE_STAMPS)


def worker_health_of(run: RunDirectory, point_id: str, attempt: int, history: History) -> Gathered:
    """The workers' own health during one attempt, with `aligned_unix_ns`."""
    parts = _attempt_parts(run, point_id, attempt, health=True)
    gathered = _gather(run, parts, WORKER, _SAMPLE_STAMPS, history, point_id, attempt)
    return Gathered(_sorted(gathered.table, ["worker", "sample_ns", SOURCE_COLUMN]), gathered.warnings)


def gpu_samples(run: RunDirectory, history: History) -> Gathered:
    """The samples of all GPU monitors, with `aligned_unix_ns`."""
    parts = [read_part(path) for path in run.gpu_parts()]
    gathered = _gather(run, parts, GPU, _SAMPLE_STAMPS, history)
    order = ["host", "gpu_uuid", "aligned_unix_ns", "sample_ns", SOURCE_COLUMN]
    not_measured = tuple(f"{run.relative(part.path)}: {text}" for part in parts if (text := _not_measured(part)))
    return Gathered(_sorted(gathered.table, order), (*gathered.warnings, *not_measured))


def server_samples(run: RunDirectory, history: History) -> Gathered:
    """The scrapes of all engines, with `aligned_unix_ns`."""
    parts = [read_part(path) for path in run.server_parts()]
    gathered = _gather(run, parts, SERVER, _SAMPLE_STAMPS, history)
    return Gathered(_sorted(gathered.table, ["arm", "aligned_unix_ns", SOURCE_COLUMN]), gathered.warnings)


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


def _attempt_parts(run: RunDirectory, point_id: str, attempt: int, *, health: bool) -> list[Part]:
    parts = [read_part(path) for path in run.parts_of(point_id, attempt)]
    return [part for part in parts if (_HEALTH_COLUMN in part.table.column_names) == health]


def _writers(parts: Sequence[Part]) -> dict[str, Writer]:
    """By worker, of the parts of the load; a part without an anchor does not say on which host it was written."""
    return {
        part.metadata["worker"]: Writer(
            part.anchor.host, part.metadata.get("client", ""), tokens_by_second(part.table)
        )
        for part in parts
        if part.anchor is not None and "worker" in part.metadata and part.metadata.get("phase", "load") == "load"
    }


def _without_chunks(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names if name not in _CHUNK_COLUMNS])


def _gather(
    run: RunDirectory,
    parts: Sequence[Part],
    schema: pa.Schema,
    stamps: dict[str, str],
    history: History,
    point_id: str | None = None,
    attempt: int | None = None,
) -> Gathered:
    """All parts under `schema`, each with its columns `stamps` brought onto the coordinator's clock."""
    tables: list[pa.Table] = []
    warnings: list[str] = []
    for part in parts:
        name = run.relative(part.path)
        warnings += _damage(run, part)
        readings = _readings(part, history, point_id, attempt)
        table = part.table
        for source, aligned in stamps.items():
            if source in table.column_names:
                table = table.append_column(aligned, _aligned(part, table[source], readings))
        if part.anchor is None and table.num_rows:
            warnings.append(f"{name}: carries no clock anchor, its rows are on no common time line")
        tables.append(name_source(table, name))
    return Gathered(unify(tables, _known(schema, stamps)), tuple(sorted(warnings)))


def _known(schema: pa.Schema, stamps: dict[str, str]) -> pa.Schema:
    added = [(name, pa.int64()) for name in stamps.values()]
    return pa.schema([*schema, *added, (SOURCE_COLUMN, pa.string())])


def _readings(part: Part, history: History, point_id: str | None, attempt: int | None) -> list[ClockReading]:
    """Offsets of the clock on which a part hangs: measured when it was begun, and after that.

    Measurements from before are of another anchor, and say nothing of this part if it has its own.
    """
    name = part.metadata.get("worker") or part.metadata.get("clock") or Path(part.path).stem
    journalled = history.clock_readings(name, point_id, attempt)
    offset = ClockOffset.from_metadata(part.metadata)
    if offset is None or part.anchor is None:
        return journalled
    begun = ClockReading(offset.to_coordinator_ns(part.anchor.unix_ns), offset.offset_ns, offset.uncertainty_ns)
    return [begun, *(reading for reading in journalled if reading.at_unix_ns > begun.at_unix_ns)]


def _aligned(part: Part, stamps: pa.ChunkedArray, readings: Sequence[ClockReading]) -> pa.Array:
    if part.anchor is None:
        return pa.nulls(len(stamps), pa.int64())
    return align_monotonic(stamps, part.anchor, readings)


def _sorted(table: pa.Table, keys: list[str]) -> pa.Table:
    return table.sort_by([(key, "ascending") for key in keys])
