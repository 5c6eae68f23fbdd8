"""Searches on a real Ray: probes as points, the result in the files, and the same again by a merge alone."""

import json
from pathlib import Path

import own_ray
import pytest
import ray_product as product

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_searches_measure_their_levels_and_a_merge_finds_the_same(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    """One limit that any answer keeps, one that none does, so that no timing decides."""
    kept = {"slo": {"e2e_ms_max": 3_600_000}, "maximum": 4}
    broken = {"slo": {"ttft_ms_p50": 0}, "maximum": 4}
    workloads = [{"name": "kept", "search": kept, "requests": 4}, {"name": "broken", "search": broken}]
    path = product.write_scenario(tmp_path, product.scenario("searching", workloads=workloads))
    ended = product.run("run", path, folder=tmp_path, env=cluster.inside)
    assert ended.exit_code == 0, ended.output
    run = product.only_run(tmp_path / "runs")
    assert run is not None
    assert {name: row["verdict"] for name, row in product.points(run).items()} == dict.fromkeys(
        ["small/kept/c1", "small/kept/c2", "small/kept/c4", "small/broken/c1"], "accepted"
    )
    found = json.loads(run.searches_json.read_text())
    assert [(one["workload"], one["status"], one["level"]) for one in found] == [
        ("kept", "above_maximum", 4),
        ("broken", "below_minimum", None),
    ]
    assert [(probe["level"], probe["passes"]) for probe in found[0]["probes"]] == [(1, True), (2, True), (4, True)]
    assert found[0]["goodput"]["good"] == found[0]["goodput"]["n"] == 4
    assert found[0]["goodput"] == product.events(run, "search_ended")[0]["goodput"]
    assert "C=4, the maximum: not bounded by the search." in ended.output

    run.searches_json.unlink()
    again = product.run("merge", run.path, folder=tmp_path)
    assert again.exit_code == 0, again.output
    assert json.loads(run.searches_json.read_text()) == found

    asked = len(product.events(run, "attempt_started"))
    resumed = product.run("run", "--resume", run.path, folder=tmp_path, env=cluster.inside)
    assert resumed.exit_code == 0, resumed.output
    assert len(product.events(run, "attempt_started")) == asked, "a search that has ended is not done again"
