"""What the coordinator costs: a call of a worker, a megabyte of records, a million records in memory.

    make bench-coordinator      (or: python benchmarks/coordinator.py [--workers 2,4,8,16,32,64])

Real load workers in their Ray actors, the desk that leases and keeps records in another; the mock server answers.
For each number of workers, three loads that differ in what they ask of the desk:

- `held`: each worker holds one stream that answers after eight seconds: signs of life and health alone.
- `short`: 256 slots, answers of one token, and so few requests a slot that each ticket is asked for when its slot
  is free: many leases.
- `long`: answers of 128 tokens, as fast as they come: many megabytes.

CPU is user + system time of the desk's process; Ray's own processes are not in it. What a second, a call and a
megabyte cost is fitted to all loads at once (the largest misfit is printed). Every call
counts alike: what it costs is Ray's way to the method, not the method. The last line is one JSON object, from
which `fleet.py` computes fleets.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass

import numpy as np
import ours
from server import Work, mock_server, raise_open_files

from raybench.cluster.run import connected

HELD_MS = 8000
SHORT = Work(256, 4096, 1, 200, 0)
LONG = Work(256, 8192, 128, 0, 0)
#: The records of one load are too few to be seen beside what a process takes anyway.
READINGS = 32
CALLS = ("lease", "append", "heartbeat")


@dataclass(frozen=True)
class Seen:
    """One load as the desk saw it."""

    workers: int
    load: str
    wall_s: float
    calls: int
    mb: float
    leases_per_request: float
    bytes_per_request: float
    cpu_s: float


@dataclass(frozen=True)
class Memory:
    """Of reading back the records of the long load, a million of them, and of the largest worker."""

    judge_mb_per_million_records: float
    judge_cpu_s_per_million_records: float
    worker_rss_mb: float


def measure(workers: int) -> tuple[list[Seen], Memory]:
    """All three loads with so many workers."""
    works = {"held": Work(workers, workers, 1, HELD_MS, 0), "short": SHORT, "long": LONG}
    seen: list[Seen] = []
    with ours.fleet_of(workers) as fleet:
        for name, work in works.items():
            with mock_server(work) as port:
                spent = fleet.load(work, port)
            calls = sum(spent.calls[call] for call in CALLS)
            leases, size = spent.calls["lease"] / work.requests, spent.calls["bytes"]
            each = size / work.requests
            seen.append(Seen(workers, name, spent.wall_s, calls, size / 1e6, leases, each, spent.desk_cpu_s))
            print(seen[-1], flush=True)
        before = fleet.read_back(1)  # what the first reading brings along is no part of a record
        after = fleet.read_back(READINGS)
    millions = LONG.requests * READINGS / 1e6
    memory = (after.rss_mb - before.rss_mb) / millions, (after.cpu_s - before.cpu_s) / millions
    return seen, Memory(*memory, spent.worker_rss_mb)


def fitted(seen: list[Seen]) -> dict[str, float]:
    """CPU of the desk = seconds x idle + calls x call + megabytes x MB, by the least squares of relative errors.

    What would come out below zero is too small to be seen in the rest and counts as zero.
    """
    causes = np.array([[one.wall_s, one.calls, one.mb] for one in seen])
    cpu_s = np.array([one.cpu_s for one in seen])
    shares, costs = causes / cpu_s[:, None], np.zeros(3)
    seen_at_all = np.array([True, True, True])
    while (costs <= 0)[seen_at_all].any():
        costs[:] = 0
        costs[seen_at_all] = np.linalg.lstsq(shares[:, seen_at_all], np.ones(len(seen)), rcond=None)[0]
        seen_at_all &= costs > 0
    misfit = np.abs(shares @ costs - 1)
    return {
        "idle_cpu_ms_per_s": costs[0] * 1e3,
        "call_cpu_us": costs[1] * 1e6,
        "record_mb_cpu_ms": costs[2] * 1e3,
        "misfit_share_max": float(misfit.max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="2,4,8,16,32,64", help="64 workers take about 13 GB of memory")
    arguments = parser.parse_args()
    raise_open_files()
    seen: list[Seen] = []
    memories: list[Memory] = []
    for workers in arguments.workers.split(","):
        with connected():
            some, memory = measure(int(workers))
        seen, memories = [*seen, *some], [*memories, memory]
    print("\n" + table(seen) + "\n")
    result = fitted(seen)
    result |= {key: statistics.median(vars(one)[key] for one in memories) for key in vars(memories[0])}
    for load, name in (("short", "record_bytes_1_token"), ("long", "record_bytes_128_tokens")):
        result[name] = statistics.median(one.bytes_per_request for one in seen if one.load == load)
    print(json.dumps({key: round(value, 3) for key, value in result.items()}))


def table(seen: list[Seen]) -> str:
    lines = [
        "| workers | load | calls/s to the desk | MB/s of records | leases a request | desk, share of a core |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.workers} | {one.load} | {one.calls / one.wall_s:,.0f} | {one.mb / one.wall_s:.2f}"
        f" | {one.leases_per_request:.2f} | {one.cpu_s / one.wall_s:.1%} |"
        for one in seen
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
