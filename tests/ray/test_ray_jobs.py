"""A cluster that runs already, reached by nothing but its Job API."""

import socket
from pathlib import Path

import own_ray
import pytest
import ray_product as product

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_run_is_submitted_asked_about_and_fetched_by_separate_commands(
    tmp_path: Path, cluster: own_ray.OwnRay
) -> None:
    here = {"folder": tmp_path, "env": cluster.outside}
    scenario = product.write_scenario(tmp_path, product.scenario("apart"))
    submitted = product.run("submit", scenario, "--address", cluster.job_api, "--no-wait", **here)
    assert submitted.exit_code == 0, submitted.output
    [run_id] = [path.stem for path in (tmp_path / "runs" / ".submissions").iterdir()]
    assert run_id in submitted.output
    assert product.only_run(tmp_path / "runs") is None

    followed = product.run("logs", run_id, "--follow", **here)
    assert followed.exit_code == 0, followed.output
    assert "ok  small/tiny/c2" in followed.output
    told = product.run("status", run_id, **here)
    assert f"{run_id}: SUCCEEDED; complete: 1 accepted" in told.output
    assert product.run("logs", run_id, **here).exit_code == 0

    fetched = product.run("fetch", run_id, **here)
    assert fetched.exit_code == 0, fetched.output
    run = product.only_run(tmp_path / "runs")
    assert run is not None
    assert run.path.name == run_id
    assert product.points(run)["small/tiny/c2"]["verdict"] == "accepted"
    assert product.requests(run, phase="load").num_rows == 6
    # without a cluster file the head node keeps its runs in its user's home
    kept = product.RunDirectory(cluster.folder / "raybench-runs" / run_id)
    assert run.journal.read_bytes() == kept.journal.read_bytes()


def test_a_run_is_stopped_from_elsewhere(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    here = {"folder": tmp_path, "env": {"TEST_RAY_TOKEN": cluster.token}}
    endless = {**product.SLOW, "output_tokens": 8192, "requests": 64}
    content = product.scenario("stopped", sim={"time_compression": 1}, workloads=[endless])
    with product.start(
        "submit",
        product.write_scenario(tmp_path, content),
        "--cluster",
        own_ray.cluster_file(tmp_path, cluster, package={"ship": False}),
        **here,
    ) as running:
        run = product.wait_for_run(tmp_path / "on-head", running)
        product.wait_for_event(run, running, "step", step="counters_before")
        told = product.run("status", run.path.name, **here)
        assert f"{run.path.name}: RUNNING; [0/1] small/slow/c4 attempt 1: load" in told.output
        stopped = product.run("stop", run.path.name, **here)
        assert stopped.exit_code == 0, stopped.output
        assert f"{run.path.name}: STOPPED" in stopped.output
        ended = running.end()
    assert ended.exit_code == 1, ended.output
    assert product.events(run, "run_ended")[-1]["status"] == "interrupted"
    assert f"raybench submit --resume {run.path}" in ended.output
    product.until(lambda: not cluster.actors(), "a cluster without actors")


def test_a_stopped_run_leaves_no_load_no_process_and_all_that_it_has_committed(
    tmp_path: Path, cluster: own_ray.OwnRay
) -> None:
    """The engine is somebody else's and goes on; Ray gives the driver three seconds."""
    here = {"folder": tmp_path, "env": {"TEST_RAY_TOKEN": cluster.token}}
    endless = {**product.SLOW, "output_tokens": 8192, "requests": 64}
    with product.engine(tmp_path, 3) as url:
        content = product.scenario("no-load", url=url, workloads=[{"concurrency": [2], "requests": 6}, endless])
        file = own_ray.cluster_file(tmp_path, cluster, package={"ship": False})
        scenario = product.write_scenario(tmp_path, content)
        with product.start("submit", "--cluster", file, scenario, **here) as running:
            run = product.wait_for_run(tmp_path / "on-head", running)
            ready = product.wait_for_event(run, running, "fleet_ready")
            product.wait_for_event(run, running, "step", point_id="small/slow/c4", step="counters_before")
            product.until(lambda: product.streams_of(url) == 4, "four streams")
            product.run("stop", run.path.name, **here)
            product.until(lambda: product.streams_of(url) == 0, "an engine without load")
            arrived = product.arrivals(url)
            ended = running.end()
        pids = [one["pid"] for one in (*ready["workers"], ready["target_host"])]
        product.until(lambda: all(map(product.is_gone, pids)), "the end of all processes of the run")
        product.until(lambda: not cluster.actors(), "a cluster without actors")
        assert product.arrivals(url) == arrived
        again = product.run("stop", run.path.name, **here)
    assert ended.exit_code == 1, ended.output
    points = product.points(run)
    assert (points["small/tiny/c2"]["verdict"], points["small/slow/c4"]["verdict"]) == ("accepted", None)
    assert product.requests(run, point_id="small/tiny/c2", phase="load").num_rows == 6
    assert (again.exit_code, f"{run.path.name}: STOPPED" in again.output) == (0, True), again.output
    told = product.run("status", run.path.name, **here)
    assert f"{run.path.name}: STOPPED" in told.output
    forgotten = tmp_path / "runs" / ".submissions" / f"{run.path.name}.json"
    forgotten.write_text(
        forgotten.read_text().replace(f'"submission_id": "{run.path.name}"', '"submission_id": "x"')
    )
    for command in ("status", "logs", "stop"):
        unknown = product.run(command, run.path.name, **here)
        assert (unknown.exit_code, "Traceback" in unknown.output) == (3, False), unknown.output
        assert "nothing of the job x" in unknown.output


def test_a_wrong_token_and_a_wrong_address_are_told_apart_from_a_bad_scenario(
    tmp_path: Path, cluster: own_ray.OwnRay
) -> None:
    scenario = product.write_scenario(tmp_path, product.scenario("nowhere"))
    wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 32}
    refused = product.run("submit", scenario, "--address", cluster.job_api, folder=tmp_path, env=wrong)
    assert refused.exit_code == 3, refused.output
    assert cluster.job_api in refused.output
    assert "RAY_AUTH_TOKEN" in refused.output
    with socket.socket() as held:  # bound, so that nobody else takes the port; nobody listens
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        lost = product.run(
            "submit", scenario, "--address", f"http://127.0.0.1:{port}", folder=tmp_path, env=cluster.outside
        )
    assert lost.exit_code == 3, lost.output
    assert f"no Ray Job API at http://127.0.0.1:{port}" in lost.output
    assert "Traceback" not in refused.output + lost.output
    assert list((tmp_path / "runs").iterdir()) == []
