"""The rows of points.parquet: one a planned point, whatever became of it. Pure, but for that file.

A row joins the plan (who the point is), the journal (attempts, verdict, findings), the request
records of its final attempt (metrics) and the GPU samples of that attempt's load. In memory a row holds lists and
mappings as they are; in the file they are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raybench.analysis.alignment import uncertainty_ns
from raybench.analysis.history import Attempt, History, PointHistory
from raybench.analysis.point_metrics import POINT_METRICS, Row
from raybench.analysis.stats import Stamps
from raybench.analysis.vram import GpuSeries, over_all_gpus, whole_bytes
from raybench.errors import RunDirectoryError
from raybench.records.files import replacing
from raybench.records.rundir import RunDirectory
from raybench.scenario.levels import Level

#: Of every Parquet file of a run.
COMPRESSION = "zstd"

#: A row of points.parquet, as `read_points` gives it.
Point = Mapping[str, Any]

#: Names and types of what comes from the plan and the journal.
POINT_FACTS: dict[str, pa.DataType] = {
    "point_id": pa.string(),
    "arm": pa.string(),
    "workload": pa.string(),
    "concurrency": pa.int64(),
    "rate_per_s": pa.float64(),
    "trace_speed": pa.float64(),
    "requests_planned": pa.int64(),
    "input_tokens": pa.int64(),
    "output_tokens": pa.int64(),
    "active_limit": pa.int64(),
    "queueing": pa.bool_(),
    "verdict": pa.string(),
    "reasons": pa.list_(pa.string()),
    "findings": pa.string(),
    "attempts": pa.int64(),
    "final_attempt": pa.int64(),
    "attempt_history": pa.string(),
    "windows": pa.string(),
    "hit_rates": pa.string(),
    "started_unix_ns": pa.int64(),
    "load_started_unix_ns": pa.int64(),
    "load_ended_unix_ns": pa.int64(),
    "clock_uncertainty_ms": pa.float64(),
}

#: Names and types of what comes from the GPU monitors.
POINT_VRAM: dict[str, pa.DataType] = {
    "gpu_idle_bytes": pa.int64(),
    "gpu_memory_peak_bytes": pa.int64(),
    "gpu_memory_mean_bytes": pa.int64(),
    "gpu_headroom_min_bytes": pa.int64(),
    "gpu_data": pa.string(),
    "gpus": pa.string(),
}

#: Columns that hold JSON, each with what stands for "nothing" in a row.
JSON_COLUMNS: dict[str, Any] = {
    "findings": [],
    "attempt_history": [],
    "windows": {},
    "hit_rates": {},
    "errors_by_class": {},
    "gpus": [],
}

#: Verdict of a point, and provenance of a run, that `raybench import` took from somebody's table: raybench
#: has not measured it and does not vouch for it.
IMPORTED = "imported"

#: Verdicts under which a point's numbers count.
WITH_NUMBERS = frozenset({"accepted", IMPORTED})

POINTS = pa.schema([*POINT_FACTS.items(), *POINT_METRICS.items(), *POINT_VRAM.items()])


def has_numbers(point: Point) -> bool:
    """Whether a point's numbers count; those of any other point are in no table's summary or comparison."""
    return point["verdict"] in WITH_NUMBERS


def is_boundary(point: Point) -> bool:
    """One output token: the row proves capacity and prefill, and says nothing of decoding."""
    return bool(point.get("output_tokens") == 1)


def planned_points(manifest: Mapping[str, Any], known: Iterable[str]) -> list[dict[str, Any]]:
    """The manifest's plan in its order; points of which only the id is known follow, told by it."""
    planned = {point["point_id"]: point for point in manifest.get("points") or []}
    for point_id in known:
        planned.setdefault(point_id, _only_named(point_id))
    return list(planned.values())


def _only_named(point_id: str) -> dict[str, Any]:
    """What a point's id alone tells of it."""
    arm, workload, level = id_parts(point_id)
    return {"point_id": point_id, "arm": arm, "workload": workload, **asdict(Level.of_name(level))}


def id_parts(point_id: str) -> tuple[str, str, str]:
    """(arm, workload, name of the level) of `arm/workload/c64`, as `scenario.plan.point_id` puts them together."""
    arm, workload, level = point_id.split("/")
    return arm, workload, level


def point_facts(planned: Mapping[str, Any], history: History) -> Row:
    """The columns `POINT_FACTS` of one planned point. `verdict` is None where nothing was committed."""
    point_id = planned["point_id"]
    point = history.point(point_id)
    final = point.final or Attempt(0)
    clocks = history.attempt_clocks(point_id, final.attempt)
    return {
        "point_id": point_id,
        "arm": planned["arm"],
        "workload": planned["workload"],
        "concurrency": planned.get("concurrency"),
        "rate_per_s": planned.get("rate_per_s"),
        "trace_speed": planned.get("trace_speed"),
        "requests_planned": planned.get("requests"),
        "input_tokens": planned.get("input_tokens"),
        "output_tokens": planned.get("output_tokens"),
        "active_limit": planned.get("active_limit"),
        "queueing": planned.get("queueing"),
        "verdict": point.verdict,
        "reasons": _reasons(point),
        "findings": list(final.findings),
        "attempts": len(point.attempts),
        "final_attempt": point.final_attempt,
        "attempt_history": [asdict(tried) for _, tried in sorted(point.attempts.items())],
        "windows": dict(final.windows),
        "hit_rates": dict(final.hit_rates),
        "started_unix_ns": final.started_unix_ns,
        "load_started_unix_ns": final.load_started_unix_ns,
        "load_ended_unix_ns": final.load_ended_unix_ns,
        "clock_uncertainty_ms": max((uncertainty_ns(of_one) / 1e6 for of_one in clocks.values()), default=None),
    }


def _reasons(point: PointHistory) -> list[str]:
    """Why the point has no valid number; empty for an accepted one."""
    if point.verdict is not None:
        return list(point.reasons)
    return ["interrupted: no attempt was committed" if point.attempts else "not measured"]


def struck_if_damaged(row: Mapping[str, Any], warnings: Sequence[str]) -> Row:
    """What changes in an accepted point's row when the parts of its final attempt are not what they were when it
    was accepted: its numbers are those of the records that are left, and no number of the point's."""
    if row["verdict"] != "accepted" or not warnings:
        return {}
    return {
        "verdict": "void",
        "reasons": [f"its records were damaged after it was accepted: {'; '.join(warnings)}"],
    }


def point_vram(series: Sequence[GpuSeries], arm: str, attempt: Attempt | None, history: History) -> Row:
    """The columns `POINT_VRAM` of one attempt: usage over its load, idle from before the arm's first load.

    The headline peak is the highest of any GPU, the headroom the least of any GPU. Only GPUs that were
    watched since the arm was ready belong to it. All null for an attempt without a load.
    """
    if attempt is None or (span := attempt.load_unix_ns) is None:
        return dict.fromkeys(POINT_VRAM)
    ready = history.ready_before(arm, span[0])
    series = [gpu for gpu in series if gpu.has_samples(span[0] if ready is None else ready, span[1])]
    idle_span = None if ready is None else (ready, _first_load(arm, ready, history))
    gpus = [_gpu(gpu, span, idle_span) for gpu in series]
    usage = over_all_gpus(series, *_spans(span))
    has_data = any(gpu["samples"] for gpu in gpus)
    covered = all(gpu.covers(*span) for gpu in series)
    return {
        "gpu_idle_bytes": max((g["idle_bytes"] for g in gpus if g["idle_bytes"] is not None), default=None),
        "gpu_memory_peak_bytes": whole_bytes(usage.peak)[0].as_py(),
        "gpu_memory_mean_bytes": whole_bytes(usage.mean)[0].as_py(),
        "gpu_headroom_min_bytes": whole_bytes(usage.headroom_min)[0].as_py(),
        "gpu_data": "none" if not has_data else "complete" if covered else "incomplete",
        "gpus": gpus,
    }


def _first_load(arm: str, ready_unix_ns: int, history: History) -> int:
    """When the first load of an arm after it was ready began; the arm stood idle until then."""
    loads = (start for start, _, point_id, _ in history.load_times() if id_parts(point_id)[0] == arm)
    return min(start for start in loads if start >= ready_unix_ns)


def free_idle_bytes(point: Point) -> int | None:
    """The least memory that any GPU of a point had free before its arm's first load; None where nobody saw."""
    known = [gpu for gpu in point["gpus"] if gpu["idle_bytes"] is not None and gpu["memory_total_bytes"]]
    return min((gpu["memory_total_bytes"] - gpu["idle_bytes"] for gpu in known), default=None)


def _spans(span: tuple[int, int]) -> tuple[Stamps, Stamps]:
    start, end = (np.asarray([stamp], dtype=np.int64) for stamp in span)
    return start, end


def _gpu(gpu: GpuSeries, span: tuple[int, int], idle_span: tuple[int, int] | None) -> dict[str, Any]:
    usage = gpu.usage(*_spans(span))
    idle = np.asarray([gpu.smallest_in_use(*idle_span) if idle_span else np.nan])
    return {
        "host": gpu.host,
        "gpu_uuid": gpu.gpu_uuid,
        "gpu_index": gpu.gpu_index,
        "memory_total_bytes": gpu.total_bytes,
        "idle_bytes": whole_bytes(idle)[0].as_py(),
        "peak_bytes": whole_bytes(usage.peak)[0].as_py(),
        "mean_bytes": whole_bytes(usage.mean)[0].as_py(),
        "headroom_min_bytes": whole_bytes(usage.headroom_min)[0].as_py(),
        "samples": int(usage.samples[0]),
    }


def write_points(run: RunDirectory, rows: Iterable[Mapping[str, object]]) -> None:
    """points.parquet in its fixed schema; columns that a row lacks are null."""
    cells = [{name: _cell(row, name) for name in POINTS.names} for row in rows]
    write_table(run.points_parquet, pa.Table.from_pylist(cells, schema=POINTS))


def write_table(path: Path, table: pa.Table) -> None:
    """A Parquet file of a run, atomically."""
    with replacing(path) as beside:
        pq.write_table(table, beside, compression=COMPRESSION)


def _cell(row: Mapping[str, object], name: str) -> object:
    value = row.get(name)
    return json.dumps(value) if name in JSON_COLUMNS and value is not None else value


def read_points(run: RunDirectory) -> list[dict[str, Any]]:
    """The rows of a run in the order of its plan. Raises RunDirectoryError when it was not merged."""
    table = pq.read_table(merged_table(run, run.points_parquet), memory_map=False)
    rows: list[dict[str, Any]] = table.to_pylist()
    return [row | {name: _told(row, name) for name in JSON_COLUMNS} for row in rows]


def _told(row: Mapping[str, Any], name: str) -> Any:
    return JSON_COLUMNS[name] if row.get(name) is None else json.loads(row[name])


def merged_table(run: RunDirectory, table: Path) -> Path:
    """One of the tables that the merge makes. Raises RunDirectoryError, with the way out, where it did not."""
    run.require()
    if not table.is_file():
        raise RunDirectoryError(f"{run.path}: has no {table.name}; make it with: raybench merge {run.path}")
    return table
