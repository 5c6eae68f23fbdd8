#!/usr/bin/env python3
"""The GPU's memory from before a server's start to after its end, read by raybench's own NVML monitor.

    timeline.py OUT INTERVAL_SECONDS       until SIGTERM

A run of raybench watches the GPU only while it measures; this sees the start and the stop of the server too.
OUT/timeline.parquet has rows of records.schema.GPU (of all devices: read it by `gpu_uuid`), OUT/timeline.json
what a sample costs, which fields the device does not give, the gaps, the memory at each mark of OUT/marks.csv
(NVML's "used", of the first device), and the memory of each process as NVML tells it once a second.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pynvml

from raybench.monitors.gpu import GpuSampler
from raybench.monitors.nvml import NvmlSource
from raybench.records.clock import SystemClock
from raybench.records.schema import GPU

COST_SAMPLES = 300
DRAIN_S = 1.0
MIB = 1024 * 1024


def sample_cost_us() -> dict[str, float]:
    """Of one reading of all devices, on an otherwise idle process."""
    source = NvmlSource()
    source.open()
    costs = []
    for _ in range(COST_SAMPLES):
        begin_ns = time.perf_counter_ns()
        list(source.sample())
        costs.append((time.perf_counter_ns() - begin_ns) / 1000)
    source.close()
    costs.sort()
    return {
        "p50": statistics.median(costs),
        "p99": costs[int(0.99 * COST_SAMPLES) - 1],
        "max": costs[-1],
    }


def processes() -> list[dict[str, Any]]:
    """Memory by process, per device, and what asking costs."""
    rows: list[dict[str, Any]] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        begin_ns = time.perf_counter_ns()
        try:
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError as error:
            rows.append({"unix_s": time.time(), "gpu": index, "error": str(error)})
            continue
        rows.append(
            {
                "unix_s": time.time(),
                "gpu": index,
                "cost_us": (time.perf_counter_ns() - begin_ns) / 1000,
                "bytes_by_pid": {str(one.pid): one.usedGpuMemory for one in running},
            }
        )
    return rows


def at_marks(samples: pa.Table, marks: Path) -> list[dict[str, Any]]:
    """For each line `unix seconds,what` of the marks: MiB in use then, and the most until the next mark."""
    if not marks.is_file():
        return []
    lines = [line.split(",", 1) for line in marks.read_text().splitlines()]
    stamps, used = (
        samples["sample_unix_ns"].to_numpy(),
        samples["memory_used_bytes"].to_numpy(zero_copy_only=False),
    )
    edges = [int(float(unix_s) * 1e9) for unix_s, _ in lines] + [int(stamps[-1]) + 1]
    found = []
    for begin_ns, end_ns, (_, what) in zip(edges, edges[1:], lines, strict=False):
        within = used[(stamps >= begin_ns) & (stamps < end_ns)]
        if within.size:
            found.append({"mark": what, "mib": round(within[0] / MIB, 1), "mib_max": round(within.max() / MIB, 1)})
    return found


def main() -> int:
    out, interval_s = Path(sys.argv[1]), float(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    pynvml.nvmlInit()
    cost_us = sample_cost_us()
    sampler = GpuSampler(NvmlSource(), SystemClock(), "gpu-host", interval_s)
    if not (found := sampler.start()).available:
        sys.exit(found.summary)
    rows: list[dict[str, object]] = []
    by_process: list[dict[str, Any]] = []
    while not ended.wait(DRAIN_S):
        rows += sampler.drain()
        by_process += processes()
    status = sampler.status()
    sampler.stop()
    rows += sampler.drain()
    table = pa.Table.from_pylist(rows, schema=GPU)
    pq.write_table(table, out / "timeline.parquet", compression="zstd")
    told = {
        "sample_cost_us": cost_us,
        "interval_s": interval_s,
        "samples": status.samples,
        "gaps": status.gap_rows,
        "warnings": list(status.warnings),
        "at_marks": at_marks(table.filter(pc.equal(table["gpu_index"], 0)), out / "marks.csv"),
        "null_fields": [name for name in table.column_names if name != "note" and table[name].null_count],
        "processes": by_process,
    }
    (out / "timeline.json").write_text(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
