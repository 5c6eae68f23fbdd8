"""Cold is proven or refused, on a real Ray and with the simulated engine's lies."""

import json
from pathlib import Path
from typing import Any

import own_ray
import pytest
import ray_product as product

pytestmark = pytest.mark.ray


def drive(tmp_path: Path, cluster: own_ray.OwnRay, **sections: Any) -> tuple[product.Ended, product.RunDirectory]:
    path = product.write_scenario(tmp_path, product.scenario("lies", **sections))
    ended = product.run("run", path, folder=tmp_path, env=cluster.inside)
    run = product.only_run(tmp_path / "runs")
    assert run is not None, ended.output
    return ended, run


def test_a_preloaded_corpus_is_found_out_and_fresh_text_passes(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    workloads = [{"input_tokens": 1024, "concurrency": [2], "requests": 6}]
    ended, run = drive(tmp_path, cluster, sim={"faults": {"preload_corpus": True}}, workloads=workloads)
    assert ended.exit_code == 0, ended.output
    first, second = product.events(run, "verdict")
    assert (first["attempt"], first["verdict"]) == (1, "retry")
    # a page of each prompt is always computed anew, so that "all of it" is not quite 1
    assert first["hit_rates"]["requests"] > 0.98
    assert first["hit_rates"]["log"] == first["hit_rates"]["requests"]
    assert {one["code"] for one in first["findings"] if one["severity"] == "void"} == {"hit_rate_exceeded"}
    assert (second["attempt"], second["verdict"]) == (2, "accept")
    assert second["hit_rates"] == {"requests": 0.0, "counters": 0.0, "log": 0.0}
    row = product.points(run)["small/tiny/c2"]
    assert (row["verdict"], row["final_attempt"], row["attempts"]) == ("accepted", 2, 2)
    # the rejected attempt is kept, and told apart
    assert product.requests(run, phase="load", final=True)["attempt"].unique().to_pylist() == [2]
    assert product.requests(run, phase="load", attempt=1).num_rows == 6


def test_a_server_that_always_hits_stops_the_run_and_says_why(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    ended, run = drive(tmp_path, cluster, sim={"faults": {"always_hit": True}})
    assert ended.exit_code == 1, ended.output
    assert [line["verdict"] for line in product.events(run, "verdict")] == ["retry", "void"]
    row = product.points(run)["small/tiny/c2"]
    assert row["verdict"] == "void"
    assert any(reason.startswith("not cold: prefix hit rate") for reason in row["reasons"])
    assert "not cold: prefix hit rate" in ended.output
    assert product.events(run, "run_ended")[-1]["status"] == "stopped"


def test_a_flush_that_is_always_refused_ends_with_the_last_reply(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    guards = {"flush_timeout_s": 0.5, "flush_retry_s": 0.1}
    ended, run = drive(tmp_path, cluster, sim={"faults": {"flush": "refused"}}, guards=guards)
    assert ended.exit_code == 4, ended.output
    failed = product.events(run, "step")[-1]
    assert (failed["step"], failed["status"]) == ("flush", "failed")
    assert "HTTP 400" in failed["error"]
    assert "HTTP 400" in ended.output
    assert product.requests(run, phase="load").num_rows == 0
    assert product.points(run)["small/tiny/c2"]["verdict"] == "void"
    assert json.loads((run.path / "report.json").read_text())["points"]
