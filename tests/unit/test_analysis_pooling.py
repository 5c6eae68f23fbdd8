"""Repeats of a point: pooled by one rule, and a noise floor of their own."""

import math

import pytest
from compared_points import point

from raybench.analysis.difference import NOISE_FLOOR_PERCENT
from raybench.analysis.intervals import Interval
from raybench.analysis.pooling import floor_between, noise_floor_percent, own_noise_percent, pool, pooled_point

RATE = "output_tokens_per_s"


def repeats(*values: float | None) -> list[dict[str, object]]:
    return [point(output_tokens_per_s=value) for value in values]


def test_the_pooled_value_is_the_mean_of_the_runs_own_values() -> None:
    pooled = pool(repeats(100.0, 103.0, 106.0), RATE)
    assert pooled.observations == (100.0, 103.0, 106.0)
    assert pooled.value == 103.0
    assert pooled.interval is not None and pooled.interval.low < 103 < pooled.interval.high
    assert pooled.spread_percent == pytest.approx(6 / 103 * 100)


def test_a_void_run_is_no_observation() -> None:
    void = point(output_tokens_per_s=1.0) | {"verdict": "void"}
    assert pool([*repeats(100.0), void], RATE).observations == (100.0,)
    assert pool([void], RATE).value is None


def test_a_single_run_brings_the_interval_of_its_own_requests() -> None:
    single = pool([point(ttft_ms_p95=10.0, ttft_ms_p95_low=9.0, ttft_ms_p95_high=12.0)], "ttft_ms_p95")
    assert single.interval == Interval(9.0, 12.0)
    assert pool([point(ttft_ms_p95=10.0)], "ttft_ms_p95").interval is None


def test_single_runs_have_the_default_floor() -> None:
    assert noise_floor_percent(pool(repeats(100.0), RATE), pool(repeats(110.0), RATE)) == 3.0
    assert noise_floor_percent(pool(repeats(100.0), RATE), pool([], RATE), 5.0) == 5.0


def test_three_repeats_on_both_sides_replace_the_floor_by_their_spread() -> None:
    quiet, loud = pool(repeats(100.0, 100.5, 101.0), RATE), pool(repeats(100.0, 104.0, 110.0), RATE)
    assert noise_floor_percent(quiet, quiet) == pytest.approx(1 / 100.5 * 100)
    assert noise_floor_percent(quiet, loud) == noise_floor_percent(loud, quiet) == loud.spread_percent


def test_two_single_rows_have_the_default_floor_and_repeats_on_either_side_their_own() -> None:
    ends = {"output_tokens_per_s_low": 0.0, "output_tokens_per_s_high": 900.0}
    single = point(output_tokens_per_s=100.0, **ends)
    noisy = pooled_point(repeats(300.0, 330.0, 360.0))
    assert floor_between(single, single | {"output_tokens_per_s": 110.0}, RATE) == NOISE_FLOOR_PERCENT
    assert floor_between(single, noisy, RATE) == floor_between(noisy, single, RATE) == math.inf
    apart = point(output_tokens_per_s=100.0)
    assert floor_between(apart, noisy, RATE) == floor_between(noisy, apart, RATE) == pytest.approx(60 / 330 * 100)


def test_a_pooled_row_is_that_of_its_first_valid_run() -> None:
    void = point(output_tokens_per_s=1.0, requests=5, run="a") | {"verdict": "void", "reasons": ["lost"]}
    row = pooled_point([void, point(output_tokens_per_s=100.0, requests=7, run="b")])
    assert (row["run"], row["verdict"], row["requests"], row["repeats"]) == ("b", "accepted", 7, (1, 2))
    assert (row["output_tokens_per_s"], row["reasons"]) == (100.0, ["lost"])
    assert pooled_point([void])["verdict"] == "void"


def test_two_repeats_that_agree_prove_no_quiet_machine() -> None:
    two, three = pool(repeats(100.0, 100.1), RATE), pool(repeats(100.0, 100.1, 100.2), RATE)
    assert noise_floor_percent(two, three) == 3.0
    apart = pool(repeats(100.0, 120.0), RATE)
    assert noise_floor_percent(apart, three) == apart.spread_percent


def test_the_noise_of_a_single_row_is_the_default_and_of_a_pooled_one_its_own() -> None:
    pooled = pool(repeats(100.0, 108.0, 92.0), RATE)
    assert own_noise_percent(point(output_tokens_per_s=100.0), RATE) == NOISE_FLOOR_PERCENT
    own = own_noise_percent({"pooled": {RATE: pooled}}, RATE)
    assert own == noise_floor_percent(pooled, pooled) > NOISE_FLOOR_PERCENT
