"""One percentile for every table: nearest rank, in integer arithmetic."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybench.analysis.stats import nearest_rank, summary_row

SAMPLES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("n", "percent", "value"),
    [
        (16, 95, 16),
        (100, 95, 95),
        (100, 99, 99),
        (8, 95, 8),
        (8, 50, 4),
        (1, 95, 1),
        (1, 1, 1),
        (0, 95, None),
    ],
)
def test_o_t2_percentiles_are_nearest_rank(n: int, percent: int, value: int | None) -> None:
    values = list(range(1, n + 1))
    random.Random(n).shuffle(values)
    assert nearest_rank(values, percent) == value


@pytest.mark.parametrize("n", [20, 40, 60, 100, 200, 1000, 10_000])
def test_the_rank_is_exact_at_multiples_where_floating_point_slips(n: int) -> None:
    values = list(range(1, n + 1))
    assert nearest_rank(values, 95) == n * 95 // 100


@settings(deadline=None)
@given(SAMPLES, st.integers(1, 100))
def test_nearest_rank_is_a_member_of_the_sample(values: list[float], percent: int) -> None:
    assert nearest_rank(values, percent) in values


@settings(deadline=None)
@given(SAMPLES, st.integers(1, 100), st.integers(1, 100))
def test_nearest_rank_never_falls_when_the_percentage_rises(values: list[float], one: int, other: int) -> None:
    low, high = nearest_rank(values, min(one, other)), nearest_rank(values, max(one, other))
    assert low is not None and high is not None and low <= high


@settings(deadline=None)
@given(SAMPLES)
def test_the_highest_rank_is_the_maximum(values: list[float]) -> None:
    assert nearest_rank(values, 100) == max(values)


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=300), st.integers(1, 100))
def test_at_least_the_percentage_lies_at_or_below_the_rank(values: list[int], percent: int) -> None:
    value = nearest_rank(values, percent)
    assert value is not None
    at_or_below = sum(one <= value for one in values)
    below = sum(one < value for one in values)
    assert at_or_below * 100 >= percent * len(values) > below * 100


@pytest.mark.parametrize("percent", [0, 101, -5])
def test_a_percentage_outside_1_to_100_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match="must be in 1"):
        nearest_rank([1.0], percent)


def test_an_unknown_value_in_a_sample_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="left out"):
        nearest_rank([1.0, float("nan")], 95)


def test_the_summary_of_an_empty_sample_is_unknown_but_for_its_size() -> None:
    columns = summary_row("tpot_ms", np.zeros(0))
    assert columns["tpot_ms_n"] == 0
    assert {value for name, value in columns.items() if name != "tpot_ms_n"} == {None}


def test_a_summary_names_its_columns_after_the_metric() -> None:
    assert summary_row("e2e_ms", [1.0, 2.0, 3.0, 4.0]) == {
        "e2e_ms_mean": 2.5,
        "e2e_ms_p50": 2.0,
        "e2e_ms_p95": 4.0,
        "e2e_ms_p99": 4.0,
        "e2e_ms_max": 4.0,
        "e2e_ms_n": 4,
    }
