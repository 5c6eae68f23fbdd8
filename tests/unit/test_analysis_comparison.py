"""Points of two sides: what can be compared is, what cannot stays visible with the reason."""

from typing import Any

import pytest
from compared_points import point, side
from hypothesis import given
from hypothesis import strategies as st

from raybench.analysis.comparison import NotCompared, Side, compare, flipped, is_cold
from raybench.analysis.conditions import ESSENTIAL, differing, flat
from raybench.analysis.difference import HEADLINE_METRICS, Verdict

RATE = "output_tokens_per_s"


def test_o_k1_the_case_s_own_numbers() -> None:
    a = point(ttft_ms_p95=10_000.0, output_tokens_per_s=100.0, preemptions=0)
    b = point(ttft_ms_p95=12_000.0, output_tokens_per_s=110.0, preemptions=12, tpot_ms_p95=50.0)
    only_a = point(concurrency=64, output_tokens_per_s=1.0)
    both, missing = compare(side(a, only_a), side(b))
    told = {one.metric: one for one in both.differences}
    assert told["ttft_ms_p95"].verdict is Verdict.WORSE
    assert told["ttft_ms_p95"].percent == pytest.approx(20)
    assert told["output_tokens_per_s"].verdict is Verdict.BETTER
    assert told["preemptions"].verdict is Verdict.WORSE and told["preemptions"].from_zero
    assert told["tpot_ms_p95"].verdict is Verdict.NO_BASELINE
    assert both.regressed
    assert (missing.concurrency, missing.not_compared) == (64, NotCompared.ONLY_IN_A)


def test_a_void_point_is_in_no_comparison_and_says_why() -> None:
    void = point(output_tokens_per_s=900.0) | {"verdict": "void", "reasons": ["not cold: 0.62"]}
    (told,) = compare(side(point(output_tokens_per_s=100.0)), side(void))
    assert told.not_compared is NotCompared.NOT_VALID_IN_B
    assert told.detail == "void: not cold: 0.62"
    assert told.differences == () and not told.regressed


def test_o_k2_a_cold_and_a_warm_point_are_not_compared_without_a_flag() -> None:
    cold = point(output_tokens_per_s=100.0)
    warm = point(output_tokens_per_s=300.0, hit_rates={"requests": 0.62})
    (told,) = compare(side(cold), side(warm))
    assert told.not_compared is NotCompared.OTHER_CACHE_STATE
    assert told.detail == "hit rate 0.0000 | 0.6200"
    (asked,) = compare(side(cold), side(warm), ignore_cache_state=True)
    assert asked.not_compared is None and len(asked.differences) == 1


def test_a_hit_rate_that_nobody_told_is_not_known_and_not_cold() -> None:
    assert is_cold(point(hit_rates={"requests": None})) is None
    assert is_cold(point(hit_rates={"requests": 0.0, "counters": 0.5})) is False
    assert is_cold(point(hit_rates={}, prefix_hit_rate=0.01)) is True


def test_points_of_one_name_and_another_shape_are_not_compared() -> None:
    (told,) = compare(side(point()), side(point(input_tokens=1024)))
    assert told.not_compared is NotCompared.OTHER_SHAPE
    assert told.detail == "16384 -> 512 | 1024 -> 512"


def test_repeats_are_pooled_and_bring_their_noise() -> None:
    a = Side("A", tuple((point(output_tokens_per_s=value),) for value in (100.0, 108.0, 92.0)))
    b = Side("B", tuple((point(output_tokens_per_s=value),) for value in (110.0, 112.0, 114.0)))
    (told,) = compare(a, b, [RATE])
    (rate,) = told.differences
    assert (rate.a, rate.b, told.repeats) == (100.0, 112.0, (3, 3))
    assert rate.floor_percent == pytest.approx(16.0)
    assert rate.verdict is Verdict.NO_CLEAR_DIFFERENCE


def test_intervals_that_overlap_leave_the_difference_unclear() -> None:
    a = point(ttft_ms_p95=100.0, ttft_ms_p95_low=80.0, ttft_ms_p95_high=130.0)
    b = point(ttft_ms_p95=120.0, ttft_ms_p95_low=95.0, ttft_ms_p95_high=150.0)
    (told,) = compare(side(a), side(b), ["ttft_ms_p95"])
    assert told.differences[0].verdict is Verdict.NO_CLEAR_DIFFERENCE and told.differences[0].overlap
    (apart,) = compare(side(a), side(b | {"ttft_ms_p95_low": 131.0}), ["ttft_ms_p95"])
    assert apart.differences[0].verdict is Verdict.WORSE


@st.composite
def points(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A run of up to six points, some void or missing, with unknown values and hit rates among them."""
    levels = draw(st.lists(st.sampled_from([1, 2, 4, 8, 16, 32]), unique=True))
    value = st.none() | st.floats(0, 1e6)
    return [
        point(
            concurrency=level,
            verdict=draw(st.sampled_from(["accepted", "accepted", "imported", "void", None])),
            hit_rates={"requests": draw(st.sampled_from([None, 0.0, 0.62]))},
            **{metric: draw(value) for metric in HEADLINE_METRICS},
        )
        for level in levels
    ]


@given(st.lists(points(), min_size=1, max_size=4), st.lists(points(), min_size=1, max_size=4), st.booleans())
def test_o_k1_swapped_sides_flip_every_verdict(
    runs_a: list[list[dict[str, Any]]], runs_b: list[list[dict[str, Any]]], ignore: bool
) -> None:
    a, b = Side("A", tuple(runs_a)), Side("B", tuple(runs_b))
    forth = {(p.workload, p.level): p for p in compare(a, b, ignore_cache_state=ignore)}
    back = {(p.workload, p.level): p for p in compare(b, a, ignore_cache_state=ignore)}
    assert forth.keys() == back.keys()
    for key, point_forth in forth.items():
        point_back = back[key]
        assert point_back.not_compared is flipped(point_forth.not_compared)
        assert [one.verdict for one in point_back.differences] == [
            one.verdict.flipped for one in point_forth.differences
        ]


@given(points())
def test_a_run_against_itself_has_no_clear_difference(rows: list[dict[str, Any]]) -> None:
    for row, told in zip(rows, compare(side(*rows), side(*rows)), strict=True):
        valid = row["verdict"] in ("accepted", "imported")
        known = [metric for metric in HEADLINE_METRICS if valid and row[metric] is not None]
        assert [one.metric for one in told.differences] == known
        assert {one.verdict for one in told.differences} <= {Verdict.NO_CLEAR_DIFFERENCE}


# Conditions


def test_o_k2_every_condition_that_differs_is_listed_the_essential_ones_first() -> None:
    a = dict.fromkeys(ESSENTIAL, "same") | {"context_tokens": "196608"}
    b = a | {"cache_flush": "false", "context_tokens": "155648", "raybench_version": "0.0.9"}
    assert [(one.name, one.a, one.b) for one in differing(a, b)] == [
        ("raybench_version", "same", "0.0.9"),
        ("cache_flush", "same", "false"),
        ("context_tokens", "196608", "155648"),
    ]


def test_o_k2_a_side_without_the_facts_is_unknown_and_not_equal() -> None:
    told = {one.name: one for one in differing({"version": "0.5.9"}, {})}
    assert (told["version"].a, told["version"].b, told["version"].known) == ("0.5.9", None, False)
    assert set(ESSENTIAL) == set(told)


def test_nested_facts_become_names_and_plain_values() -> None:
    facts = {"guards": {"flush": True, "hit": 0.01}, "batches": [1, 2], "port": 30000, "none": None, "deep": [{}]}
    assert dict(flat(facts)) == {"guards.flush": "true", "guards.hit": "0.01", "batches": "[1, 2]"}
