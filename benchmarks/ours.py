"""raybench as it is measured: Ray worker actors with leases and heartbeats, records written by another actor.

Used by `bench.py`, `peers.py` and `coordinator.py`, inside `connected()`. `auth.for_own_ray()` comes before Ray is
imported, so this module is imported first.
"""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raybench.cluster import auth

auth.for_own_ray()

import numpy as np  # noqa: E402
import ray  # noqa: E402
from server import INPUT_TOKENS, Work  # noqa: E402

from raybench.analysis import metrics  # noqa: E402
from raybench.analysis.history import read_history  # noqa: E402
from raybench.analysis.stats import nearest_rank  # noqa: E402
from raybench.cluster.coordinator_actor import SYNC_S  # noqa: E402
from raybench.cluster.fleet import COORDINATOR_CONCURRENCY, LoadWorkerActor  # noqa: E402
from raybench.corpus.rendered import render_ids  # noqa: E402
from raybench.corpus.synthetic import synthetic_ids  # noqa: E402
from raybench.engines.contract import RequestShape  # noqa: E402
from raybench.load.leases import split_slots  # noqa: E402
from raybench.load.order import Endpoint, Order, OrderKey  # noqa: E402
from raybench.protocol.desk import OrderDesk  # noqa: E402
from raybench.protocol.evidence import load_requests  # noqa: E402
from raybench.records.clock import AnchoredClock, ClockOffset  # noqa: E402
from raybench.records.parts import PartFiles  # noqa: E402
from raybench.records.rundir import RunDirectory  # noqa: E402
from raybench.records.schema import REQUESTS  # noqa: E402
from raybench.records.stream import read_part, unify  # noqa: E402
from raybench.scenario.schema import Load, SyntheticCorpus  # noqa: E402

POINT = "bench/load/c1"
#: The engine whose decoder reads the mock server's route.
ENGINE_OF = {"completions": "openai", "generate": "sglang"}
CORPUS_TOKENS = 1024 * 1024


@dataclass(frozen=True)
class Usage:
    """What a process has used so far. calls: to the desk, by name, and the `bytes` of records they brought."""

    cpu_s: float
    rss_mb: float
    calls: Counter[str]

    @classmethod
    def now(cls, calls: Counter[str] | None = None) -> Usage:
        rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return cls(time.process_time(), rss_mb, Counter(calls or {}))


class Desk:
    """The coordinator's desk in a process of its own, with the disk's sync beside it, as in a run."""

    def __init__(self, path: str) -> None:
        self._run = RunDirectory(Path(path))
        self._run.create()
        self._files = PartFiles(self._run.path)
        self._desk = OrderDesk(self._run, self._files, AnchoredClock())
        self._calls: Counter[str] = Counter()
        self._syncer: asyncio.Task[None] | None = None

    async def open(self, attempt: int, requests: int, slots: dict[str, int], workers: dict[str, Any]) -> None:
        async def ask_back(worker: str, *recall: Any) -> Any:
            self._calls["recall"] += 1
            return await workers[worker].recall.remote(*recall)

        self._syncer = asyncio.ensure_future(self._sync_for_ever())
        self._desk.open(OrderKey(POINT, attempt, "load"), requests, slots, ask_back)

    async def close(self) -> None:
        assert self._syncer is not None
        self._syncer.cancel()
        self._desk.close()

    async def lease(self, *arguments: Any) -> list[int]:
        self._calls["lease"] += 1
        return await self._desk.lease(*arguments)

    async def append(self, *arguments: Any) -> None:
        self._calls["append"] += 1
        self._calls["bytes"] += len(arguments[-1])
        await self._desk.append(*arguments)

    async def heartbeat(self, *arguments: Any) -> None:
        self._calls["heartbeat"] += 1
        await self._desk.heartbeat(*arguments)

    async def usage(self) -> Usage:
        return Usage.now(self._calls)

    async def read_back(self, attempt: int, times: int) -> Usage:
        """What judging a point needs: all records in memory, and a latency of each; kept, `times` over."""
        kept = []
        for _ in range(times):
            rows, _, _ = load_requests(self._run, POINT, attempt, read_history([]))
            for values in (metrics.ttft_ms(rows), metrics.e2e_ms(rows)):
                nearest_rank(metrics.sample(values), 99)
            kept.append(rows)
        return Usage.now(self._calls)

    async def _sync_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            await asyncio.to_thread(self._files.sync)


class Worker(LoadWorkerActor):
    async def usage(self) -> Usage:
        return Usage.now()


class Fleet:
    """Worker actors and their desk, for any number of loads."""

    def __init__(self, workers: int, path: Path) -> None:
        self._run = RunDirectory(path)
        self._attempt = 0
        self.desk = ray.remote(Desk).options(num_cpus=0, max_concurrency=COORDINATOR_CONCURRENCY).remote(str(path))
        prompts = ray.put({"ids": render_ids(synthetic_ids(SyntheticCorpus(tokens=CORPUS_TOKENS)))})
        self.names = [f"w{number:03d}" for number in range(workers)]
        make = ray.remote(Worker).options(num_cpus=0).remote
        self.workers = {name: make(name, self.desk, prompts) for name in self.names}
        ray.get([worker.hello.remote(()) for worker in self.workers.values()])

    def usage(self) -> tuple[list[Usage], Usage]:
        """Of the workers, and of the desk."""
        *workers, desk = ray.get([one.usage.remote() for one in (*self.workers.values(), self.desk)])
        return workers, desk

    def load(self, work: Work, port: int, client: str = "auto") -> Spent:
        """Carry the work out once; what it cost, from before the start until after the last record."""
        shares = dict(zip(self.names, split_slots(work.streams, len(self.names)), strict=True))
        self._attempt += 1
        ray.get(self.desk.open.remote(self._attempt, work.requests, shares, self.workers))
        orders = {name: order(work, port, self._attempt, share, client) for name, share in shares.items()}
        ray.get([worker.arm.remote(orders[name]) for name, worker in self.workers.items()])
        before, begin = self.usage(), time.monotonic()
        start = AnchoredClock().unix_ns() + 100_000_000
        ray.get([worker.run.remote(start, ClockOffset(0, 0)) for worker in self.workers.values()])
        wall_s = time.monotonic() - begin
        after = self.usage()
        ray.get(self.desk.close.remote())
        return Spent.between(before, after, wall_s)

    def read_back(self, times: int) -> Usage:
        """What the desk has used after reading the last load so often, as a coordinator does to judge it."""
        return ray.get(self.desk.read_back.remote(self._attempt, times))

    def rows(self) -> Any:
        """The records of the last load, as they stand on disk."""
        parts = [self._run.part(POINT, self._attempt, name) for name in self.names]
        return unify([read_part(part).table for part in parts], REQUESTS)

    def end(self) -> None:
        for actor in (*self.workers.values(), self.desk):
            ray.kill(actor)


@dataclass(frozen=True)
class Spent:
    """The cost of one load: CPU of all workers and of the desk, the largest worker, calls to the desk."""

    workers_cpu_s: float
    desk_cpu_s: float
    worker_rss_mb: float
    worker_rss_before_mb: float
    calls: Counter[str]
    wall_s: float

    @classmethod
    def between(cls, before: tuple[list[Usage], Usage], after: tuple[list[Usage], Usage], wall_s: float) -> Spent:
        (old, old_desk), (new, new_desk) = before, after
        return cls(
            sum(one.cpu_s for one in new) - sum(one.cpu_s for one in old),
            new_desk.cpu_s - old_desk.cpu_s,
            max(one.rss_mb for one in new),
            max(one.rss_mb for one in old),
            new_desk.calls - old_desk.calls,
            wall_s,
        )


@contextmanager
def fleet_of(workers: int) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(workers, Path(folder) / "run")
        try:
            yield fleet
        finally:
            fleet.end()


def raybench_client(work: Work, port: int, client: str = "auto") -> dict[str, float]:
    """CPU of the workers and of the desk, latencies from the records."""
    with fleet_of(work.workers) as fleet:
        spent = fleet.load(work, port, client)
        rows = fleet.rows()
    return {
        "cpu_s": spent.workers_cpu_s,
        "desk_cpu_s": spent.desk_cpu_s,
        "cpu_s_per_million": spent.workers_cpu_s / work.total_tokens * 1e6,
        "desk_cpu_s_per_million": spent.desk_cpu_s / work.total_tokens * 1e6,
        "worker_rss_mb": spent.worker_rss_mb,
        "completed": metrics.requests_ok(rows),
        **latencies(rows),
    }


def order(work: Work, port: int, attempt: int, slots: int, client: str) -> Order:
    return Order(
        point_id=POINT,
        attempt=attempt,
        phase="load",
        endpoint=Endpoint(f"http://127.0.0.1:{port}", ENGINE_OF[work.api]),
        shape=RequestShape(work.api, INPUT_TOKENS, work.tokens, model="mock"),
        load=Load(client=client),
        slots=slots,
        windows=np.arange(work.requests, dtype=np.int64) * 64 % (CORPUS_TOKENS - INPUT_TOKENS),
        rid_prefix="rb-bench-00001-l",
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
