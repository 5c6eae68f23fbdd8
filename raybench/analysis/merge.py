"""Parts + journal -> points, requests, gpu, server and worker tables in Parquet, each written atomically.

Runs on the coordinator after a run, or on a laptop from a copied run directory: without Ray, without
the server, as often as one likes. Parts are only read. Attempts are handled one after another, so that
memory holds the records of one attempt and not of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import raybench
from raybench.analysis.artifacts import arm_facts, artifact_entry, has_prompts
from raybench.analysis.engine_log import join_log
from raybench.analysis.goodput import Goodput, goodput
from raybench.analysis.history import History, read_history
from raybench.analysis.parts import (
    HEALTH_COLUMNS,
    AttemptParts,
    gpu_samples,
    log_warnings,
    request_columns,
    server_samples,
)
from raybench.analysis.point_metrics import REQUEST_METRICS, Row, point_metrics
from raybench.analysis.points import (
    COMPRESSION,
    planned_points,
    point_facts,
    point_vram,
    struck_if_damaged,
    write_points,
    write_table,
)
from raybench.analysis.searches import search_entries, searches_of
from raybench.analysis.stats import PERCENTILE_METHOD
from raybench.analysis.vram import GpuSeries, gpu_series, in_use_bytes, over_all_gpus, whole_bytes
from raybench.engines.request_log import LoggedRequest, read_request_log
from raybench.errors import RunDirectoryError
from raybench.records.files import replacing
from raybench.records.journal import TORN_LINE, read_journal
from raybench.records.rundir import RunDirectory
from raybench.records.stream import unify
from raybench.records.strict_json import read_json, write_json
from raybench.scenario.search import Search, request_limits

#: File of how the tables were made and what merge had to say, beside them.
MERGE_JSON = "merge.json"

#: Columns of requests.parquet behind those of `records.schema.REQUESTS` and of the alignment.
DERIVED: dict[str, pa.DataType] = {
    **dict.fromkeys(REQUEST_METRICS, pa.float64()),
    "gpu_memory_peak_bytes": pa.int64(),
    "gpu_memory_mean_bytes": pa.int64(),
    "gpu_headroom_min_bytes": pa.int64(),
    "final": pa.bool_(),
}


def merge(run: RunDirectory) -> list[str]:
    """Make all tables of a run again from its parts. Returns the warnings, sorted; also in merge.json.

    points.parquet is written last: where it is, the others are. Raises RunDirectoryError when the run
    directory cannot be read.
    """
    manifest = run.read_manifest()
    if (made_by := manifest.get("provenance")) is not None:
        raise RunDirectoryError(f"{run.path}: not measured here ({made_by}): there are no parts to merge")
    lines = read_journal(run.journal)
    history = read_history(lines)
    gpu, server = gpu_samples(run, history), server_samples(run, history)
    gpu_table = _name_points(gpu.table.append_column("memory_in_use_bytes", in_use_bytes(gpu.table)), history)
    planned = planned_points(manifest, [*history.points, *run.points()])
    rows = {point["point_id"]: point_facts(point, history) for point in planned}
    searches = searches_of(manifest)
    found = _write_requests(run, rows, gpu_series(gpu_table), history, searches)
    write_table(run.gpu_parquet, gpu_table)
    write_table(run.server_parquet, _name_points(server.table, history))
    write_table(run.worker_parquet, unify(found.health, HEALTH_COLUMNS))
    if searches:
        write_json(run.searches_json, search_entries(manifest, lines, rows, found.goodputs))
    if found.artifacts:
        write_json(run.artifacts_json, [found.artifacts[name] for name in rows if name in found.artifacts])
    write_points(run, rows.values())
    torn = [f"journal.jsonl:{line['line']}: torn" for line in lines if line["event"] == TORN_LINE]
    warnings = sorted([*torn, *found.warnings, *gpu.warnings, *server.warnings, *log_warnings(run)])
    how = {"percentile_method": PERCENTILE_METHOD, "merged_by_version": raybench.__version__}
    write_json(run.path / MERGE_JSON, {**how, "warnings": warnings})
    return warnings


@dataclass
class _Found:
    """What reading the attempts leaves for the other files. By point: goodputs, artifacts."""

    health: list[pa.Table] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    goodputs: dict[str, Goodput] = field(default_factory=dict)
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)


def _write_requests(
    run: RunDirectory,
    rows: dict[str, Row],
    series: Sequence[GpuSeries],
    history: History,
    searches: Mapping[str, Search],
) -> _Found:
    """requests.parquet, attempt by attempt; what the final ones measured goes into their points' rows."""
    found = _Found()
    logs = {arm: _request_log(run, arm) for arm in {row["arm"] for row in rows.values()}}
    schema = pa.schema([*request_columns(run), *DERIVED.items()])
    with (
        replacing(run.requests_parquet) as path,
        pq.ParquetWriter(path, schema, compression=COMPRESSION) as writer,
    ):
        for point_id in run.points():
            row = rows[point_id]
            for attempt in run.attempts(point_id):
                parts = AttemptParts(run, point_id, attempt, history)
                gathered, health = parts.requests(), parts.health()
                tried = history.point(point_id).attempts.get(attempt)
                load = None if tried is None else tried.load_unix_ns
                requests, unjoined = join_log(gathered.table, logs[row["arm"]], load)
                found.health.append(health.table)
                found.warnings += [*gathered.warnings, *health.warnings]
                if unjoined is not None:
                    found.warnings.append(f"{point_id} attempt {attempt}: {unjoined}")
                final = row["final_attempt"] == attempt
                writer.write_table(_as(_request_table(requests, series, final=final), schema))
                if final:
                    row |= _measured(row, requests, series, history)
                    row |= struck_if_damaged(row, gathered.warnings)
                    _note_final(found, row, requests, run, searches.get(row["workload"]))
    return found


def _note_final(found: _Found, row: Row, requests: pa.Table, run: RunDirectory, search: Search | None) -> None:
    """What the final attempt of a prompt set or of a search for an SLO has to tell beside its row."""
    point_id = row["point_id"]
    if has_prompts(requests):
        found.artifacts[point_id] = artifact_entry(row, requests, _arm_facts(run, row["arm"]))
    if search is not None and search.slo is not None and row["verdict"] == "accepted":
        found.goodputs[point_id] = goodput(requests, request_limits(search))


def _request_log(run: RunDirectory, arm: str) -> list[LoggedRequest]:
    lines = (line for path in run.request_logs(arm) for line in path.read_bytes().splitlines())
    return list(read_request_log(lines))


def _arm_facts(run: RunDirectory, arm: str) -> dict[str, Any]:
    def told(name: str, nothing: Any) -> Any:
        path = run.arm(arm) / name
        return read_json(path) if path.is_file() else nothing

    return arm_facts(told("facts.json", {}), told("process.json", []), told("gate.json", {}))


def _request_table(requests: pa.Table, series: Sequence[GpuSeries], *, final: bool) -> pa.Table:
    """The records of one attempt with the columns `DERIVED`."""
    derived: dict[str, Any] = {name: metric(requests) for name, metric in REQUEST_METRICS.items()}
    derived |= _request_vram(requests, series)
    derived["final"] = pa.array(np.full(requests.num_rows, final))
    for name, column in derived.items():
        requests = requests.append_column(name, column)
    return requests


def _request_vram(requests: pa.Table, series: Sequence[GpuSeries]) -> dict[str, pa.Array]:
    """GPU memory over [sent, end] of each request; null where the request or the samples do not tell."""
    sent, end = requests["sent_unix_ns"], requests["end_unix_ns"]
    lived = np.asarray(pc.and_(pc.is_valid(sent), pc.is_valid(end)))
    usage = over_all_gpus(series, np.asarray(sent.fill_null(0)), np.asarray(end.fill_null(0)))
    return {
        "gpu_memory_peak_bytes": whole_bytes(np.where(lived, usage.peak, np.nan)),
        "gpu_memory_mean_bytes": whole_bytes(np.where(lived, usage.mean, np.nan)),
        "gpu_headroom_min_bytes": whole_bytes(np.where(lived, usage.headroom_min, np.nan)),
    }


def _measured(facts: Row, requests: pa.Table, series: Sequence[GpuSeries], history: History) -> Row:
    """What the records and samples of its final attempt add to a point's row."""
    attempt = history.point(facts["point_id"]).final
    row = point_metrics(requests, facts["concurrency"])
    if row["preemptions"] is None and attempt is not None:
        row["preemptions"] = attempt.preemptions
    return row | point_vram(series, facts["arm"], attempt, history)


def _name_points(samples: pa.Table, history: History) -> pa.Table:
    """Samples with the point and attempt under whose load they were taken; null between loads."""
    loads = history.load_times()
    at = samples["aligned_unix_ns"]
    stamps = np.asarray(at.fill_null(0), dtype=np.int64)
    index = np.searchsorted(np.asarray([load[0] for load in loads], dtype=np.int64), stamps, side="right") - 1
    ends = np.asarray([load[1] for load in loads] or [0], dtype=np.int64)
    outside = np.asarray(at.is_null()) | (index < 0) | (stamps > ends[index])
    which = pa.array(index, mask=outside)
    point_ids = pa.array([load[2] for load in loads], pa.string())
    attempts = pa.array([load[3] for load in loads], pa.int32())
    return samples.append_column("point_id", point_ids.take(which)).append_column("attempt", attempts.take(which))


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table under a schema that has all of its columns; those it lacks are null."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
