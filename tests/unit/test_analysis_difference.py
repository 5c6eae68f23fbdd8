"""Better, worse or neither: direction, noise, zero and unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.analysis.difference import (
    DIRECTIONS,
    Verdict,
    advantage,
    difference,
    is_clear,
    value_of,
)
from raybench.analysis.points import POINTS

VALUES = st.none() | st.floats(0, 1e9, allow_nan=False)
METRICS = st.sampled_from(sorted(DIRECTIONS))


def test_every_judged_metric_is_a_column_of_points() -> None:
    assert set(DIRECTIONS) <= set(POINTS.names)


def test_o_k1_a_rise_is_worse_for_latencies_and_better_for_throughput() -> None:
    ttft = difference("ttft_ms_p95", 10_000, 12_000)
    assert (ttft.verdict, round(ttft.percent or 0, 6)) == (Verdict.WORSE, 20.0)
    rate = difference("output_tokens_per_s", 100, 110)
    assert (rate.verdict, round(rate.percent or 0, 6)) == (Verdict.BETTER, 10.0)


def test_o_k1_a_count_that_rises_from_zero_is_worse_and_has_no_percentage() -> None:
    told = difference("preemptions", 0, 12)
    assert (told.verdict, told.percent, told.from_zero) == (Verdict.WORSE, None, True)
    assert difference("preemptions", 12, 0).percent == -100.0
    assert difference("preemptions", 12, 0).verdict is Verdict.BETTER


def test_o_k1_what_one_side_does_not_know_is_no_zero() -> None:
    assert difference("tpot_ms_p95", None, 50.0).verdict is Verdict.NO_BASELINE
    assert difference("tpot_ms_p95", 50.0, None).verdict is Verdict.NO_VALUE
    assert difference("tpot_ms_p95", None, None).verdict is Verdict.NOT_KNOWN
    assert difference("preemptions", 0, 0).verdict is Verdict.NO_CLEAR_DIFFERENCE


@pytest.mark.parametrize(
    ("a", "b", "clear"),
    [(100, 103, False), (100, 104, True), (103, 100, False), (100, 97.0, False), (100, 96.9, True), (0, 0, False)],
)
def test_o_k1_no_verdict_below_the_noise_floor(a: float, b: float, clear: bool) -> None:
    assert is_clear(a, b, 3.0) == clear
    assert (difference("output_tokens_per_s", a, b).verdict is not Verdict.NO_CLEAR_DIFFERENCE) == clear


@given(METRICS, VALUES, VALUES, st.floats(0, 50))
def test_o_k1_swapped_values_flip_the_verdict(metric: str, a: float | None, b: float | None, floor: float) -> None:
    forth, back = difference(metric, a, b, floor), difference(metric, b, a, floor)
    assert back.verdict is forth.verdict.flipped
    assert forth.verdict.flipped.flipped is forth.verdict


@given(METRICS, st.floats(1e-3, 1e9), st.floats(1e-3, 1e9), st.floats(0, 50))
def test_both_ways_of_writing_a_clear_difference_are_over_the_floor(
    metric: str, a: float, b: float, floor: float
) -> None:
    if is_clear(a, b, floor):
        for one in (difference(metric, a, b, floor), difference(metric, b, a, floor)):
            assert one.percent is not None and abs(one.percent) > floor * (1 - 1e-9)


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9))
def test_an_advantage_is_one_or_more_whichever_value_comes_first(a: float, b: float) -> None:
    first, factor = advantage(a, b), advantage(b, a)
    assert factor is not None and first == factor >= 1


def test_overlapping_intervals_make_no_clear_difference() -> None:
    told = difference("ttft_ms_p95", 100, 200, overlap=True)
    assert told.verdict is Verdict.NO_CLEAR_DIFFERENCE
    assert told.percent == 100.0


def test_an_advantage_over_zero_has_no_factor() -> None:
    assert advantage(0, 12) is advantage(0, 0) is None


def test_one_output_token_has_no_output_rate_and_no_tpot() -> None:
    point = {"verdict": "accepted", "output_tokens": 1, "output_tokens_per_s": 0.03, "ttft_ms_p95": 5.0}
    assert value_of(point, "output_tokens_per_s") is None
    assert value_of(point, "ttft_ms_p95") == 5.0


@pytest.mark.parametrize("verdict", ["void", "skipped", None])
def test_a_point_without_a_valid_number_has_no_value(verdict: str | None) -> None:
    assert value_of({"verdict": verdict, "output_tokens": 512, "ttft_ms_p95": 5.0}, "ttft_ms_p95") is None
