"""Confidence intervals: between values that were seen, and refused where n does not allow one."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybench.analysis.intervals import (
    Interval,
    mean_interval,
    percentile_interval,
    rate_interval,
    share_interval,
    student_t,
)
from raybench.analysis.stats import nearest_rank


@pytest.mark.parametrize(("percent", "least"), [(50, 6), (95, 72), (99, 368)])
def test_a_percentile_of_too_few_values_has_no_interval(percent: int, least: int) -> None:
    assert percentile_interval(list(range(least - 1)), percent) is None
    assert percentile_interval(list(range(least)), percent) is not None


def test_an_empty_sample_and_the_maximum_have_no_interval() -> None:
    assert percentile_interval([], 50) is None
    assert percentile_interval(list(range(1000)), 100) is None


def test_the_ranks_are_those_of_the_tables() -> None:
    """n = 100: ranks 40 and 61 for the median, 90 and 100 for the 95th percentile."""
    values = list(range(1, 101))
    assert percentile_interval(values, 50) == Interval(40, 61)
    assert percentile_interval(values, 95) == Interval(90, 100)


def exact_coverage(n: int, percent: int, low: int, high: int) -> float:
    """P(low <= B < high) of a binomial B, in exact integers."""
    p = percent
    total = sum(math.comb(n, k) * p**k * (100 - p) ** (n - k) for k in range(low, high))
    return total / 100**n


@settings(deadline=None)
@given(st.integers(6, 400), st.sampled_from([50, 90, 95, 99]))
def test_the_interval_covers_at_least_95_percent_and_no_rank_can_be_spared(n: int, percent: int) -> None:
    found = percentile_interval(list(range(1, n + 1)), percent)
    if found is None:
        return
    low, high = int(found.low), int(found.high)
    assert exact_coverage(n, percent, low, high) >= 0.95
    assert exact_coverage(n, percent, 0, low + 1) > 0.025
    assert exact_coverage(n, percent, high - 1, n + 1) > 0.025


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=300), st.sampled_from([50, 95, 99]))
def test_the_interval_holds_its_percentile_and_ends_in_members_of_the_sample(values: list[float], p: int) -> None:
    found = percentile_interval(values, p)
    if found is not None:
        assert found.low in values and found.high in values
        middle = nearest_rank(values, p)
        assert middle is not None and found.low <= middle <= found.high


def test_a_million_values_are_no_trouble() -> None:
    found = percentile_interval(np.arange(1_000_000), 99)
    assert found is not None
    assert found.low < 990_000 < found.high
    assert found.high - found.low < 500


@pytest.mark.parametrize(
    ("k", "n", "low", "high"), [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0)]
)
def test_the_interval_of_a_share_is_that_of_the_literature(k: int, n: int, low: float, high: float) -> None:
    """81 of 263: 0.2553 to 0.3662 (Newcombe 1998, Statistics in Medicine 17, p. 857, table I)."""
    found = share_interval(k, n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(20, 500), st.data())
def test_the_interval_of_a_share_holds_it_and_mirrors(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    found, mirrored = share_interval(k, n), share_interval(n - k, n)
    assert found is not None and mirrored is not None
    assert 0 <= found.low <= k / n + 1e-12
    assert k / n - 1e-12 <= found.high <= 1
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low))


@pytest.mark.parametrize(("k", "n"), [(0, 0), (19, 19)])
def test_a_share_of_few_has_no_interval(k: int, n: int) -> None:
    assert share_interval(k, n) is None


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.7062), (2, 4.3027), (10, 2.2281), (11, 2.2010), (30, 2.0423), (1000, 1.9623)]
)
def test_student_s_t_is_that_of_the_tables(degrees: int, quantile: float) -> None:
    assert student_t(degrees) == pytest.approx(quantile, abs=3e-4)


def test_fewer_than_three_repeats_have_no_interval() -> None:
    assert mean_interval([1.0, 2.0]) is None
    found = mean_interval([10.0, 11.0, 12.0])
    assert found is not None
    assert (found.low, found.high) == pytest.approx(
        (11 - 4.3027 / math.sqrt(3), 11 + 4.3027 / math.sqrt(3)), abs=1e-3
    )


def test_no_degrees_of_freedom_is_a_bug() -> None:
    with pytest.raises(ValueError, match="at least one"):
        student_t(0)


SECOND = 1_000_000_000


def test_a_steady_rate_has_a_narrow_interval_around_it() -> None:
    stamps = np.arange(0, 100 * SECOND, SECOND // 100, dtype=np.int64)
    found = rate_interval(stamps, np.full(stamps.size, 5), (0, 100 * SECOND), SECOND)
    assert found is not None
    assert found.low <= 500 <= found.high
    assert found.high - found.low < 5


def test_an_uneven_rate_has_a_wide_one() -> None:
    random.seed(1)
    stamps = np.asarray(sorted(random.choices(range(100 * SECOND), k=200)), dtype=np.int64)
    found = rate_interval(stamps, np.full(stamps.size, 5), (0, 100 * SECOND), SECOND)
    assert found is not None
    assert found.low <= 10 <= found.high
    assert found.high - found.low > 0.5


def test_a_window_too_short_for_ten_lives_of_a_request_has_no_interval() -> None:
    stamps = np.arange(0, 9 * SECOND, SECOND // 100, dtype=np.int64)
    assert rate_interval(stamps, np.full(stamps.size, 5), (0, 9 * SECOND), SECOND) is None


def test_intervals_overlap_or_they_do_not() -> None:
    assert Interval(1, 3).overlaps(Interval(3, 4))
    assert Interval(1, 3).overlaps(Interval(0, 9))
    assert not Interval(1, 3).overlaps(Interval(3.1, 4))
    assert not Interval(3.1, 4).overlaps(Interval(1, 3))
