"""Several hosts: two that send load, one with the engine, each in a network namespace of its own."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import network
import own_ray
import pyarrow.parquet as pq
import pytest
import ray_product as product

pytestmark = pytest.mark.netns

CLIENT = {"bench_client": 1}
TARGET = {"gpu_host": 1}
#: Ray itself never gives up a node here, so that it is raybench that notices a cut link.
PATIENT = {"RAY_health_check_failure_threshold": "1000"}
#: A cut link is noticed and the run ended within this long.
END_LIMIT_S = 60.0


@dataclass
class Hosts:
    """The network and the Ray on it."""

    net: network.Network
    cluster: own_ray.OwnRay

    def product(self, folder: Path) -> dict[str, Any]:
        """How a raybench command is started on the head's host."""
        return {
            "folder": folder,
            "env": {"TEST_RAY_TOKEN": self.cluster.token},
            "prefix": self.net.inside("head"),
        }

    def cluster_file(self, folder: Path) -> Path:
        placement = {"client_resource": "bench_client", "target_resource": "gpu_host"}
        return own_ray.cluster_file(folder, self.cluster, placement=placement, load={"client_nodes": 2})


@pytest.fixture(scope="module")
def hosts(no_ray_of_the_surroundings: None) -> Iterator[Hosts]:
    with ExitStack() as stack:
        try:
            net = stack.enter_context(network.network("head", "client", "target"))
        except network.Unavailable as why:
            pytest.skip(str(why))
        head = own_ray.head(net.address("head"), prefix=net.inside("head"), resources=CLIENT, variables=PATIENT)
        cluster = stack.enter_context(head)
        for host, resources in (("client", CLIENT), ("target", TARGET)):
            node = own_ray.worker(cluster, net.address(host), prefix=net.inside(host), resources=resources)
            stack.enter_context(node)
        yield Hosts(net, cluster)


def generations(run: product.RunDirectory) -> Counter[str]:
    """Who has sent how many requests, by the engine's own access log."""
    log = (run.arm("small") / "engine.log").read_text()
    return Counter(re.findall(r"([0-9.]+):[0-9]+ - \"POST /generate ", log))


def test_two_hosts_send_one_load_and_the_monitor_sits_with_the_engine(tmp_path: Path, hosts: Hosts) -> None:
    net = hosts.net
    workload = {"output_tokens": 128, "concurrency": [5], "requests": 20, "prewarm_requests": 2}
    scenario = product.write_scenario(tmp_path, product.scenario("spread", workloads=[workload]))
    with product.start(
        "submit", scenario, "--cluster", hosts.cluster_file(tmp_path), **hosts.product(tmp_path)
    ) as running:
        run = product.wait_for_run(tmp_path / "on-head", running)
        ready = product.wait_for_event(run, running, "fleet_ready")
        workers = {one["worker"]: one["pid"] for one in ready["workers"]}
        # one worker on each client host, in the order of their addresses
        assert (workers["w000"] in net.pids("head"), workers["w001"] in net.pids("client")) == (True, True)
        assert ready["target_host"]["pid"] in net.pids("target")
        ended = running.end()
    assert ended.exit_code == 0, ended.output
    assert [title.rpartition(" ")[2] for title in ready["clients"]] == [
        f"({net.address('head')})",
        f"({net.address('client')})",
    ]
    [launched] = product.events(run, "arm_launched")
    assert launched["url"].startswith(f"http://{net.address('target')}:")

    row = product.points(run)["small/tiny/c5"]
    assert (row["verdict"], row["requests_ok"], row["in_flight_peak"]) == ("accepted", 20, 5)
    assert row["gpu_data"] == "complete"
    sent = Counter(product.requests(run)["worker"].to_pylist())
    assert sum(sent.values()) == 22
    # what each worker recorded is what the engine has seen from its host
    assert generations(run) == {net.address("head"): sent["w000"], net.address("client"): sent["w001"]}
    assert min(sent.values()) > 0
    assert len(list((run.parts / "gpu").iterdir())) == 1
    assert len(pq.read_table(run.gpu_parquet)["gpu_uuid"].unique()) == 2


def test_a_cut_link_voids_the_point_and_resume_completes_once_it_is_back(tmp_path: Path, hosts: Hosts) -> None:
    content = product.scenario(
        "cut", sim=product.SLOW_SIM, workloads=[{"concurrency": [2], "requests": 6}, product.SLOW]
    )
    scenario = product.write_scenario(tmp_path, content)
    command = ["submit", "--cluster", hosts.cluster_file(tmp_path)]
    with product.start(*command, scenario, **hosts.product(tmp_path)) as running:
        run = product.wait_for_run(tmp_path / "on-head", running)
        ready = product.wait_for_load(run, running, "small/slow/c4")
        hosts.net.cut("client")
        ended = running.end(END_LIMIT_S)
    assert ended.exit_code == 1, ended.output
    points = product.points(run)
    assert points["small/tiny/c2"]["verdict"] == "accepted"
    void = points["small/slow/c4"]
    assert void["verdict"] == "void"
    lost = [one for one in json.loads(void["findings"]) if one["code"] == "worker_lost"]
    assert [one["data"]["worker"] for one in lost] == ["w001"]
    assert lost[0]["data"]["received"] < lost[0]["data"]["planned"] == 24
    assert "client lost" in ended.output

    hosts.net.restore("client")
    silent = {one["worker"]: one["pid"] for one in ready["workers"]}["w001"]
    product.until(lambda: product.is_gone(silent), "the end of the worker that was given up")
    again = product.run(*command, "--resume", run.path, **hosts.product(tmp_path))
    assert again.exit_code == 0, again.output
    points = product.points(run)
    assert {row["verdict"] for row in points.values()} == {"accepted"}
    assert (points["small/tiny/c2"]["final_attempt"], points["small/slow/c4"]["final_attempt"]) == (1, 2)
    workers = product.requests(run, point_id="small/slow/c4", attempt=2)["worker"].unique().to_pylist()
    assert len(workers) == 2


def test_a_link_that_was_away_for_a_moment_voids_the_point(tmp_path: Path, hosts: Hosts) -> None:
    """No request fails of it; only the pause would be in the numbers."""
    scenario = product.write_scenario(
        tmp_path, product.scenario("flap", sim=product.SLOW_SIM, workloads=[product.SLOW])
    )
    with product.start(
        "submit", scenario, "--cluster", hosts.cluster_file(tmp_path), **hosts.product(tmp_path)
    ) as running:
        run = product.wait_for_run(tmp_path / "on-head", running)
        product.wait_for_load(run, running, "small/slow/c4")
        hosts.net.cut("target")
        hosts.net.restore("target")
        ended = running.end(END_LIMIT_S)
    assert ended.exit_code == 1, ended.output
    point = product.points(run)["small/slow/c4"]
    found = [one for one in json.loads(point["findings"]) if one["severity"] == "void"]
    assert [(one["code"], one["data"]["host"]) for one in found] == [("link_interrupted", "target host")]
    assert found[0]["data"]["changes"] == 2
    assert point["requests_ok"] == 24


def test_a_worker_that_cannot_be_reached_between_loads_is_given_up(tmp_path: Path, hosts: Hosts) -> None:
    """Ray would wait for its answer as long as it takes the host for alive, which is for ever here."""
    content = product.scenario("between", workloads=[product.SLOW], guards={"idle_stable_s": 3})
    scenario = product.write_scenario(tmp_path, content)
    command = ["submit", "--cluster", hosts.cluster_file(tmp_path)]
    with product.start(*command, scenario, **hosts.product(tmp_path)) as running:
        run = product.wait_for_run(tmp_path / "on-head", running)
        ready = product.wait_for_event(run, running, "fleet_ready")
        product.wait_for_event(run, running, "step", step="prewarm")
        hosts.net.cut("client")
        ended = running.end(END_LIMIT_S)
    hosts.net.restore("client")
    assert ended.exit_code == 1, ended.output
    lost = [
        one for one in json.loads(product.points(run)["small/slow/c4"]["findings"]) if one["severity"] == "void"
    ]
    assert ("worker_lost", "w001") in [(one["code"], one["data"].get("worker")) for one in lost]
    silent = {one["worker"]: one["pid"] for one in ready["workers"]}["w001"]
    product.until(lambda: product.is_gone(silent), "the end of the worker that was given up")
