"""Goodput: requests that meet every limit by themselves, over the wall of all, with an interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from request_rows import failed, request, table

from raybench.analysis.goodput import INTERVAL_N_MIN, goodput, wilson_interval
from raybench.analysis.metrics import LATENCIES
from raybench.analysis.point_metrics import POINT_METRICS
from raybench.scenario.search import request_limits
from raybench.scenario.search_block import SearchBlock, SloMetric

LIMITS = {"ttft_ms": 200.0, "tpot_ms": 100.0}


def answer(ticket: int, ttft_s: float, tpot_s: float = 0.05, **changes: object) -> dict[str, object]:
    """Ten tokens of a request that was sent at 0; the wall ends at 2 s."""
    return request(ticket, 0.0, 2.0, first_s=ttft_s, last_s=ttft_s + 9 * tpot_s, output_tokens=10, **changes)


def test_a_request_counts_when_every_limit_holds_for_it_alone() -> None:
    rows = [
        answer(0, 0.2),
        answer(1, 0.1),
        answer(2, 0.21),
        answer(3, 0.1, 0.11),
        failed(4, 0.0, 1.0, "timeout", "TimeoutError"),
        answer(5, 0.1, tokens_source="chunks"),
        answer(6, 0.1, phase="prewarm"),
    ]
    found = goodput(table(rows), LIMITS)
    assert (found.n, found.good) == (6, 2)
    assert found.requests_per_s == pytest.approx(1.0)
    assert found.output_tokens_per_s == pytest.approx(10.0)
    assert (found.requests_per_s_low, found.requests_per_s_high) == (None, None), "too few for an interval"


def test_without_latency_limits_every_successful_request_is_good() -> None:
    found = goodput(table([answer(0, 1.5), failed(1, 0.0, 1.0, "timeout", "TimeoutError")]), {})
    assert (found.n, found.good) == (2, 1)


def test_the_interval_is_that_of_the_share_times_the_rate_of_all_requests() -> None:
    n = INTERVAL_N_MIN
    found = goodput(table([answer(k, 0.1 if k < 15 else 0.3) for k in range(n)]), LIMITS)
    low, high = wilson_interval(15, n)
    assert found.requests_per_s == pytest.approx(7.5)
    assert (found.requests_per_s_low, found.requests_per_s_high) == pytest.approx((low * n / 2, high * n / 2))


def test_fewer_than_twenty_requests_have_a_rate_and_no_interval() -> None:
    def of(n: int) -> tuple[bool, bool]:
        found = goodput(table([answer(k, 0.1) for k in range(n)]), LIMITS)
        return found.requests_per_s is not None, found.requests_per_s_low is not None

    assert (of(19), of(20)) == ((True, False), (True, True))


def test_no_request_at_all_has_no_rate() -> None:
    assert goodput(table([]), LIMITS).requests_per_s is None


def test_the_wilson_interval_is_that_of_the_literature() -> None:
    """81 of 263: 0.2553 to 0.3662 (Newcombe 1998, Statistics in Medicine 17, p. 857, table I)."""
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@given(st.integers(1, 500), st.data())
def test_the_interval_holds_the_share_and_mirrors(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = wilson_interval(k, n)
    assert 0 <= low <= k / n + 1e-12
    assert k / n - 1e-12 <= high <= 1
    assert wilson_interval(n - k, n) == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("k", "n"), [(0, 0), (2, 1), (-1, 3)])
def test_a_share_of_nothing_is_refused(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="no share"):
        wilson_interval(k, n)


def test_every_metric_of_an_slo_is_a_metric_of_points_and_of_requests() -> None:
    for metric in SloMetric.__args__:  # type: ignore[attr-defined]
        assert metric in POINT_METRICS
        block = SearchBlock.model_validate({"over": "rate_per_s", "slo": {metric: 1}, "maximum": 2})
        assert set(request_limits(block.question)) <= set(LATENCIES)
