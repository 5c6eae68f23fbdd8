"""What a page shows of one point: read in batches, thinned out without losing what matters."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from request_rows import request
from synthetic_run import ACCEPT, SyntheticRun, planned, wave, whole_run

from raybench.analysis.merge import merge
from raybench.records.rundir import RunDirectory
from raybench.report import details
from raybench.report.details import GAP_EDGES_MS, PointDetail, read_details
from raybench.report.source import points_rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    made = whole_run(tmp_path_factory.mktemp("details") / "run")
    merge(made)
    return made


def read(run: RunDirectory) -> dict[str, PointDetail]:
    return read_details(run, points_rows(run))


def test_every_measured_point_is_told_by_its_final_attempt(run: RunDirectory) -> None:
    found = read(run)
    assert found.keys() == {"tp2pp4/1k/c2", "tp2pp4/1k/c4", "tp8/1k/c2"}
    assert found["tp2pp4/1k/c4"].total == 4
    assert {row["cached_tokens"] for row in found["tp2pp4/1k/c4"].requests} == {0}  # the hot attempt had none told


def test_times_of_two_hosts_are_on_one_line_from_the_first_send(run: RunDirectory) -> None:
    rows = read(run)["tp2pp4/1k/c2"].requests
    assert [round(row["sent_s"], 3) for row in rows] == [0.0, 0.0, 1.0, 1.0]
    assert [round(row["first_s"], 3) for row in rows] == [0.4, 0.4, 1.4, 1.4]
    assert {row["worker"] for row in rows} == {"w0", "w1"}


def test_gpu_memory_is_of_the_load_and_of_all_devices(run: RunDirectory) -> None:
    gpu = read(run)["tp2pp4/1k/c2"].gpu
    assert gpu is not None
    assert max(gpu.high) == 70 * 1024**3
    assert min(gpu.low) == 65 * 1024**3
    assert min(gpu.at_s) >= 0
    assert max(gpu.at_s) <= 2.0


def test_a_point_without_samples_has_no_time_line_of_memory(run: RunDirectory) -> None:
    assert read(run)["tp8/1k/c2"].gpu is None
    assert read(run)["tp8/1k/c2"].queued is None


def test_a_run_without_records_has_no_details(run: RunDirectory, tmp_path: Path) -> None:
    assert read_details(RunDirectory(tmp_path), points_rows(run)) == {}


def test_points_come_out_alike_however_small_the_batches(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(run)
    monkeypatch.setattr(details, "BATCH_ROWS", 1)
    small = read(run)
    assert len(small) > 1 and small.keys() == whole.keys()
    for point_id, detail in small.items():
        assert detail.requests == whole[point_id].requests
        assert detail.gap_counts.tolist() == whole[point_id].gap_counts.tolist()


def test_of_many_requests_the_failed_and_the_percentiles_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(details, "REQUESTS_SHOWN", 8)
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("a/w/c2", requests=200)])
    rows = [dict(row) for row in wave(10.0, 200)]
    rows[101] = request(101, 60.0, 61.0, first_s=60.9, output_tokens=11, worker="w1", window_start=101)
    rows[77] |= {"outcome": "timeout", "error_class": "timeout_idle", "output_tokens": 0}
    made.attempt(5.0, "a/w/c2", 1, rows, (10.0, 110.0), ACCEPT)
    made.event(111.0, "point_committed", point_id="a/w/c2", attempt=1, verdict="accepted", reasons=[])
    merge(made.done())
    detail = read(made.run)["a/w/c2"]
    tickets = [row["ticket"] for row in detail.requests]
    assert detail.total == 200
    assert {0, 77, 101, 199} <= set(tickets)
    assert len(tickets) <= 8 + 1 + 6
    assert tickets == sorted(tickets)


@given(st.lists(st.floats(min_value=0, max_value=1e7, allow_nan=False)))
def test_every_gap_is_counted_once_in_the_bin_that_holds_it(gaps: list[float]) -> None:
    counts = details._gap_counts(np.asarray(gaps))
    assert counts.sum() == len(gaps)
    for gap in gaps:
        if GAP_EDGES_MS[0] * 1.0001 < gap < GAP_EDGES_MS[-1] * 0.9999:
            place = int(np.argmax(details._gap_counts(np.asarray([gap]))))
            assert GAP_EDGES_MS[place] * 0.999 <= gap <= GAP_EDGES_MS[place + 1] * 1.001


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=3000))
def test_thinning_keeps_the_lowest_and_the_highest_value(levels: list[int]) -> None:
    at_s = np.arange(len(levels), dtype=np.float64)
    line = details._thinned(at_s, np.asarray(levels, dtype=np.float64))
    assert max(line.high) == max(levels)
    assert min(line.low) == min(levels)
    assert len(line.at_s) <= 2 * details.TIMELINE_VALUES
    assert list(line.at_s) == sorted(line.at_s)
