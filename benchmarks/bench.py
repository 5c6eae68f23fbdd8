"""What raybench's client costs and how true its stamps are, beside a bare C client, in one run.

    make bench            (or: python benchmarks/bench.py [--rounds 3] [--only 1024,4096,10000,cumulative])

A mock server in C (`mockserver/`) paces its streams and keeps the truth: when each token left it. Three
clients get the same work from it, one after the other, round by round: `bareclient/` in C (one epoll loop that
stamps and counts, the floor), the common aiohttp loop (`lines.py`), and raybench: a Ray worker actor with
leases, heartbeats and records written to parts by another actor. CPU is user + system time of the client's
process, from the start of the load to its end. Ratios are taken within a round; medians are printed. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial

import ours
from server import Work, bare, common_loop, mock_server, raise_open_files, truth

from raybench.cluster.run import connected

WORKS = {
    "1024": Work(1024, 2048, 128, 200, 20),
    "4096": Work(4096, 4096, 64, 200, 100),
    "10000": Work(10000, 10000, 24, 2000, 500, workers=2),
}
#: SGLang's own route: an event of the first 1,024 tokens holds 5.4 KB on average. Paced, for the cost of a byte
#: that comes while the client is not behind; and as fast as it goes, for the rate.
CUMULATIVE_PACED = Work(64, 128, 1024, 50, 10, api="generate")
CUMULATIVE_FLAT_OUT = Work(64, 256, 1024, 0, 0, api="generate")


def measure(name: str) -> dict[str, float]:
    """One round of all clients on one work."""
    work = WORKS[name]
    with mock_server(work) as port:
        floor = bare(work, port)
    with mock_server(work) as port:
        own = ours.raybench_client(work, port)
        true = truth(port)
    row = {
        "bare_cpu_s_per_million": floor["cpu_s_per_million"],
        "cpu_s_per_million": own["cpu_s_per_million"],
        "cpu_ratio": own["cpu_s_per_million"] / floor["cpu_s_per_million"],
        "desk_cpu_s_per_million": own["desk_cpu_s_per_million"],
        "worker_rss_mb": own["worker_rss_mb"],
        "bytes_per_token": true["bytes"] / true["tokens"],
        "ttft_error_ms_p50": own["ttft_ms_p50"] - true["ttft"]["p50_ms"],
        "ttft_error_ms_p99": own["ttft_ms_p99"] - true["ttft"]["p99_ms"],
        "gap_error_ms_p99": own["gap_ms_p99"] - true["itl"]["p99_ms"],
        "server_late_ms_p99": true["late"]["p99_ms"],
        "completed": own["completed"],
    }
    if work.streams <= 4096:
        with mock_server(work) as port:
            common = common_loop(work, port)
            true = truth(port)
        row["common_loop_cpu_ratio"] = common["cpu_s_per_million"] / floor["cpu_s_per_million"]
        row["common_loop_ttft_error_ms_p50"] = common["ttft_ms_p50"] - true["ttft"]["p50_ms"]
    return row


def measure_cumulative() -> dict[str, float]:
    """One round of the bare client and raybench on SGLang's cumulative stream: cost a megabyte, bytes a second."""
    row: dict[str, float] = {}
    for pace, work in (("paced", CUMULATIVE_PACED), ("flat_out", CUMULATIVE_FLAT_OUT)):
        with mock_server(work) as port:
            floor = bare(work, port)
            mb = truth(port)["bytes"] / 1e6
            row[f"bare_mb_per_s_{pace}"] = mb / truth(port)["span_s"]
        with mock_server(work) as port:
            own = ours.raybench_client(work, port)
            true = truth(port)
        row |= {
            f"mb_per_s_{pace}": true["bytes"] / 1e6 / true["span_s"],
            f"cpu_ms_per_mb_{pace}": own["cpu_s"] * 1e3 / mb,
            f"bare_cpu_ms_per_mb_{pace}": floor["cpu_s"] * 1e3 / mb,
            f"cpu_ratio_{pace}": own["cpu_s"] / floor["cpu_s"],
            f"completed_{pace}": own["completed"],
        }
    return row


def rounds_of(name: str, measure_once: Callable[[], dict[str, float]], rounds: int) -> dict[str, float]:
    """Medians over the rounds."""
    found: list[dict[str, float]] = []
    for number in range(rounds):
        row = measure_once()
        told = ", ".join(f"{key} {value:.2f}" for key, value in row.items())
        print(f"{name} streams, round {number + 1}: {told}", flush=True)
        found.append(row)
    return {key: statistics.median(row[key] for row in found) for key in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="1024,4096,10000,cumulative")
    arguments = parser.parse_args()
    raise_open_files()
    results: dict[str, float] = {}
    with connected():
        for name in arguments.only.split(","):
            if name == "cumulative":
                medians = rounds_of(name, measure_cumulative, arguments.rounds)
                results |= {f"cumulative_{key}": round(value, 3) for key, value in medians.items()}
                continue
            rounds = arguments.rounds if WORKS[name].streams < 10000 else 1
            for key, value in rounds_of(name, partial(measure, name), rounds).items():
                results[f"{key}_{name}"] = round(value, 3)
    if "completed_10000" in results:
        results["streams_completed_10000"] = results.pop("completed_10000")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
