"""Stamps of several hosts on the coordinator's clock."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybench.analysis.alignment import (
    ClockReading,
    align,
    align_monotonic,
    jump_ns,
    uncertainty_ns,
    without_steps,
)
from raybench.records.clock import ClockAnchor

S = 1_000_000_000
MS = 1_000_000
T = 1_800_000_000 * S


def test_a_host_behind_is_brought_forward() -> None:
    anchor = ClockAnchor("gpu-host", None, unix_ns=T - 5 * S // 2, monotonic_ns=42 * S)
    stamps = pa.chunked_array([[42 * S, None], [43 * S]])
    aligned = align_monotonic(stamps, anchor, [ClockReading(T, -5 * S // 2, MS)])
    assert aligned.to_pylist() == [T, None, T + S]


def test_without_a_measured_offset_the_anchor_alone_counts() -> None:
    anchor = ClockAnchor("a", None, unix_ns=T, monotonic_ns=0)
    assert align_monotonic(pa.chunked_array([[S]]), anchor, []).to_pylist() == [T + S]


def test_drift_between_two_measurements_is_spread_over_the_time_between() -> None:
    readings = [ClockReading(T, 0, MS), ClockReading(T + 100 * S, 10 * MS, MS)]
    local = np.asarray([T, T + 50 * S + 5 * MS, T + 100 * S + 10 * MS, T + 200 * S + 10 * MS])
    assert align(local, readings).tolist() == [T, T + 50 * S, T + 100 * S, T + 200 * S]


def test_o_r5_a_step_of_the_clients_wall_clock_moves_no_anchored_stamp() -> None:
    """The anchor is from before the step of -1 s; the offset measured after it is not the anchor's."""
    before, after = ClockReading(T, 20 * MS, MS), ClockReading(T + 60 * S, 20 * MS - S, MS)
    anchor = ClockAnchor("client", None, unix_ns=T + 20 * MS, monotonic_ns=0)
    stamps = pa.chunked_array([[0, 30 * S, 60 * S]])
    assert align_monotonic(stamps, anchor, [before, after]).to_pylist() == [T, T + 30 * S, T + 60 * S]


def test_a_difference_that_drift_explains_is_no_step() -> None:
    readings = [ClockReading(T, 0, MS), ClockReading(T + 1000 * S, 400 * MS, MS)]
    assert without_steps(readings) == readings


def test_drift_after_a_step_still_counts() -> None:
    readings = [ClockReading(T, 0, MS), ClockReading(T + S, S, MS), ClockReading(T + 100 * S, S + 5 * MS, MS)]
    assert [reading.offset_ns for reading in without_steps(readings)] == [0, 0, 5 * MS]


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12), st.lists(st.integers(0, 10**13), min_size=1, max_size=50))
def test_a_constant_offset_is_taken_off_exactly(offset_ns: int, elapsed: list[int]) -> None:
    local = np.asarray(elapsed, dtype=np.int64) + T + offset_ns
    readings = [ClockReading(T, offset_ns, 0), ClockReading(T + 10**13, offset_ns, 0)]
    assert align(local, readings).tolist() == [T + passed for passed in elapsed]


@pytest.mark.parametrize(
    ("readings", "known_to"),
    [
        ([ClockReading(T, 7, 3)], 3),
        ([ClockReading(T, 7, 3), ClockReading(T + S, 7, 9)], 9),
        ([ClockReading(T, 0, 3), ClockReading(T + S, 10, 3)], 8),
    ],
    ids=["one reading", "a worse one", "what it moved by is not known either"],
)
def test_the_uncertainty_over_a_time_encloses_its_readings(readings: list[ClockReading], known_to: int) -> None:
    assert uncertainty_ns(readings) == known_to


def test_a_jump_is_what_neither_drift_nor_uncertainty_explains() -> None:
    before = ClockReading(T, 0, MS)
    assert jump_ns(before, ClockReading(T + 10 * S, 8 * MS, MS)) == 0  # 5 drift + 1 + 2 x 1
    assert jump_ns(before, ClockReading(T + 10 * S, 9 * MS, MS)) == 9 * MS
    assert jump_ns(before, ClockReading(T + 10 * S, -9 * MS, MS)) == -9 * MS
