"""The service in use stands on another host than raybench: whatever dies or is cut off, it is back there."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import network
import own_ray
import psutil
import pytest
import ray_product as product
import service_in_use
from service_in_use import CONFIGURATION, InUse, report_of

from raybench.deploy.keeping import ENDS

pytestmark = [pytest.mark.netns, pytest.mark.slow]

CLIENT = {"bench_client": 1}
TARGET = {"gpu_host": 1}
#: The target host gives the coordinator up after a minute.
CUT_LIMIT_S = 150.0


@dataclass
class Place:
    """raybench and a client on the head's host, the service and the engines on the target's."""

    net: network.Network
    cluster: own_ray.OwnRay
    in_use: InUse

    def submit(self, folder: Path) -> dict[str, Any]:
        return {
            "folder": folder,
            "env": {"TEST_RAY_TOKEN": self.cluster.token},
            "prefix": self.net.inside("head"),
        }

    def command(self, folder: Path) -> list[object]:
        placement = {"client_resource": "bench_client", "target_resource": "gpu_host"}
        load = {"output_tokens": 256, "concurrency": [2], "requests": 12}
        # An answer that a cut link swallowed is not waited for as long as a user would.
        more = {"service": self.in_use.block(pause_s=0.4), "load": {"request": {"idle_timeout_s": 20}}}
        content = product.scenario("away", workloads=[load], **more)
        content["arms"] = {name: {"sim": {"time_compression": 5}} for name in ("first", "second")}
        cluster = own_ray.cluster_file(folder, self.cluster, placement=placement, package={"ship": False})
        return ["submit", "--cluster", cluster, product.write_scenario(folder, content)]


@pytest.fixture(scope="module")
def place(no_ray_of_the_surroundings: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        try:
            net = stack.enter_context(network.network("head", "target"))
        except network.Unavailable as why:
            pytest.skip(str(why))
        head = own_ray.head(net.address("head"), prefix=net.inside("head"), resources=CLIENT)
        cluster = stack.enter_context(head)
        # A host name of its own, so that raybench does not take the keeper for one that it could look at.
        there = [*net.inside("target"), "unshare", "--uts", "sh", "-c", 'hostname target; exec "$@"', "sh"]
        stack.enter_context(own_ray.worker(cluster, net.address("target"), prefix=there, resources=TARGET))
        folder = tmp_path_factory.mktemp("service")
        service = service_in_use.service(folder, net.address("target"), net.inside("target"))
        yield Place(net, cluster, stack.enter_context(service))


def wait_for_the_load(place: Place, running: product.Running, folder: Path) -> product.RunDirectory:
    """The service is down, by a keeper on its own host, and the first arm is under load."""
    run = product.wait_for_run(folder / "on-head", running)
    product.wait_for_load(run, running, "first/tiny/c2")
    report = report_of(run.service_json)
    assert (report["phase"], report["host"]) == ("down", "target")
    assert report["pid"] in place.net.pids("target")
    assert (place.in_use.pid, place.in_use.configuration) == (None, None)
    return run


def assert_back(place: Place, run: product.RunDirectory, limit_s: float = product.LIMIT_S) -> None:
    report = product.until(
        lambda: (told := report_of(run.service_json)).get("phase") in ENDS and told, "the keeper's end", limit_s
    )
    assert report["phase"] == "verified", report
    assert place.in_use.answers()
    assert place.in_use.configuration == CONFIGURATION
    assert place.in_use.pid in place.net.pids("target")
    engines = [one for one in map(psutil.Process, place.net.pids("target")) if "raybench.sim" in one.cmdline()]
    assert [one.pid for one in engines] == [place.in_use.pid], "no arm's engine is left"


def kill_driver(place: Place, run: product.RunDirectory) -> None:
    """The job's entrypoint, wherever Ray has started it."""
    entry = [one for one in psutil.process_iter(["cmdline"]) if run.path.name in (one.info["cmdline"] or [])]
    assert entry, "a driver is told the run's id"
    for one in entry:
        one.kill()


def kill_coordinator(place: Place, run: product.RunDirectory) -> None:
    there = map(psutil.Process, place.net.pids("head"))
    [actor] = [one for one in there if "".join(one.cmdline()).startswith("ray::CoordinatorActor")]
    actor.kill()


@pytest.mark.parametrize(
    ("kill", "submit_is_killed"),
    [(kill_driver, False), (kill_driver, True), (kill_coordinator, False)],
    ids=["driver", "driver-and-submit", "coordinator"],
)
def test_the_service_is_back_on_its_host_after_a_death_on_another(
    tmp_path: Path, place: Place, kill: Callable[[Place, product.RunDirectory], None], submit_is_killed: bool
) -> None:
    with product.start(*place.command(tmp_path), **place.submit(tmp_path)) as running:
        run = wait_for_the_load(place, running, tmp_path)
        if submit_is_killed:
            running.kill()
        kill(place, run)
        assert_back(place, run)
        if not submit_is_killed:
            assert running.end().exit_code != 0


def test_a_submit_that_is_killed_alone_lets_the_run_go_on_to_its_end(tmp_path: Path, place: Place) -> None:
    with product.start(*place.command(tmp_path), **place.submit(tmp_path)) as running:
        run = wait_for_the_load(place, running, tmp_path)
        running.kill()
        product.until(lambda: product.events(run, "run_ended") or None, "the end of the run")
        assert_back(place, run)
    assert [line["status"] for line in product.events(run, "run_ended")] == ["complete"]


# The last one here: Ray may have given the node up by then.
def test_the_service_is_back_on_a_host_that_nobody_can_reach_any_more(tmp_path: Path, place: Place) -> None:
    with product.start(*place.command(tmp_path), **place.submit(tmp_path)) as running:
        run = wait_for_the_load(place, running, tmp_path)
        place.net.cut("target")
        try:
            assert_back(place, run, CUT_LIMIT_S)
        finally:
            place.net.restore("target")
        ended = running.end()
    assert ended.exit_code != 0, ended.output
    assert ended.output.splitlines()[-1] == f"service {place.in_use.url}: back and verified"
