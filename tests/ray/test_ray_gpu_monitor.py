"""The GPU monitor dies in the middle of a load: it is replaced, and the gap is in the data and in the verdict."""

import json
import os
import signal
from pathlib import Path

import own_ray
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import ray_product as product

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SLOW = "small/slow/c4"


@pytest.mark.parametrize("required", [False, True], ids=["wanted", "required"])
def test_o_g1_a_monitor_that_is_killed_is_replaced_with_a_marked_gap(
    tmp_path: Path, cluster: own_ray.OwnRay, required: bool
) -> None:
    monitors = {"gpu": {"interval_s": 0.1, "required": required}}
    workload = {**product.SLOW, "requests": 48}
    content = product.scenario("monitor-dies", sim=product.SLOW_SIM, workloads=[workload], monitors=monitors)
    path = product.write_scenario(tmp_path, content)
    with product.start("run", path, folder=tmp_path, env=cluster.inside) as running:
        run = product.wait_for_run(tmp_path / "runs", running)
        product.wait_for_load(run, running, SLOW)
        [pid] = [actor["pid"] for actor in cluster.actors() if actor["class_name"] == "GpuMonitorActor"]
        os.kill(pid, signal.SIGKILL)
        product.while_running(running, lambda: len(run.gpu_parts()) == 2 or None, "a second monitor's part")
        ended = running.end()
    assert ended.exit_code == (1 if required else 0), ended.output
    row = product.points(run)[SLOW]
    assert row["verdict"] == ("void" if required else "accepted")
    [gap] = [one for one in json.loads(row["findings"]) if one["code"].startswith("gpu_")]
    assert (gap["code"], gap["severity"]) == ("gpu_data_gap", "void" if required else "warning")
    assert "the monitor was replaced" in gap["message"]
    assert row["gpu_data"] == "incomplete"

    samples = pq.read_table(run.gpu_parquet)
    marked = samples.filter(pc.match_substring(samples["note"], "the monitor was replaced"))
    assert set(marked["gpu_uuid"].to_pylist()) == set(samples["gpu_uuid"].to_pylist())
    assert marked["gap"].to_pylist() == [True] * marked.num_rows
    assert len(set(samples["source_part"].to_pylist())) == 2
    # the first part was never ended: the merge says so
    warnings = json.loads((run.path / "merge.json").read_text())["warnings"]
    assert [warning for warning in warnings if warning.startswith("parts/gpu/") and "file not closed" in warning]
    product.until(lambda: not cluster.actors(), "a cluster without actors")
