"""`raybench submit` without a cluster: one command, a Ray of its own, a complete run directory, nothing left."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import ray_product as product

pytestmark = pytest.mark.ray

FILES = ["manifest.json", "journal.jsonl", "points.parquet", "requests.parquet", "gpu.parquet"]
FILES += ["server.parquet", "worker.parquet", "report.md", "report.html", "report.json", "arms/small/facts.json"]
FILES += ["arms/small/gpus.json", "arms/small/engine.log"]

TWO_POINTS = [
    {"name": "tiny", "concurrency": [1, 3], "requests": 6},
    {"name": "long", "input_tokens": "40k", "concurrency": [1]},
]


@pytest.fixture
def machine() -> Iterator[Path]:
    """A folder for temporary files in which a Ray has left its record, as on a machine where one runs."""
    with tempfile.TemporaryDirectory(prefix="rbt", dir="/tmp") as name:  # short: sockets in it have a limited path
        (Path(name) / "ray").mkdir()
        (Path(name) / "ray" / "ray_current_cluster").write_text("192.0.2.1:6379")
        yield Path(name)


def test_one_command_leaves_a_complete_run_directory_and_nothing_else(tmp_path: Path, machine: Path) -> None:
    path = product.write_scenario(tmp_path, product.scenario("first", workloads=TWO_POINTS))
    with product.start("submit", path.name, folder=tmp_path, env={"TMPDIR": str(machine)}) as running:
        ended = running.end()
        assert ended.exit_code == 0, ended.output
        assert running.left_over() == []
    run = product.only_run(tmp_path / "runs")
    assert run is not None
    assert [name for name in FILES if not (run.path / name).is_file()] == []
    assert str(run.report_md) in ended.output
    # the machine's own record of Ray and its user's token are as they were
    assert [path.relative_to(machine).as_posix() for path in machine.rglob("*") if path.is_file()] == [
        "ray/ray_current_cluster"
    ]
    assert (machine / "ray" / "ray_current_cluster").read_text() == "192.0.2.1:6379"
    assert not (tmp_path / ".ray").exists()

    points = product.points(run)
    assert {point_id: row["verdict"] for point_id, row in points.items()} == {
        "small/tiny/c1": "accepted",
        "small/tiny/c3": "accepted",
        "small/long/c1": "skipped",
    }
    for level in (1, 3):
        row = points[f"small/tiny/c{level}"]
        assert (row["requests_ok"], row["in_flight_peak"], row["prefix_hit_rate"]) == (6, level, 0.0)
        assert row["gpu_data"] == "complete"
        assert product.requests(run, point_id=row["point_id"], phase="load").num_rows == 6
        assert product.requests(run, point_id=row["point_id"], phase="prewarm").num_rows == 1
    assert product.requests(run).num_rows == 2 * (6 + 1)
    assert len(pq.read_table(run.gpu_parquet)["gpu_uuid"].unique()) == 2
    assert pq.read_table(run.server_parquet).num_rows > 0
    assert pq.read_table(run.worker_parquet).num_rows > 0
    assert len(json.loads((run.path / "report.json").read_text())["points"]) == 3

    assert_journal_tells_the_procedure(run)


def assert_journal_tells_the_procedure(run: product.RunDirectory) -> None:
    """Each event and each step in its order; clocks and load times stand between."""
    told = [line["event"] for line in product.events(run) if line["event"] not in ("clock", "step")]
    point = ["attempt_started", "load_started", "load_ended", "verdict", "point_committed"]
    start = ["fleet_ready", "run_started", "arm_launched", "arm_ready", "gpu_monitor", "server_log"]
    assert told == [*start, *point, *point, "point_committed", "arm_stopped", "run_ended"]
    for level in (1, 3):
        assert product.steps(run, f"small/tiny/c{level}", 1) == product.STEPS
