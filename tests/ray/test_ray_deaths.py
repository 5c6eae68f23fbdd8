"""Something dies in the middle of a point: what is committed stays, the rest is measured again."""

import json
import os
import signal
from pathlib import Path

import own_ray
import pytest
import ray_product as product

pytestmark = pytest.mark.ray

#: The first point is committed before the second, which goes on for some seconds, is disturbed.
POINTS = [{"concurrency": [2], "requests": 6}, product.SLOW]
QUICK, SLOW = "small/tiny/c2", "small/slow/c4"


def disturbed(name: str, **sections: object) -> dict[str, object]:
    return product.scenario(name, sim=product.SLOW_SIM, workloads=POINTS, **sections)  # type: ignore[arg-type]


def rows_of(run: product.RunDirectory, point_id: str) -> list[dict[str, object]]:
    columns = ["attempt", "phase", "worker", "ticket", "rid", "sent_ns", "end_ns", "outcome", "output_tokens"]
    return product.requests(run, point_id=point_id).select(columns).sort_by("rid").to_pylist()


def assert_resumed(run: product.RunDirectory, before: list[dict[str, object]]) -> None:
    """The accepted point is what it was; the disturbed one was measured again, from the first step on."""
    points = product.points(run)
    assert {point: row["verdict"] for point, row in points.items()} == {QUICK: "accepted", SLOW: "accepted"}
    assert (points[QUICK]["final_attempt"], points[QUICK]["attempts"]) == (1, 1)
    assert rows_of(run, QUICK) == before
    assert (points[SLOW]["final_attempt"], points[SLOW]["attempts"]) == (2, 2)
    assert product.steps(run, SLOW, 2) == product.STEPS
    assert product.requests(run, point_id=SLOW, phase="load", final=True).num_rows == 24
    assert [line["status"] for line in product.events(run, "run_ended")][-1] == "complete"


def test_o_r4_a_worker_that_is_killed_voids_its_point_and_resume_measures_it_again(
    tmp_path: Path, cluster: own_ray.OwnRay
) -> None:
    path = product.write_scenario(tmp_path, disturbed("lost-worker", load={"workers_per_node": 2}))
    here = {"folder": tmp_path, "env": {"TEST_RAY_TOKEN": cluster.token}}
    command = ["submit", "--cluster", own_ray.cluster_file(tmp_path, cluster, package={"ship": False})]
    with product.start(*command, path, **here) as running:
        run = product.wait_for_run(tmp_path / "on-head", running)
        ready = product.wait_for_load(run, running, SLOW)
        os.kill(ready["workers"][1]["pid"], signal.SIGKILL)
        ended = running.end()
    assert ended.exit_code == 1, ended.output
    row = product.points(run)[SLOW]
    assert row["verdict"] == "void"
    lost = [finding for finding in json.loads(row["findings"]) if finding["code"] == "worker_lost"]
    assert [(one["severity"], one["data"]["worker"]) for one in lost] == [("void", ready["workers"][1]["worker"])]
    # what both workers had streamed until then is kept
    received = product.requests(run, point_id=SLOW, phase="load").num_rows
    assert 0 < received < 24
    assert (lost[0]["data"]["planned"], lost[0]["data"]["received"]) == (24, received)
    assert "client lost" in ended.output
    assert f"raybench submit --resume {run.path}" in ended.output
    assert cluster.job(run.path.name)["status"] == "FAILED"

    before = rows_of(run, QUICK)
    again = product.run(*command, "--resume", run.path, **here)
    assert again.exit_code == 0, again.output
    assert_resumed(run, before)
    assert cluster.job(f"{run.path.name}.2")["status"] == "SUCCEEDED"


@pytest.mark.parametrize("victim", ["coordinator", "driver"])
def test_a_run_whose_head_dies_can_be_read_and_resumed(
    tmp_path: Path, cluster: own_ray.OwnRay, victim: str
) -> None:
    path = product.write_scenario(tmp_path, disturbed(f"lost-{victim}"))
    with product.start("run", path, folder=tmp_path, env=cluster.inside) as running:
        run = product.wait_for_run(tmp_path / "runs", running)
        ready = product.wait_for_load(run, running, SLOW)
        if victim == "coordinator":
            [pid] = [actor["pid"] for actor in cluster.actors() if actor["class_name"] == "CoordinatorActor"]
            os.kill(pid, signal.SIGKILL)
            ended = running.end()
            assert ended.exit_code == 3, ended.output
            assert f"--resume {run.path}" in ended.output
        else:
            running.kill()
    pids = [one["pid"] for one in (*ready["workers"], ready["target_host"])]
    product.until(lambda: all(map(product.is_gone, pids)), "the end of all actors of the run")
    assert_no_engine_left(run)

    for command in ("merge", "report"):
        read = product.run(command, run.path, folder=tmp_path)
        assert read.exit_code == 0, read.output
    row = product.points(run)[SLOW]
    assert (row["verdict"], row["attempts"]) == (None, 1)
    assert 0 < product.requests(run, point_id=SLOW, phase="load").num_rows < 24
    before = rows_of(run, QUICK)

    product.until(lambda: not cluster.actors(), "the end of all actors in Ray's books")
    again = product.run("run", "--resume", run.path, folder=tmp_path, env=cluster.inside)
    assert again.exit_code == 0, again.output
    assert_resumed(run, before)


def test_ctrl_c_ends_in_order_and_resume_completes(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    path = product.write_scenario(tmp_path, disturbed("ctrl-c"))
    with product.start("submit", path, folder=tmp_path) as running:
        run = product.wait_for_run(tmp_path / "runs", running)
        product.wait_for_load(run, running, SLOW)
        running.interrupt()
        ended = running.end()
        assert running.left_over() == []
    assert ended.exit_code == 1, ended.output
    assert f"raybench submit --resume {run.path}" in ended.output
    assert product.events(run, "run_ended")[-1]["status"] == "interrupted"
    assert product.events(run, "attempt_interrupted")[-1]["point_id"] == SLOW
    assert_no_engine_left(run)

    changed = product.write_scenario(tmp_path, {**disturbed("ctrl-c"), "description": "another one"})
    refused = product.run("run", changed, "--resume", run.path, folder=tmp_path, env=cluster.inside)
    assert refused.exit_code == 2, refused.output
    assert "another scenario" in refused.output

    product.run("merge", run.path, folder=tmp_path)
    before = rows_of(run, QUICK)
    again = product.run("run", "--resume", run.path, folder=tmp_path, env=cluster.inside)
    assert again.exit_code == 0, again.output
    assert_resumed(run, before)


def assert_no_engine_left(run: product.RunDirectory) -> None:
    """The simulated engine of each invocation, by the ready line that it printed, has ended."""
    lines = (run.arm("small") / "engine.log.out").read_text().splitlines()
    pids = [json.loads(line)["pid"] for line in lines if line.startswith("{")]
    assert pids
    product.until(lambda: all(map(product.is_gone, pids)), f"the end of the engines {pids}")
