"""Open loops on a real Ray against the simulated engine: a rate, a trace, and a rate that nobody could answer."""

import json
from pathlib import Path

import own_ray
import pytest
import ray_product as product

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_rates_and_traces_are_sent_by_schedule_and_an_overload_is_told(
    tmp_path: Path, cluster: own_ray.OwnRay
) -> None:
    entries = [{"timestamp": 100 * k, "input_length": 64 - k, "output_length": 4 + k} for k in range(10)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, entries)))
    given = product.scenario(
        "open",
        sim={"time_compression": 1, "max_running_requests": 2},
        workloads=[
            {
                "name": "rate",
                "rate_per_s": [4],
                "requests": 12,
                "arrivals": {"process": "gamma", "burstiness": 0.5},
            },
            {"name": "trace", "trace": {"path": "t.jsonl", "speeds": [2]}, "requests": 10},
            {"name": "overload", "output_tokens": 64, "rate_per_s": [40], "duration_s": 4},
        ],
        load={"workers_per_node": 2},
        guards={"late_share_max": 1.0},  # a busy machine must not fail this test
    )
    ended = product.run("run", product.write_scenario(tmp_path, given), folder=tmp_path, env=cluster.inside)
    run = product.only_run(tmp_path / "runs")
    assert run is not None and ended.exit_code == 0, ended.output
    points = product.points(run)
    assert [(name, row["verdict"]) for name, row in points.items()] == [
        ("small/rate/r4", "accepted"),
        ("small/trace/x2", "accepted"),
        ("small/overload/r40", "accepted"),
    ]
    rows = product.requests(run, phase="load").to_pylist()
    assert len(rows) == 12 + 10 + 160
    assert {row["worker"] for row in rows} == {"w000", "w001"}
    assert all(row["scheduled_ns"] <= row["sent_ns"] for row in rows)
    replayed = sorted((row for row in rows if row["point_id"] == "small/trace/x2"), key=lambda row: row["ticket"])
    assert [row["input_tokens"] for row in replayed] == [64 - k for k in range(10)]
    assert [row["output_tokens"] for row in replayed] == [4 + k for k in range(10)]
    codes = {found["code"] for found in json.loads(points["small/overload/r40"]["findings"])}
    assert "rate_not_sustained" in codes
    assert "rate_not_sustained" not in points["small/trace/x2"]["findings"]
    assert "## Open loop" in run.report_md.read_text()
    assert json.loads(run.manifest.read_text())["traces"]["trace"]["sha256"]
