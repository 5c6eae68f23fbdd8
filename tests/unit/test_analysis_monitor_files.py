"""Files of `raybench monitor` taken into a run: on the common time line, with how it is known."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from request_rows import ns
from synthetic_run import ACCEPT, GIB, START_UNIX_NS, SyntheticRun, planned, wave

from raybench.analysis.merge import MERGE_JSON, merge
from raybench.analysis.monitor_files import take_in
from raybench.errors import RunDirectoryError
from raybench.records.clock import ClockAnchor, ClockOffset
from raybench.records.rundir import RunDirectory
from raybench.records.schema import GPU
from raybench.records.stream import ArrowEncoder, part_metadata

P = "tp2pp4/1k/c2"
UUID = "GPU-0"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """One point from 10 s to 12 s, without GPU data; the journal begins with the coordinator's boot."""
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned(P)])
    made.event(0.0, "run_started", run_id="demo", boot_id="boot-head")
    made.event(1.0, "arm_ready", arm="tp2pp4")
    made.attempt(9.0, P, 1, wave(10.0, 4), (10.0, 12.0), ACCEPT)
    made.event(12.5, "point_committed", point_id=P, attempt=1, verdict="accepted", reasons=[])
    return made.done()


@pytest.fixture
def monitor_file(tmp_path: Path) -> Callable[..., Path]:
    """Samples each 100 ms from 8 s to 14 s of the run: 30 GiB, and 50 GiB at the middle of the point."""

    def make(boot_id: str = "boot-gpu", ahead_s: float = 0.0, cut_bytes: int = 0) -> Path:
        anchor = ClockAnchor("gpu-box", boot_id, START_UNIX_NS + ns(8.0 + ahead_s), ns(7.0 + 8.0))
        encoder = ArrowEncoder(GPU, part_metadata("gpu", anchor))
        data = b""
        for step in range(61):
            at_s = 8.0 + step / 10
            free = (30 if step == 30 else 50) * GIB
            row = {"host": "gpu-box", "gpu_uuid": UUID, "gpu_index": 0, "sample_ns": ns(7.0 + at_s), "gap": False}
            data += encoder.encode([row | {"memory_total_bytes": 80 * GIB, "memory_free_bytes": free}])
        data += encoder.close()
        path = tmp_path / "gpu-box.arrows"
        path.write_bytes(data[: len(data) - cut_bytes])
        return path

    return make


def point(run: RunDirectory) -> dict[str, Any]:
    merge(run)
    (row,) = pq.read_table(run.points_parquet).to_pylist()
    return row


def warnings(run: RunDirectory) -> list[str]:
    told: list[str] = json.loads((run.path / MERGE_JSON).read_text())["warnings"]
    return told


def test_a_monitors_samples_become_the_points_vram(run: RunDirectory, monitor_file: Callable[..., Path]) -> None:
    assert point(run)["gpu_data"] == "none"
    path = monitor_file()
    before = path.read_bytes()
    taken = take_in(run, path)
    assert (taken.samples, taken.samples_in_loads, taken.source) == (61, 21, "assumed")
    row = point(run)
    assert (row["gpu_data"], row["gpu_memory_peak_bytes"]) == ("complete", 50 * GIB)
    assert row["gpu_headroom_min_bytes"] == 30 * GIB
    assert path.read_bytes() == before


def test_an_offset_that_nobody_measured_is_told_by_every_merge(
    run: RunDirectory, monitor_file: Callable[..., Path]
) -> None:
    taken = take_in(run, monitor_file())
    text = "its clock's offset is assumed, not measured: +0.0 ms +- 1000 ms"
    assert taken.told == f"61 samples, 21 of them during loads; {text}"
    for _ in range(2):
        merge(run)
        assert warnings(run) == [f"{run.relative(taken.part)}: {text}"]


def test_a_given_offset_is_taken_off_and_the_same_file_is_never_there_twice(
    run: RunDirectory, monitor_file: Callable[..., Path]
) -> None:
    path = monitor_file(ahead_s=90.0)
    assert take_in(run, path).samples_in_loads == 0
    taken = take_in(run, path, offset_ms=90_000, uncertainty_ms=5)
    assert (taken.samples_in_loads, taken.offset) == (21, ClockOffset(ns(90.0), ns(0.005)))
    assert "given by hand: +90000.0 ms +- 5 ms" in taken.told
    assert run.gpu_parts() == [taken.part]
    assert point(run)["gpu_memory_peak_bytes"] == 50 * GIB


def test_within_one_boot_the_offset_is_exact_whatever_the_wall_clocks_say(
    run: RunDirectory, monitor_file: Callable[..., Path]
) -> None:
    """Both sides hang on one monotonic clock, and the journal says where the coordinator stood on it."""
    taken = take_in(run, monitor_file("boot-head", ahead_s=4000.0))
    assert (taken.source, taken.offset) == ("same boot", ClockOffset(ns(4000.0), 0))
    assert taken.samples_in_loads == 21
    merge(run)
    assert warnings(run) == []


def test_o_f1_a_monitor_that_was_killed_stays_visibly_torn(
    run: RunDirectory, monitor_file: Callable[..., Path]
) -> None:
    taken = take_in(run, monitor_file(cut_bytes=100))
    assert taken.samples == 60
    merge(run)
    assert any("file not closed" in warning for warning in warnings(run))


def test_what_is_no_monitors_file_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    other = next(run.parts.rglob("w0.arrows"))
    with pytest.raises(RunDirectoryError, match="not a file of `raybench monitor`"):
        take_in(run, other)
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        take_in(run, tmp_path / "nothing.arrows")
    assert run.gpu_parts() == []
