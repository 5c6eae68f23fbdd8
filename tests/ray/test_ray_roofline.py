"""`raybench roofline` on this machine and on a running cluster: measured, stored on both sides, nothing left."""

from __future__ import annotations

import json
from pathlib import Path

import own_ray
import pytest
import ray_product as product

from raybench.records.roofline import Roofline, stored_rooflines

pytestmark = [pytest.mark.ray, pytest.mark.slow]

#: No stamp is as good as this, so that each ladder ends with its first step, tried twice.
SHORT = ("--quick", "--error-ms", "0.1")


def assert_measured(roofline: Roofline) -> None:
    """What any host finds, however busy: both ladders were begun, and the numbers hang together."""
    assert {step.kind for step in roofline.steps} == {"tokens_per_s", "streams"}
    assert min(step.streams for step in roofline.steps) == 64
    for step in roofline.steps:
        assert step.tokens_per_s is not None
        assert step.ttft_error_ms_p50 is not None
        assert step.ttft_error_ms_p50 > 0
        assert step.stamp_error_ms_p99 is not None
    carried = [step.streams for step in roofline.steps if step.limited_by is None]
    assert roofline.streams == max(carried, default=None)


def test_this_machine_is_measured_in_a_ray_of_its_own(tmp_path: Path) -> None:
    with product.start("roofline", *SHORT, "--json", folder=tmp_path) as running:
        ended = running.end()
        assert ended.exit_code == 0, ended.output
        # Ray's workers end a moment after the process that had the Ray in it
        product.until(lambda: not running.left_over(), "the end of all that the command started")
    ((host, stored),) = stored_rooflines(tmp_path / "runs").items()
    assert_measured(stored)
    told = json.loads(ended.output[ended.output.index("{\n") :])
    assert Roofline.of_record(told[host], "output") == stored


def test_a_cluster_is_measured_by_a_job_and_both_sides_keep_it(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    spec = own_ray.cluster_file(tmp_path, cluster)
    token = {"TEST_RAY_TOKEN": cluster.token}
    with product.start("roofline", "--cluster", spec.name, *SHORT, folder=tmp_path, env=token) as running:
        ended = running.end()
        assert ended.exit_code == 0, ended.output
    here = stored_rooflines(tmp_path / "runs")
    assert here == stored_rooflines(tmp_path / "on-head")
    for roofline in here.values():
        assert_measured(roofline)
    assert "lower bounds" in ended.output
    assert [actor for actor in cluster.actors() if "Roofline" in actor["class_name"]] == []


def test_a_node_that_the_cluster_does_not_have_is_named(tmp_path: Path, cluster: own_ray.OwnRay) -> None:
    spec = own_ray.cluster_file(tmp_path, cluster)
    token = {"TEST_RAY_TOKEN": cluster.token}
    arguments = ("roofline", "--cluster", spec.name, "--node", "nowhere")
    with product.start(*arguments, folder=tmp_path, env=token) as running:
        ended = running.end()
    assert ended.exit_code == 3
    assert "no such node: nowhere; the cluster has" in ended.output
    assert not (tmp_path / "runs" / ".roofline").exists()
