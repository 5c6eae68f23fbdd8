"""Does it help to pin load workers to cores? Two workers and a null server on this host, pinned and not, in turns.

    python benchmarks/pinning.py [--rounds 6] [--streams 1024]

Each round runs both ways, the second way first in every other round. Printed are CPU seconds of the
workers per million tokens, and the P99 of their stamps' errors, each as median, least and most over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import uvloop

from raybench.analysis.stamp_error import stamp_errors
from raybench.corpus.rendered import render_ids
from raybench.corpus.synthetic import synthetic_ids
from raybench.deploy.own_servers import launch_null_server
from raybench.engines.contract import RequestShape
from raybench.load.health import WorkerHealth
from raybench.load.order import Endpoint, Order
from raybench.load.worker import LoadWorker
from raybench.protocol.desk import OrderDesk
from raybench.records.clock import AnchoredClock, ClockOffset
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.records.stream import read_part
from raybench.scenario.schema import Load, SyntheticCorpus

POINT, GAP_MS, TOKENS = "bench/pinning/c1", 20, 128


def worker(url: str, streams: int, path: Path, number: int, start_unix_ns: int) -> None:
    """One worker with a desk of its own; prints its CPU seconds from the start of the load on."""
    clock = AnchoredClock()
    run = RunDirectory(path)
    run.create()
    files = PartFiles(run.path)
    desk = OrderDesk(run, files, clock)
    prompts = {"ids": render_ids(synthetic_ids(SyntheticCorpus(tokens=4096)))}
    name = f"w{number}"
    one = LoadWorker(name, prompts, clock, lambda: WorkerHealth(name, clock))
    order = Order(
        point_id=POINT,
        attempt=1,
        phase="load",
        endpoint=Endpoint(url, "sglang"),
        shape=RequestShape("completions", 128, TOKENS),
        load=Load(),
        slots=streams,
        windows=np.zeros(streams, np.int64),
        rid_prefix=f"rb-pin-{number:05d}-l",
    )

    async def load() -> float:
        desk.open(order.key, streams, {name: streams}, lambda _, *recall: one.recall(*recall))
        await one.arm(order)
        before = time.process_time()
        await one.run(desk, start_unix_ns, ClockOffset(0, 0))
        desk.close()
        return time.process_time() - before

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps({"cpu_s": runner.run(load())}))


def measure(streams: int, *, pinned: bool) -> tuple[float, float]:
    """(CPU seconds per million tokens, P99 of the stamps' errors in ms)."""
    with tempfile.TemporaryDirectory() as folder:
        server = launch_null_server(Path(folder) / "null.log")
        try:
            body = json.dumps({"ttft_ms": 500, "gap_ms": GAP_MS}).encode()
            urllib.request.urlopen(f"{server.url}/null/pace", body).read()
            start = time.time_ns() + 2_000_000_000
            shares = [streams // 2, streams - streams // 2]
            children = []
            for number, share in enumerate(shares):
                words = [server.url, share, Path(folder) / f"run{number}", number, start]
                command = [sys.executable, __file__, "--worker", *map(str, words)]
                children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
                if pinned:
                    cores = sorted(os.sched_getaffinity(0))
                    os.sched_setaffinity(children[-1].pid, {cores[number % len(cores)]})
            told = [json.loads(child.communicate()[0]) for child in children]
            with urllib.request.urlopen(f"{server.url}/null/truth") as reply:
                truth = json.loads(reply.read())
        finally:
            server.stop()
        runs = [RunDirectory(Path(folder) / f"run{number}") for number in range(2)]
        rows = [
            row for n, run in enumerate(runs) for row in read_part(run.part(POINT, 1, f"w{n}")).table.to_pylist()
        ]
    error_ms = stamp_errors(rows, truth["writes"]).stamp_ms_p99
    assert error_ms is not None
    return sum(one["cpu_s"] for one in told) / (streams * TOKENS) * 1e6, error_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--streams", type=int, default=1024)
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        url, share, path, number, start = options.worker
        worker(url, int(share), Path(path), int(number), int(start))
        return
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(options.rounds):
        for pinned in (False, True) if number % 2 else (True, False):
            found[pinned].append(measure(options.streams, pinned=pinned))
    for pinned, pairs in found.items():
        for name, values in zip(
            ("CPU s per million tokens", "stamp error P99, ms"), zip(*pairs, strict=True), strict=True
        ):
            median, least, most = statistics.median(values), min(values), max(values)
            print(f"{'pinned' if pinned else 'free':>6}: {name} {median:.2f} ({least:.2f} to {most:.2f})")


if __name__ == "__main__":
    main()
