"""Goodput: requests that meet every limit by themselves, over the wall of all, with an interval."""

from __future__ import annotations

import pytest
from request_rows import failed, request, table

from raybench.analysis.goodput import goodput
from raybench.analysis.intervals import share_interval
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
    found = goodput(table([answer(k, 0.1 if k < 15 else 0.3) for k in range(20)]), LIMITS)
    share = share_interval(15, 20)
    assert share is not None
    assert found.requests_per_s == pytest.approx(7.5)
    assert (found.requests_per_s_low, found.requests_per_s_high) == pytest.approx(
        (10 * share.low, 10 * share.high)
    )


def test_fewer_than_twenty_requests_have_a_rate_and_no_interval() -> None:
    def of(n: int) -> tuple[bool, bool]:
        found = goodput(table([answer(k, 0.1) for k in range(n)]), LIMITS)
        return found.requests_per_s is not None, found.requests_per_s_low is not None

    assert (of(19), of(20)) == ((True, False), (True, True))


def test_no_request_at_all_has_no_rate() -> None:
    assert goodput(table([]), LIMITS).requests_per_s is None


def test_every_metric_of_an_slo_is_a_metric_of_points_and_of_requests() -> None:
    for metric in SloMetric.__args__:  # type: ignore[attr-defined]
        assert metric in POINT_METRICS
        block = SearchBlock.model_validate({"over": "rate_per_s", "slo": {metric: 1}, "maximum": 2})
        assert set(request_limits(block.question)) <= set(LATENCIES)
