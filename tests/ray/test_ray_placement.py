"""Before a run touches anything: no second load on a server (O-R2), no run on too few nodes (O-R3)."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import own_ray
import pytest
import ray_product as product

pytestmark = [pytest.mark.ray, pytest.mark.slow]

#: A detached actor under the name of a coordinator, as an older raybench or anybody could have left it.
LEFTOVER = """
import ray

ray.init(namespace="raybench", log_to_driver=False)


@ray.remote(num_cpus=0)
class Old:
    def ping(self):
        return True


actor = Old.options(name="raybench-coordinator-old-20250101-000000-00000000", lifetime="detached").remote()
assert ray.get(actor.ping.remote())
"""


def test_o_r2_a_leftover_actor_under_our_name_is_removed(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    made = subprocess.run(
        [sys.executable, "-c", LEFTOVER], env={**product.environment(tmp_path), **cluster.inside}, check=False
    )
    assert made.returncode == 0
    assert [actor["class_name"] for actor in cluster.actors()] == ["Old"]
    path = product.write_scenario(tmp_path, product.scenario("after-leftover"))
    ended = product.run("run", path, folder=tmp_path, env=cluster.inside)
    assert ended.exit_code == 0, ended.output
    product.until(lambda: not cluster.actors(), "a cluster without actors, ours and the leftover")


def test_o_r2_a_second_run_on_the_same_server_is_refused_unless_forced(
    tmp_path: Path, cluster: own_ray.OwnRay
) -> None:
    with product.engine(tmp_path, 1) as url:
        # a load that outlasts the commands below; the second run, which would wait for its end, gives up soon
        endless = {"name": "endless", "output_tokens": 8192, "concurrency": [4], "requests": 64}
        content = product.scenario("shared", url=url, workloads=[{**endless, "prewarm_requests": 0}])
        first_path = product.write_scenario(tmp_path, content)
        hasty = {**content, "name": "hasty", "guards": {**content["guards"], "idle_timeout_s": 0.3}}
        second_path = product.write_scenario(tmp_path, hasty)
        with product.start("run", first_path, folder=tmp_path, env=cluster.inside) as first:
            run = product.wait_for_run(tmp_path / "runs", first)
            product.wait_for_event(run, first, "step", step="counters_before")
            refused = product.run("run", second_path, "--runs-dir", "two", folder=tmp_path, env=cluster.inside)
            assert refused.exit_code == 3, refused.output
            assert run.path.name in refused.output
            assert "--force" in refused.output
            assert not (tmp_path / "two").exists(), "a refused run leaves no directory behind"
            twice = product.run("run", "--resume", run.path, "--force", folder=tmp_path, env=cluster.inside)
            assert twice.exit_code == 3, twice.output
            assert f"run {run.path.name} is under way" in twice.output
            forced = product.run(
                "run", second_path, "--runs-dir", "three", "--force", folder=tmp_path, env=cluster.inside
            )
            assert "--force" not in forced.output
            assert first.process.poll() is None
            went_on = product.only_run(tmp_path / "three")
            assert went_on is not None
            assert product.events(went_on, "attempt_started"), forced.output
            first.interrupt()
            ended = first.end()
        assert ended.exit_code == 1, ended.output
        assert product.events(run, "run_ended")[-1]["status"] == "interrupted"
    product.until(lambda: not cluster.actors(), "a cluster without actors")


def test_o_r2_of_two_runs_that_begin_in_the_same_instant_one_is_refused(
    tmp_path: Path, cluster: own_ray.OwnRay
) -> None:
    with product.engine(tmp_path, 20) as url:
        content = product.scenario("twins", url=url, workloads=[{**product.SLOW, "requests": 32}])
        path = product.write_scenario(tmp_path, content)
        with (
            product.start("run", path, "--runs-dir", "one", folder=tmp_path, env=cluster.inside) as first,
            product.start("run", path, "--runs-dir", "two", folder=tmp_path, env=cluster.inside) as second,
        ):
            ended = {"one": first.end(), "two": second.end()}
    assert sorted(each.exit_code for each in ended.values()) == [0, 3], ended
    [winner] = [name for name, each in ended.items() if each.exit_code == 0]
    [loser] = [name for name, each in ended.items() if each.exit_code == 3]
    run = product.only_run(tmp_path / winner)
    assert run is not None
    assert f"run {run.path.name} is loading {url} right now" in ended[loser].output
    assert not (tmp_path / loser).exists()
    product.until(lambda: not cluster.actors(), "a cluster without actors")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"load": {"client_nodes": 4}}, "asked 4 client nodes, 1 available"),
        ({"placement": {"target_resource": "gpu_host"}}, "the target host with resource 'gpu_host' is not in"),
    ],
    ids=["client_nodes", "target_host"],
)
def test_o_r3_a_cluster_that_cannot_carry_the_run_is_refused_before_the_first_request(
    tmp_path: Path, cluster: own_ray.OwnRay, section: dict[str, Any], message: str
) -> None:
    with product.engine(tmp_path, 50) as url:
        before = product.arrivals(url)
        path = product.write_scenario(tmp_path, product.scenario("too-few", url=url, **section))
        ended = product.run("run", path, folder=tmp_path, env=cluster.inside)
        assert ended.exit_code == 3, ended.output
        assert message in ended.output
        assert product.arrivals(url) == before
    run = product.only_run(tmp_path / "runs")
    assert run is not None
    assert [line["event"] for line in product.events(run)] == ["run_failed"]
    assert product.points(run)["small/tiny/c2"]["verdict"] is None
    for state in ("ALIVE", "PENDING_CREATION", "DEPENDENCIES_UNREADY"):
        product.until(lambda state=state: not cluster.actors(state), f"a cluster without {state} actors")
