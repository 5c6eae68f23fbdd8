"""The rows of points.parquet: one a planned point, whatever became of it. Pure.

A row joins the plan (who the point is), the journal (attempts, verdict, findings), the request
records of its final attempt (metrics) and the GPU samples of that attempt's load.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from raybench.analysis.alignment import largest_uncertainty_ns
from raybench.analysis.history import Attempt, History, PointHistory
from raybench.analysis.point_metrics import POINT_METRICS, Row
from raybench.analysis.vram import GpuSeries, over_all_gpus, whole_bytes

#: Names and types of what comes from the plan and the journal.
POINT_FACTS: dict[str, pa.DataType] = {
    "point_id": pa.string(),
    "arm": pa.string(),
    "workload": pa.string(),
    "concurrency": pa.int64(),
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

POINTS = pa.schema([*POINT_FACTS.items(), *POINT_METRICS.items(), *POINT_VRAM.items()])


def planned_points(manifest: Mapping[str, Any], history: History) -> list[dict[str, Any]]:
    """The manifest's plan in its order; points that only the journal knows follow, told by their names."""
    planned = {point["point_id"]: dict(point) for point in manifest.get("points") or []}
    for point_id in history.points:
        planned.setdefault(point_id, only_named(point_id))
    return list(planned.values())


def only_named(point_id: str) -> dict[str, Any]:
    """What a point's id alone tells of it."""
    arm, workload, level = point_id.split("/")
    return {
        "point_id": point_id,
        "arm": arm,
        "workload": workload,
        "concurrency": int(level.removeprefix("c")),
    }


def point_facts(planned: Mapping[str, Any], history: History) -> Row:
    """The columns `POINT_FACTS` of one planned point. `verdict` is None where nothing was committed."""
    point_id = planned["point_id"]
    point = history.point(point_id)
    final = point.final or Attempt(0)
    uncertainty_ns = largest_uncertainty_ns(history.attempt_clocks(point_id, final.attempt))
    return {
        "point_id": point_id,
        "arm": planned["arm"],
        "workload": planned["workload"],
        "concurrency": planned["concurrency"],
        "requests_planned": planned.get("requests"),
        "input_tokens": planned.get("input_tokens"),
        "output_tokens": planned.get("output_tokens"),
        "active_limit": planned.get("active_limit"),
        "queueing": planned.get("queueing"),
        "verdict": point.verdict,
        "reasons": _reasons(point),
        "findings": json.dumps([dict(finding) for finding in final.findings]),
        "attempts": len(point.attempts),
        "final_attempt": point.final_attempt,
        "attempt_history": json.dumps([asdict(tried) for _, tried in sorted(point.attempts.items())]),
        "windows": json.dumps(dict(final.windows)),
        "hit_rates": json.dumps(dict(final.hit_rates)),
        "started_unix_ns": final.started_unix_ns,
        "load_started_unix_ns": final.load_started_unix_ns,
        "load_ended_unix_ns": final.load_ended_unix_ns,
        "clock_uncertainty_ms": None if uncertainty_ns is None else uncertainty_ns / 1e6,
    }


def _reasons(point: PointHistory) -> list[str]:
    """Why the point has no valid number; empty for an accepted one."""
    if point.verdict is not None:
        return list(point.reasons)
    return ["interrupted: no attempt was committed" if point.attempts else "not measured"]


def point_vram(
    series: Sequence[GpuSeries], span: tuple[int, int] | None, idle_span: tuple[int, int] | None
) -> Row:
    """The columns `POINT_VRAM`: usage over the load, idle from the samples of `idle_span`.

    The headline peak is the highest of any GPU, the headroom the least of any GPU. A span of None
    (no load, no idle time known) leaves its columns null.
    """
    row: Row = dict.fromkeys(POINT_VRAM)
    if span is None:
        return row
    start, end = (np.asarray([stamp], dtype=np.int64) for stamp in span)
    gpus = [_gpu(gpu, span, idle_span) for gpu in series]
    idle = [gpu["idle_bytes"] for gpu in gpus if gpu["idle_bytes"] is not None]
    usage = over_all_gpus(series, start, end)
    covered = [gpu.covers(*span) for gpu in series]
    has_data = any(gpu["samples"] for gpu in gpus)
    return {
        "gpu_idle_bytes": max(idle, default=None),
        "gpu_memory_peak_bytes": whole_bytes(usage.peak)[0].as_py(),
        "gpu_memory_mean_bytes": whole_bytes(usage.mean)[0].as_py(),
        "gpu_headroom_min_bytes": whole_bytes(usage.headroom_min)[0].as_py(),
        "gpu_data": "none" if not has_data else "complete" if all(covered) else "incomplete",
        "gpus": json.dumps(gpus),
    }


def _gpu(gpu: GpuSeries, span: tuple[int, int], idle_span: tuple[int, int] | None) -> dict[str, Any]:
    start, end = (np.asarray([stamp], dtype=np.int64) for stamp in span)
    usage = gpu.usage(start, end)
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


def idle_span(arm: str, attempt: Attempt | None, history: History) -> tuple[int, int] | None:
    """When the arm stood idle with its weights loaded: from ready to the first load after it.

    Of an arm that was made ready more than once (a resumed run), the last time before the attempt
    counts. None when the journal does not tell.
    """
    if attempt is None or attempt.started_unix_ns is None:
        return None
    ready = [at for at in history.arms_ready_unix_ns.get(arm, ()) if at <= attempt.started_unix_ns]
    if not ready:
        return None
    loads = (
        tried.load_started_unix_ns
        for point_id, point in history.points.items()
        if point_id.startswith(f"{arm}/")
        for tried in point.attempts.values()
    )
    first = min((at for at in loads if at is not None and at >= ready[-1]), default=None)
    return None if first is None else (ready[-1], first)


def points_table(rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """The rows as a table of the fixed schema; columns that a row lacks are null."""
    return pa.Table.from_pylist([{name: row.get(name) for name in POINTS.names} for row in rows], schema=POINTS)
