"""GPU memory in use, and what it was over spans of time."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybench.analysis.history import read_history
from raybench.analysis.points import point_vram
from raybench.analysis.vram import gpu_series, in_use_bytes, over_all_gpus, whole_bytes
from raybench.records.schema import GPU

MIB = 1024**2
TOTAL = 1_000_000


def samples(rows: list[dict[str, object]]) -> pa.Table:
    table = pa.Table.from_pylist(rows, schema=GPU.append(pa.field("aligned_unix_ns", pa.int64())))
    return table.append_column("memory_in_use_bytes", in_use_bytes(table))


def sample(at_ns: int, in_use: int | None, uuid: str = "GPU-a", index: int = 0) -> dict[str, object]:
    row: dict[str, object] = {"host": "h", "gpu_uuid": uuid, "gpu_index": index, "aligned_unix_ns": at_ns}
    return row if in_use is None else row | {"memory_total_bytes": TOTAL, "memory_free_bytes": TOTAL - in_use}


def test_o_g2_the_headline_is_total_minus_free_whatever_used_includes() -> None:
    v1 = {"memory_total_bytes": 85_651 * MIB, "memory_free_bytes": 600 * MIB, "memory_used_bytes": 85_051 * MIB}
    v2 = v1 | {"memory_used_bytes": 84_411 * MIB, "memory_reserved_bytes": 640 * MIB}
    rows = [sample(0, None) | v1 | {"memory_api": "v1"}, sample(10, None) | v2 | {"memory_api": "v2"}]
    table = samples(rows)
    assert [used // MIB for used in table["memory_in_use_bytes"].to_pylist()] == [85_051, 85_051]
    usage = over_all_gpus(gpu_series(table), np.asarray([0]), np.asarray([10]))
    assert usage.headroom_min.tolist() == [600 * MIB]
    assert table["memory_reserved_bytes"].to_pylist() == [None, 640 * MIB]


def test_o_g1_a_device_that_gives_no_memory_is_unknown_and_not_zero() -> None:
    assert gpu_series(samples([sample(0, None), sample(1, None)])) == []
    usage = over_all_gpus([], np.asarray([0]), np.asarray([1]))
    assert whole_bytes(usage.peak).to_pylist() == [None]
    assert whole_bytes(usage.mean).to_pylist() == [None]


def test_a_span_between_two_samples_takes_the_one_before_it_while_that_is_fresh() -> None:
    (series,) = gpu_series(samples([sample(100 * k, k) for k in range(5)]))
    usage = series.usage(np.asarray([50, 250, 700, 701, -50]), np.asarray([60, 260, 710, 710, -10]))
    assert whole_bytes(usage.peak).to_pylist() == [0, 2, 4, None, None]


def test_the_worst_gpu_gives_peak_and_headroom_and_all_give_the_mean() -> None:
    rows = [sample(0, 10), sample(1, 20), sample(0, 90, "GPU-b", 1), sample(1, 40, "GPU-b", 1)]
    usage = over_all_gpus(gpu_series(samples(rows)), np.asarray([0]), np.asarray([1]))
    assert (usage.peak[0], usage.headroom_min[0], usage.mean[0]) == (90, TOTAL - 90, 40)


def test_devices_of_the_same_uuid_on_two_hosts_are_two_devices() -> None:
    rows = [sample(0, 1), sample(0, 2) | {"host": "other"}]
    assert [series.host for series in gpu_series(samples(rows))] == ["h", "other"]


def test_a_hole_in_the_samples_leaves_a_span_uncovered() -> None:
    (series,) = gpu_series(samples([sample(at, 1) for at in (0, 10, 20, 30, 200, 210, 220, 230)]))
    assert series.covers(2, 28)
    assert series.covers(12, 17)
    assert not series.covers(5, 225)
    assert not series.covers(100, 110)
    assert not series.covers(300, 310)


def vram_of_a_load(rows: list[dict[str, object]], *, ready_ns: int | None = 20) -> dict[str, object]:
    """Of an arm that was ready then, under load from 100 to 200."""
    load = {"point_id": "a/w/c1", "attempt": 1}
    lines: list[dict[str, object]] = [
        {"event": "load_started", "unix_ns": 100, **load},
        {"event": "load_ended", "unix_ns": 200, **load},
    ]
    if ready_ns is not None:
        lines.append({"event": "arm_ready", "unix_ns": ready_ns, "arm": "a"})
    history = read_history(lines)
    return point_vram(gpu_series(samples(rows)), "a", history.point("a/w/c1").attempts[1], history)


def test_a_gpu_that_was_watched_only_before_the_load_is_the_points_and_tells_what_the_idle_arm_held() -> None:
    before = [sample(10 * k, 7 + k) for k in range(5)]
    row = vram_of_a_load(before)
    assert (row["gpu_data"], row["gpu_idle_bytes"], row["gpu_memory_peak_bytes"]) == ("none", 9, None)
    assert vram_of_a_load(before, ready_ns=None)["gpus"] == [], "nobody knows since when the arm was there"


def test_data_of_one_gpu_of_two_are_incomplete() -> None:
    row = vram_of_a_load([sample(10 * k, 7) for k in range(25)] + [sample(30, 5, "GPU-b", 1)])
    assert (row["gpu_data"], row["gpu_idle_bytes"], row["gpu_memory_peak_bytes"]) == ("incomplete", 7, 7)


@pytest.mark.parametrize("seed", range(3))
def test_peaks_of_many_spans_equal_a_plain_search(seed: int) -> None:
    random = np.random.default_rng(seed)
    at = np.unique(random.integers(0, 2000, 300))
    used = random.integers(0, TOTAL, at.size)
    (series,) = gpu_series(samples([sample(int(a), int(u)) for a, u in zip(at, used, strict=True)]))
    start = random.integers(0, 2000, 200)
    end = start + random.integers(20, 500, 200)
    usage = series.usage(start, end)
    for k in range(200):
        inside = used[(at >= start[k]) & (at <= end[k])]
        if inside.size:
            assert usage.samples[k] == inside.size
            assert usage.peak[k] == inside.max()
            assert usage.headroom_min[k] == TOTAL - inside.max()
            assert usage.mean[k] == pytest.approx(inside.mean())


@settings(deadline=None)
@given(st.lists(st.integers(0, TOTAL), min_size=1, max_size=70), st.data())
def test_the_peak_of_any_range_is_its_largest_sample(used: list[int], data: st.DataObject) -> None:
    (series,) = gpu_series(samples([sample(k, value) for k, value in enumerate(used)]))
    low = data.draw(st.integers(0, len(used) - 1))
    high = data.draw(st.integers(low, len(used) - 1))
    usage = series.usage(np.asarray([low]), np.asarray([high]))
    assert usage.peak.tolist() == [max(used[low : high + 1])]
