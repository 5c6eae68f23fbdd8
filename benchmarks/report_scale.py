"""How long `raybench merge` and `raybench report` take over a run of a million requests, and how much memory.

    python benchmarks/report_scale.py [--requests 1000000] [--points 40] [--chunks 64] [--keep FOLDER]

Makes a run directory as workers leave it (two arms, closed loops, every chunk stamped, GPU samples), then runs
the two commands in processes of their own and prints wall time, CPU time and the largest resident size of each.
Runs on one machine; nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from raybench.records.clock import ClockAnchor
from raybench.records.journal import Journal
from raybench.records.rundir import RunDirectory
from raybench.records.schema import GPU, REQUESTS
from raybench.records.stream import part_metadata
from raybench.records.strict_json import write_json

START_UNIX_NS = 1_800_000_000 * 10**9
ARMS = ("tp2pp4", "tp8")
GPUS_PER_ARM = 8
GPU_INTERVAL_NS = 500_000_000
#: Each point's requests follow one another in waves of its concurrency.
WAVE_NS = 3_000_000_000
WORKER = "w000"


class BenchClock:
    """The journal's clock; time is set, not waited for."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return START_UNIX_NS + self.now_ns


def requests_table(point_id: str, count: int, concurrency: int, chunks: int, start_ns: int) -> pa.Table:
    """Records of one attempt: TTFT 200 ms to 1 s, then a chunk about every 30 ms, of one to three tokens."""
    rng = np.random.default_rng(count + concurrency)
    ticket = np.arange(count, dtype=np.int64)
    sent = start_ns + ticket // concurrency * WAVE_NS + rng.integers(0, 2_000_000, count)
    first = sent + rng.integers(200_000_000, 1_000_000_000, count)
    gaps = rng.integers(10_000_000, 50_000_000, (count, chunks))
    gaps[:, 0] = 0
    stamps = first[:, None] + np.cumsum(gaps, axis=1)
    carried = rng.integers(1, 4, (count, chunks), dtype=np.int32)
    last = stamps[:, -1]
    offsets = np.arange(0, count * chunks + 1, chunks, dtype=np.int32)
    columns: dict[str, object] = {
        "point_id": pa.array([point_id]).take(pa.array(np.zeros(count, dtype=np.int64))),
        "attempt": np.ones(count, dtype=np.int32),
        "phase": pa.array(["load"]).take(pa.array(np.zeros(count, dtype=np.int64))),
        "worker": pa.array([WORKER]).take(pa.array(np.zeros(count, dtype=np.int64))),
        "ticket": ticket,
        "window_start": ticket * 64,
        "window_end": ticket * 64 + 1024,
        "tries": np.ones(count, dtype=np.int32),
        "asked_ns": sent - 60_000,
        "connected_ns": sent - 40_000,
        "sent_ns": sent,
        "headers_ns": sent + 1_000_000,
        "first_event_ns": first,
        "first_token_ns": first,
        "last_token_ns": last,
        "end_ns": last + 100_000,
        "outcome": pa.array(["ok"]).take(pa.array(np.zeros(count, dtype=np.int64))),
        "input_tokens": np.full(count, 1024),
        "output_tokens": carried.sum(axis=1).astype(np.int64),
        "tokens_source": pa.array(["server"]).take(pa.array(np.zeros(count, dtype=np.int64))),
        "cached_tokens": np.zeros(count, dtype=np.int64),
        "engine_queue_s": rng.random(count) * 0.1,
        "chunk_ns": pa.ListArray.from_arrays(offsets, stamps.ravel()),
        "chunk_tokens": pa.ListArray.from_arrays(offsets, carried.ravel()),
    }
    missing = {field.name: pa.nulls(count, field.type) for field in REQUESTS if field.name not in columns}
    return pa.table({field.name: (columns | missing)[field.name] for field in REQUESTS}).cast(REQUESTS)


def write_part(path: Path, table: pa.Table, schema_name: str, **labels: str) -> None:
    """A part as a worker leaves it: a stream of batches with the clock's anchor."""
    anchor = ClockAnchor("bench-host", "boot", START_UNIX_NS, 0)
    schema = table.schema.with_metadata(part_metadata(schema_name, anchor, **labels))
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in table.replace_schema_metadata(schema.metadata).to_batches(max_chunksize=2048):
            writer.write_batch(batch)


def gpu_table(duration_ns: int) -> pa.Table:
    """Samples of all devices twice a second."""
    at = np.arange(0, duration_ns, GPU_INTERVAL_NS, dtype=np.int64)
    tables = []
    for gpu in range(GPUS_PER_ARM):
        total = 80 * 1024**3
        rows: dict[str, object] = {
            "host": ["gpu-host"] * at.size,
            "gpu_uuid": [f"GPU-{gpu}"] * at.size,
            "gpu_index": np.full(at.size, gpu, dtype=np.int32),
            "sample_ns": at,
            "sample_unix_ns": at + START_UNIX_NS,
            "memory_total_bytes": np.full(at.size, total),
            "memory_free_bytes": (total * (0.1 + 0.05 * np.sin(at / 1e11 + gpu))).astype(np.int64),
            "gap": np.zeros(at.size, dtype=bool),
        }
        missing = {field.name: pa.nulls(at.size, field.type) for field in GPU if field.name not in rows}
        tables.append(pa.table({field.name: (rows | missing)[field.name] for field in GPU}).cast(GPU))
    return pa.concat_tables(tables)


def make_run(path: Path, requests: int, points: int, chunks: int) -> RunDirectory:
    """A finished run with so many requests in all."""
    run = RunDirectory(path)
    run.create()
    levels = [8 * (k + 1) for k in range(points // len(ARMS))]
    count = requests // (len(levels) * len(ARMS))
    clock = BenchClock()
    journal = Journal(run.journal, clock)
    planned = []
    for arm in ARMS:
        clock.now_ns += 1_000_000_000
        journal.append("arm_ready", arm=arm, limits={"max_running_requests": 128, "kv_pool_tokens": 1_000_000})
        for level in levels:
            point_id = f"{arm}/1k-128/c{level}"
            planned.append(_planned(point_id, arm, level, count))
            table = requests_table(point_id, count, level, chunks, clock.now_ns + 1_000_000_000)
            write_part(run.part(point_id, 1, WORKER), table, "requests", worker=WORKER, phase="load")
            where = {"point_id": point_id, "attempt": 1}
            journal.append("attempt_started", **where, serial=1, windows={})
            journal.append("load_started", **where)
            clock.now_ns = int(table["end_ns"][-1].as_py()) + WAVE_NS
            journal.append("load_ended", **where)
            journal.append("verdict", **where, verdict="accept", findings=[], hit_rates={"requests": 0.0})
            journal.append("point_committed", **where, verdict="accepted", reasons=[])
    journal.append("run_ended", status="complete")
    journal.close()
    write_part(run.gpu_part("gpu-host"), gpu_table(clock.now_ns), "gpu")
    write_json(run.manifest, {"run_id": path.name, "points": planned})
    return run


def _planned(point_id: str, arm: str, level: int, count: int) -> dict[str, object]:
    return {
        "point_id": point_id,
        "arm": arm,
        "workload": "1k-128",
        "concurrency": level,
        "requests": count,
        "input_tokens": 1024,
        "output_tokens": 128,
        "active_limit": 128,
        "queueing": level > 128,
        "skip_reason": None,
    }


def measure(arguments: Sequence[str]) -> str:
    """Run raybench in a process of its own: `wall 12.3 s, CPU 14.5 s, 812 MiB`."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "raybench", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status:
        raise SystemExit(f"raybench {' '.join(arguments)} ended with status {status}")
    return f"wall {wall:.1f} s, CPU {usage.ru_utime + usage.ru_stime:.1f} s, {usage.ru_maxrss / 1024:,.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--keep", type=Path, help="make the run here and keep it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="raybench-scale-") as temporary:
        path = arguments.keep or Path(temporary) / "scale"
        began = time.perf_counter()
        run = make_run(path, arguments.requests, arguments.points, arguments.chunks)
        print(f"made {arguments.requests:,} requests in {time.perf_counter() - began:.0f} s", flush=True)
        print(f"merge:  {measure(['merge', str(run.path)])}", flush=True)
        print(f"report: {measure(['report', str(run.path)])}", flush=True)
        sizes = {name.name: name.stat().st_size for name in (run.requests_parquet, run.report_html, run.report_md)}
        print(", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes.items()))
        print(f"made with at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
