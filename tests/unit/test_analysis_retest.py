"""A retest: drift of the anchors decides whether anything may be claimed, and whose values count."""

from typing import Any

import pytest
from compared_points import point, side

from raybench.analysis.difference import Verdict
from raybench.analysis.retest import Final, Retest, retest

RATE = "output_tokens_per_s"
ANCHOR = ("16k-512", "c8")


def told(after_anchor: float, **options: Any) -> Retest:
    """An anchor from 100 tok/s to `after_anchor`, and another point from 50 to 80."""
    before = side(point(output_tokens_per_s=100.0), point(concurrency=64, output_tokens_per_s=50.0))
    after = side(point(output_tokens_per_s=after_anchor), point(concurrency=64, output_tokens_per_s=80.0))
    return retest(before, after, [ANCHOR], [RATE], **options)


def verdicts(result: Retest) -> dict[str, Verdict]:
    return {p.comparison.level: p.comparison.differences[0].verdict for p in result.points}


def test_an_anchor_that_held_lets_the_later_values_count() -> None:
    result = told(101.0)
    assert not result.drifted and result.may_claim
    assert verdicts(result) == {"c8": Verdict.NO_CLEAR_DIFFERENCE, "c64": Verdict.BETTER}
    assert {p.final for p in result.points} == {Final.AFTER}


@pytest.mark.parametrize("after", [96.9, 103.1, 120.0])
def test_an_anchor_that_moved_leaves_no_claim_and_the_earlier_values(after: float) -> None:
    result = told(after)
    assert result.drifted and not result.may_claim
    assert verdicts(result)["c64"] is Verdict.NO_CLAIM
    assert {p.final for p in result.points} == {Final.BEFORE}


def test_drift_is_told_with_its_sign_and_judged_by_the_smaller_value() -> None:
    (drift,) = told(97.05).drifts
    assert drift.percent == pytest.approx(-2.95)
    assert drift.exceeds, "from 97.05 up to 100 is 3.04 %"


def test_the_final_values_can_be_named() -> None:
    assert {p.final for p in told(120.0, final=Final.AFTER).points} == {Final.AFTER}
    assert {p.final for p in told(101.0, final=Final.BEFORE).points} == {Final.BEFORE}
    assert verdicts(told(120.0, final=Final.AFTER))["c64"] is Verdict.NO_CLAIM


def test_a_later_value_that_is_void_never_counts() -> None:
    before = side(point(output_tokens_per_s=100.0), point(concurrency=64, output_tokens_per_s=50.0))
    void = point(concurrency=64, output_tokens_per_s=80.0) | {"verdict": "void", "reasons": ["x"]}
    result = retest(before, side(point(output_tokens_per_s=100.0), void), [ANCHOR], [RATE], final=Final.AFTER)
    assert {p.comparison.level: p.final for p in result.points} == {"c8": Final.AFTER, "c64": Final.BEFORE}


def test_an_anchor_without_a_valid_value_tells_nothing_so_nothing_is_claimed() -> None:
    void = point(output_tokens_per_s=100.0) | {"verdict": "void", "reasons": ["x"]}
    result = retest(side(point(output_tokens_per_s=100.0)), side(void), [ANCHOR], [RATE])
    assert result.unknown_anchors == [ANCHOR]
    assert not result.may_claim and not result.drifted


def test_points_of_one_run_only_are_kept_apart() -> None:
    before = side(point(output_tokens_per_s=100.0), point(concurrency=1, output_tokens_per_s=9.0))
    after = side(point(output_tokens_per_s=100.0), point(concurrency=2, output_tokens_per_s=9.0))
    result = retest(before, after, [ANCHOR], [RATE])
    assert [p.comparison.level for p in result.points] == ["c8"]
    assert (result.unrepeated, result.added) == ([("16k-512", "c1")], [("16k-512", "c2")])


def test_drift_is_that_of_throughput_whatever_metrics_are_shown() -> None:
    before = side(point(output_tokens_per_s=100.0, ttft_ms_p95=10.0))
    after = side(point(output_tokens_per_s=101.0, ttft_ms_p95=20.0))
    result = retest(before, after, [ANCHOR], ["ttft_ms_p95"])
    assert [drift.metric for drift in result.drifts] == [RATE]
    assert [one.metric for one in result.points[0].comparison.differences] == ["ttft_ms_p95"]
