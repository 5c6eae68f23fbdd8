"""What raybench's client costs and how true its stamps are, beside a bare C client, in one run.

    make bench            (or: python benchmarks/bench.py [--rounds 3] [--only 1024,4096,10000])

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
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raybench.cluster import auth

auth.for_own_ray()

import numpy as np  # noqa: E402
import ray  # noqa: E402

from raybench.analysis import metrics  # noqa: E402
from raybench.analysis.stats import nearest_rank  # noqa: E402
from raybench.cluster.actors import LoadWorkerActor  # noqa: E402
from raybench.cluster.run import connected  # noqa: E402
from raybench.corpus.rendered import render_ids  # noqa: E402
from raybench.corpus.synthetic import synthetic_ids  # noqa: E402
from raybench.engines.contract import RequestShape  # noqa: E402
from raybench.load.leases import split_slots  # noqa: E402
from raybench.load.order import Endpoint, Order  # noqa: E402
from raybench.protocol.desk import OrderDesk  # noqa: E402
from raybench.records.clock import NO_OFFSET, AnchoredClock  # noqa: E402
from raybench.records.parts import PartFiles  # noqa: E402
from raybench.records.rundir import RunDirectory  # noqa: E402
from raybench.records.schema import REQUESTS  # noqa: E402
from raybench.records.stream import read_part, unify  # noqa: E402
from raybench.scenario.schema import RequestLimits, SyntheticCorpus  # noqa: E402

HERE = Path(__file__).parent
INPUT_TOKENS = 128


@dataclass(frozen=True)
class Work:
    """One load: `streams` at once, `requests` in all, each of `tokens`; pacing in ms; raybench workers."""

    streams: int
    requests: int
    tokens: int
    ttft_ms: float
    gap_ms: float
    workers: int = 1

    @property
    def total_tokens(self) -> int:
        return self.requests * self.tokens


WORKS = {
    "1024": Work(1024, 2048, 128, 200, 20),
    "4096": Work(4096, 4096, 64, 200, 100),
    "10000": Work(10000, 10000, 24, 2000, 500, workers=2),
}


@contextmanager
def mock_server(work: Work) -> Iterator[int]:
    """A fresh server with the work's pacing; its port."""
    port = 21000 + os.getpid() % 2000
    command = [HERE / "mockserver" / "mockserver", "--port", str(port), "--quiet"]
    command += ["--ttft", str(work.ttft_ms), "--itl", str(work.gap_ms)]
    with subprocess.Popen([str(word) for word in command]) as server:
        try:
            for _ in range(100):
                try:
                    truth(port)
                    break
                except OSError:
                    time.sleep(0.05)
            yield port
        finally:
            server.terminate()


def truth(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/mock/truth", timeout=10) as reply:
        return dict(json.loads(reply.read()))


def bare(work: Work, port: int) -> dict[str, float]:
    """The C client: CPU seconds per million tokens, and its own view of the latencies."""
    command = [str(HERE / "bareclient" / "bareclient"), "--port", str(port), "--words", str(INPUT_TOKENS)]
    command += ["--conns", str(work.streams), "--requests", str(work.requests), "--tokens", str(work.tokens)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return {"cpu_s_per_million": (told["user"] + told["sys"]) / work.total_tokens * 1e6, **told}


def common_loop(work: Work, port: int) -> dict[str, float]:
    """`lines.py`: what most tools do, a task that reads lines and parses each."""
    command = [sys.executable, str(HERE / "lines.py"), str(port), str(work.streams), str(work.requests)]
    command += [str(work.tokens), str(INPUT_TOKENS)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"cpu_s_per_million": told["cpu_s"] / work.total_tokens * 1e6, **told}


class Desk:
    """The coordinator's desk in a process of its own, as in a run."""

    def __init__(self, path: str) -> None:
        run = RunDirectory(Path(path))
        run.create()
        self._files = PartFiles(run.path)
        self._desk = OrderDesk(run, self._files, AnchoredClock())

    async def open(self, requests: int, slots: dict[str, int], workers: dict[str, Any]) -> None:
        async def ask_back(worker: str, *recall: Any) -> Any:
            return await workers[worker].recall.remote(*recall)

        self._desk.open("bench/load/c1", 1, "load", requests, slots, ask_back)

    async def close(self) -> None:
        self._desk.close()

    async def lease(self, *arguments: Any) -> list[int]:
        return await self._desk.lease(*arguments)

    async def append(self, *arguments: Any) -> None:
        await self._desk.append(*arguments)

    async def heartbeat(self, *arguments: Any) -> None:
        await self._desk.heartbeat(*arguments)

    async def cpu_s(self) -> float:
        return time.process_time()


class Worker(LoadWorkerActor):
    async def cpu_s(self) -> float:
        return time.process_time()


def raybench_client(work: Work, port: int, client: str) -> dict[str, float]:
    """Ray worker actors against the server: CPU of the workers and of the desk, latencies from the records."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        desk = ray.remote(Desk).options(num_cpus=0, max_concurrency=1000).remote(str(path))
        prompts = ray.put({"ids": render_ids(synthetic_ids(SyntheticCorpus(tokens=1024 * 1024)))})
        slots = {f"w{i}": share for i, share in enumerate(split_slots(work.streams, work.workers))}
        workers = {n: ray.remote(Worker).options(num_cpus=0).remote(n, desk, prompts) for n in slots}
        ray.get(desk.open.remote(work.requests, slots, workers))
        orders = {name: order(work, port, share, client) for name, share in slots.items()}
        ray.get([worker.arm.remote(orders[name]) for name, worker in workers.items()])
        before = ray.get([one.cpu_s.remote() for one in (*workers.values(), desk)])
        start = AnchoredClock().unix_ns() + 100_000_000
        ray.get([worker.run.remote(start, NO_OFFSET) for worker in workers.values()])
        after = ray.get([one.cpu_s.remote() for one in (*workers.values(), desk)])
        ray.get(desk.close.remote())
        run = RunDirectory(path)
        parts = [read_part(run.part("bench/load/c1", 1, name)).table for name in slots]
        rows = unify(parts, REQUESTS)
        for actor in (*workers.values(), desk):
            ray.kill(actor)
    spent = [b - a for a, b in zip(before, after, strict=True)]
    return {
        "cpu_s_per_million": sum(spent[:-1]) / work.total_tokens * 1e6,
        "desk_cpu_s_per_million": spent[-1] / work.total_tokens * 1e6,
        "completed": metrics.requests_ok(rows),
        **latencies(rows),
    }


def order(work: Work, port: int, slots: int, client: str) -> Order:
    return Order(
        point_id="bench/load/c1",
        attempt=1,
        phase="load",
        endpoint=Endpoint(f"http://127.0.0.1:{port}", "openai"),
        shape=RequestShape("completions", INPUT_TOKENS, work.tokens, model="mock"),
        limits=RequestLimits(),
        slots=slots,
        windows=np.arange(work.requests, dtype=np.int64) * 64,
        rid_prefix="rb-bench-00001-l",
        client=client,
    )


def latencies(rows: Any) -> dict[str, float]:
    """TTFT and chunk-gap percentiles in ms."""
    ttft = metrics.sample(metrics.ttft_ms(rows))
    gaps = metrics.chunk_gap_ms(rows)
    return {
        f"{name}_p{percent}": float(nearest_rank(values, percent) or 0)
        for name, values in (("ttft_ms", ttft), ("gap_ms", gaps))
        for percent in (50, 99)
    }


def measure(name: str, rounds: int) -> dict[str, float]:
    """All clients on one work; medians over the rounds."""
    work = WORKS[name]
    found: list[dict[str, float]] = []
    for number in range(rounds):
        with mock_server(work) as port:
            floor = bare(work, port)
        with mock_server(work) as port:
            ours = raybench_client(work, port, "auto")
            true = truth(port)
        common: dict[str, float] = {}
        if work.streams <= 4096:
            with mock_server(work) as port:
                common = common_loop(work, port)
                common["ttft_error_ms_p50"] = common["ttft_ms_p50"] - truth(port)["ttft"]["p50_ms"]
        row = {
            "bare_cpu_s_per_million": floor["cpu_s_per_million"],
            "cpu_s_per_million": ours["cpu_s_per_million"],
            "cpu_ratio": ours["cpu_s_per_million"] / floor["cpu_s_per_million"],
            "desk_cpu_s_per_million": ours["desk_cpu_s_per_million"],
            "ttft_error_ms_p50": ours["ttft_ms_p50"] - true["ttft"]["p50_ms"],
            "ttft_error_ms_p99": ours["ttft_ms_p99"] - true["ttft"]["p99_ms"],
            "gap_error_ms_p99": ours["gap_ms_p99"] - true["itl"]["p99_ms"],
            "server_late_ms_p99": true["late"]["p99_ms"],
            "completed": ours["completed"],
        }
        if common:
            row["common_loop_cpu_ratio"] = common["cpu_s_per_million"] / floor["cpu_s_per_million"]
            row["common_loop_ttft_error_ms_p50"] = common["ttft_error_ms_p50"]
        told = ", ".join(f"{key} {value:.2f}" for key, value in row.items())
        print(f"{name} streams, round {number + 1}: {told}", flush=True)
        found.append(row)
    return {key: statistics.median(row[key] for row in found) for key in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="1024,4096,10000")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results: dict[str, float] = {}
    with connected():
        for name in arguments.only.split(","):
            rounds = arguments.rounds if WORKS[name].streams < 10000 else 1
            for key, value in measure(name, rounds).items():
                results[f"{key}_{name}"] = round(value, 3)
    results["streams_completed_10000"] = results.pop("completed_10000", 0)
    print(json.dumps(results))


if __name__ == "__main__":
    sys.exit(main())
