"""C = 64 over 4 workers against an engine whose requests differ 100-fold, and what the engine saw of it.

Used by a test, which looks at the counts, and by `benchmarks/handover.py`, which prints the times.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import network
import numpy as np
import own_ray
import ray_product as product

from raybench.analysis import metrics
from raybench.analysis.in_flight import InFlight, Window, handover_gaps_ms, in_flight
from raybench.analysis.stats import nearest_rank
from raybench.deploy.process import LaunchedProcess, ReadyLine

CONCURRENCY = 64
WORKERS = 4
CLIENT = {"bench_client": 1}
POINT = f"small/spread/c{CONCURRENCY}"
#: Service times of 15 steps of 30 ms, each 1 to 100 times, over the time compression.
SIM = {"max_running_requests": CONCURRENCY, "kv_pool_tokens": 65_536, "faults": {"pace_spread": 100}}


@dataclass(frozen=True)
class Place:
    """Where a load runs. command: what stands between `raybench` and the scenario."""

    command: list[object]
    prefix: list[str]
    env: dict[str, str]
    nodes: int
    engine_address: str
    engine_prefix: list[str]


@dataclass(frozen=True)
class Seen:
    """A load by one account: rids, and when each request began and ended, in ns on one clock."""

    rids: list[str]
    begin_ns: np.ndarray
    end_ns: np.ndarray

    @property
    def trace(self) -> InFlight:
        return in_flight(self.begin_ns, self.end_ns)

    @property
    def gaps_ms(self) -> np.ndarray:
        return handover_gaps_ms(self.begin_ns, self.end_ns, CONCURRENCY)

    @property
    def share_at_concurrency(self) -> float | None:
        """Share of the time from the C-th begin to the last in which C were in flight."""
        begins = np.sort(self.begin_ns)
        return self.trace.share_at(CONCURRENCY, Window(int(begins[CONCURRENCY - 1]), int(begins[-1])))

    @property
    def mean_missing(self) -> float:
        """How many of the C slots were empty in that time, on average."""
        begins = np.sort(self.begin_ns)
        return float(self.gaps_ms.sum() * 1e6 / (begins[-1] - begins[CONCURRENCY - 1]))


@contextmanager
def one_host(folder: Path) -> Iterator[Place]:
    """Everything on this machine, on loopback."""
    with own_ray.head() as cluster:
        yield Place(["run"], [], cluster.inside, 1, "127.0.0.1", [])


@contextmanager
def two_hosts(folder: Path) -> Iterator[Place]:
    """Two client hosts, on one of which the coordinator is, and the engine's. Raises network.Unavailable."""
    with ExitStack() as stack:
        net = stack.enter_context(network.network("head", "client", "target"))
        cluster = stack.enter_context(
            own_ray.head(net.address("head"), prefix=net.inside("head"), resources=CLIENT)
        )
        more = own_ray.worker(cluster, net.address("client"), prefix=net.inside("client"), resources=CLIENT)
        stack.enter_context(more)
        placement = {"client_resource": next(iter(CLIENT))}
        file = own_ray.cluster_file(folder, cluster, placement=placement, load={"client_nodes": 2})
        yield Place(
            ["submit", "--cluster", file],
            net.inside("head"),
            {"TEST_RAY_TOKEN": cluster.token},
            2,
            net.address("target"),
            net.inside("target"),
        )


def carry_out(place: Place, folder: Path, requests: int, compression: int) -> tuple[product.RunDirectory, Seen]:
    """One point of so many requests: its run directory, and the engine's side of it."""
    with _engine(place, folder, compression) as url:
        workload = {"name": "spread", "concurrency": [CONCURRENCY], "requests": requests}
        content = product.scenario(
            f"spread-{requests}",
            url=url,
            workloads=[workload],
            corpus={"synthetic": {"tokens": "256k"}},
            guards={"prewarm_requests": 0, "start_lead_s": 1.0},
            monitors={"gpu": {"source": "none"}},
            load={"workers_per_node": WORKERS // place.nodes},
        )
        scenario = product.write_scenario(folder, content)
        ended = product.run(*place.command, scenario, folder=folder, env=place.env, prefix=place.prefix)
        state = _get(place.engine_prefix, f"{url}/sim/state")
    assert ended.exit_code == 0, ended.output
    found = [path.parent for path in folder.glob(f"*/spread-{requests}-*/manifest.json")]
    assert len(found) == 1, f"{found}\n{ended.output}"
    begin, end = (
        np.array([round(one[key] * 1e9) for one in state["arrivals"]], dtype=np.int64)
        for key in ("unix_s", "end_unix_s")
    )
    return product.RunDirectory(found[0]), Seen([one["rid"] for one in state["arrivals"]], begin, end)


def figures(place: Place, folder: Path, requests: int, compression: int) -> dict[str, Any]:
    """What `benchmarks/handover.py` prints of one load."""
    run, seen = carry_out(place, folder, requests, compression)
    rows = product.requests(run)
    stamps = (metrics.sample(metrics.on_time_line(rows, name)).astype(np.int64) for name in ("sent", "end"))
    recorded = Seen(rows["rid"].to_pylist(), *stamps)
    service = seen.end_ns - seen.begin_ns
    found: dict[str, Any] = {"requests": requests, "verdict": product.points(run)[POINT]["verdict"]}
    found["service_time_spread"] = round(float(service.max() / service.min()), 1)
    for side, told in (("records", recorded), ("server", seen)):
        found[f"{side}_in_flight_peak"] = told.trace.peak
        numbers = {f"gap_ms_p{percent}": nearest_rank(told.gaps_ms, percent) for percent in (50, 95, 99)}
        numbers |= {"share_at_concurrency": told.share_at_concurrency, "mean_missing": told.mean_missing}
        found |= {f"{side}_{name}": round(float(value or 0), 4) for name, value in numbers.items()}
    return found


@contextmanager
def _engine(place: Place, folder: Path, compression: int) -> Iterator[str]:
    options = json.dumps({**SIM, "time_compression": compression})
    command = [*place.engine_prefix, sys.executable, "-m", "raybench.sim", "--sim-json", options]
    command += ["--host", place.engine_address]
    process = LaunchedProcess.start(command, log_path=folder / "engine.log", grace_s=3.0, name="the engine")
    try:
        yield str(process.wait_ready(ReadyLine(), product.LIMIT_S)["url"])
    finally:
        process.stop()


def _get(prefix: Sequence[str], url: str) -> Any:
    """What a GET on the engine's host answers."""
    code = "import sys, own_ray, json; print(json.dumps(own_ray.get_json(sys.argv[1])))"
    command = [*prefix, sys.executable, "-c", code, url]
    here = str(Path(__file__).parent)
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=here)
    return json.loads(told.stdout)
