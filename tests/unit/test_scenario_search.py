"""The decision of a search: finds the threshold, in few probes, from the probes alone, whatever they say."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybench.scenario.search import (
    THROUGHPUT,
    Probe,
    Result,
    Search,
    decide,
    judge,
    most_levels,
    request_limits,
)

Measure = Callable[[float], Probe]

BOUNDS = st.tuples(st.integers(1, 40), st.integers(1, 4000)).map(lambda pair: (pair[0], pair[0] + pair[1]))
RESOLUTIONS = st.sampled_from([0.01, 0.05, 0.1, 0.3, 1.0])


def slo(minimum: float = 1, maximum: float = 256, resolution: float = 0.1, probes_max: int = 100) -> Search:
    limits = {"ttft_ms_p95": 2000.0}
    return Search("concurrency", limits, None, minimum, maximum, resolution, probes_max)


def knee(minimum: float = 1, maximum: float = 256, gain_min: float = 0.1, probes_max: int = 100) -> Search:
    return Search("concurrency", None, gain_min, minimum, maximum, 0.1, probes_max)


def latency(level: float, passes: bool | None) -> Probe:
    """None: the point is void."""
    return Probe(level, None if passes is None else {"ttft_ms_p95": 2000.0 if passes else 2000.1})


def rate(level: float, tokens_per_s: float | None) -> Probe:
    return Probe(level, {THROUGHPUT: tokens_per_s})


def play(search: Search, measure: Measure) -> tuple[list[Probe], Result]:
    """The whole search. Every level is within its bounds, whole, and tried once."""
    probes: list[Probe] = []
    while not isinstance(step := decide(search, probes), Result):
        assert search.minimum <= step <= search.maximum
        assert step == int(step)
        assert step not in [probe.level for probe in probes]
        probes.append(measure(step))
    assert len(probes) <= search.probes_max
    return probes, step


def levels(probes: list[Probe]) -> list[float]:
    return [probe.level for probe in probes]


def test_levels_double_until_one_fails_and_are_then_halved_by_ratio() -> None:
    probes, result = play(slo(), lambda level: latency(level, level <= 45))
    assert levels(probes) == [1, 2, 4, 8, 16, 32, 64, 45, 54, 49]
    assert result == Result("found", level=45, passes=45, fails=49)


@pytest.mark.parametrize("threshold", range(16, 32))
def test_the_plan_counts_every_level_of_a_geometric_halving(threshold: int) -> None:
    search = replace(slo(), maximum=31, resolution=0.01)
    probes, _ = play(search, lambda level: latency(level, level <= threshold))
    assert len(probes) <= len(most_levels(search))


@given(BOUNDS, RESOLUTIONS, st.data())
def test_the_true_threshold_lies_in_an_interval_of_the_resolution(
    bounds: tuple[int, int], resolution: float, data: st.DataObject
) -> None:
    search = slo(*bounds, resolution)
    true = data.draw(st.integers(bounds[0] - 1, bounds[1]))
    probes, result = play(search, lambda level: latency(level, level <= true))
    assert len(probes) <= len(most_levels(search))
    if true < bounds[0]:
        assert result == Result("below_minimum", None, None, bounds[0])
    elif true == bounds[1]:
        assert result == Result("above_maximum", bounds[1], bounds[1], None)
    else:
        assert result.status == "found"
        assert result.passes is not None and result.fails is not None
        assert result.passes <= true < result.fails
        width = result.fails - result.passes
        assert width == 1 or width <= resolution * result.passes


@given(BOUNDS, st.sampled_from([0.05, 0.1, 0.5]), st.data())
def test_the_knee_of_a_plateau_is_the_lowest_level_near_the_highest_throughput(
    bounds: tuple[int, int], gain_min: float, data: st.DataObject
) -> None:
    search = knee(*bounds, gain_min)
    plateau = data.draw(st.integers(1, bounds[1]))
    probes, result = play(search, lambda level: rate(level, 30.0 * min(level, plateau)))
    assert len(probes) <= len(most_levels(search))
    saturated = [level for level in range(bounds[0], bounds[1] + 1) if level * (1 + gain_min) >= plateau]
    if result.status == "found":
        assert result.passes is not None and result.fails is not None
        assert result.passes < saturated[0] <= result.fails == result.level
    elif result.status == "below_minimum":
        assert saturated[0] == bounds[0] == result.level
    else:
        assert result.status == "above_maximum" and result.level is None
        assert plateau > sorted(levels(probes))[-2], "a step that gained nothing was seen"


@given(BOUNDS, RESOLUTIONS, st.integers(2, 30), st.randoms(use_true_random=False))
def test_whatever_the_probes_say_the_search_ends_and_its_interval_is_what_was_seen(
    bounds: tuple[int, int], resolution: float, probes_max: int, chance: random.Random
) -> None:
    search = slo(*bounds, resolution, probes_max)
    said: dict[float, bool | None] = {}

    def measure(level: float) -> Probe:
        said[level] = chance.choice([True, True, False, None])
        return latency(level, said[level])

    _, result = play(search, measure)
    assert result.passes is None or said[result.passes] is True
    assert result.fails is None or said[result.fails] is False
    assert not [level for level, passes in said.items() if passes is False and level < (result.fails or level)]
    if result.passes is not None and result.fails is not None:
        assert result.passes < result.fails


@given(BOUNDS, st.integers(2, 30), st.randoms(use_true_random=False))
def test_a_noisy_throughput_ends_too(bounds: tuple[int, int], probes_max: int, chance: random.Random) -> None:
    search = knee(*bounds, probes_max=probes_max)
    play(search, lambda level: rate(level, chance.choice([None, 0.0, chance.uniform(0.5, 1.5) * min(level, 50)])))


@settings(max_examples=50)
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_search_resumed_at_any_prefix_in_any_order_goes_on_alike(chance: random.Random, has_slo: bool) -> None:
    search = slo(1, 500) if has_slo else knee(1, 500)
    probes, result = play(
        search,
        lambda level: (
            latency(level, chance.choice([True, False, None]))
            if has_slo
            else rate(level, chance.uniform(0.8, 1.2) * min(level, 60))
        ),
    )
    for done in range(len(probes)):
        shuffled = probes[:done]
        chance.shuffle(shuffled)
        assert decide(search, shuffled) == probes[done].level
    assert decide(search, probes[::-1]) == result


def test_a_void_level_is_gone_round_by_its_neighbours() -> None:
    """While growing: 16 is void, so 8 to 16 is tried within; while halving: 12 is."""
    void = {16.0, 12.0}
    probes, result = play(slo(), lambda level: latency(level, None if level in void else level <= 11))
    assert levels(probes) == [1, 2, 4, 8, 16, 11, 22, 14, 12, 13]
    assert (result.status, result.passes, result.fails) == ("void_probes", 11, 13)
    assert result.notes == ("no valid number at 12, 16: counts neither as passing nor as failing",)


def test_levels_that_are_void_without_end_end_the_search() -> None:
    probes, result = play(slo(), lambda level: latency(level, None if level > 8 else True))
    assert levels(probes) == [1, 2, 4, 8, 16, 11, 10, 12, 13]
    assert result.status == "void_probes"
    assert (result.level, result.passes, result.fails) == (8, 8, None)


def test_a_void_minimum_leaves_the_answer_open() -> None:
    _, result = play(slo(), lambda level: latency(level, None if level == 1 else False))
    assert (result.status, result.level, result.fails) == ("void_probes", None, 2)


def test_a_passing_level_above_a_failing_one_is_said_and_does_not_count() -> None:
    probes = [latency(1, True), latency(2, True), latency(4, False), latency(8, True), latency(3, True)]
    result = decide(slo(), probes)
    assert isinstance(result, Result)
    assert (result.status, result.level) == ("found", 3)
    assert result.notes == ("not monotone: 8 within the SLO although 4 is not; the answer stays below 4",)


def test_a_level_with_less_throughput_than_a_saturated_lower_one_is_said() -> None:
    probes = [rate(1, 10.0), rate(2, 20.0), rate(4, 15.0), rate(8, 20.5)]  # 8 is the maximum, two doublings up
    result = decide(knee(maximum=8), probes)
    assert isinstance(result, Result)
    assert (result.status, result.level, result.passes) == ("found", 2, 1)
    assert result.notes == (
        "not monotone: 4 with less throughput than the lower level 2; the lowest saturated level counts",
    )


def test_all_probes_used_up_tells_the_interval_so_far() -> None:
    _, result = play(slo(probes_max=4), lambda level: latency(level, level < 6))
    assert (result.status, result.level, result.passes, result.fails) == ("probes_used_up", 4, 4, 8)


def test_an_slo_of_several_metrics_fails_by_any_and_is_open_where_one_is_not_known() -> None:
    search = Search("concurrency", {"ttft_ms_p95": 100.0, "tpot_ms_p95": 20.0}, None, 1, 8, 0.1, 20)
    cases = [(100.0, 20.0, True), (100.1, 20.0, False), (99.0, None, None), (100.1, None, False)]
    for ttft, tpot, passes in cases:
        (judged,) = judge(search, [Probe(1, {"ttft_ms_p95": ttft, "tpot_ms_p95": tpot})])
        assert judged.passes is passes, (ttft, tpot)
        assert [check.metric for check in judged.checks] == ["ttft_ms_p95", "tpot_ms_p95"]


def sides(search: Search, *probes: Probe) -> list[bool | None]:
    return [one.passes for one in judge(search, probes)]


def test_nothing_is_saturated_before_two_doublings_brought_too_little() -> None:
    assert sides(knee(), rate(1, 10.0), rate(2, 10.9)) == [True, True]
    assert sides(knee(), rate(1, 10.0), rate(2, 10.9), rate(4, 10.8)) == [False, False, False]
    assert sides(knee(), rate(1, 10.0), rate(2, 11.1), rate(4, 11.0)) == [True, True, True]


def test_one_slow_probe_is_not_the_end_of_growth() -> None:
    curve = {1: 10.0, 2: 20.0, 4: 9.0, 8: 70.0, 16: 70.0, 32: 71.0}
    probes, result = play(knee(), lambda level: rate(level, curve.get(int(level), 55.0)))
    assert levels(probes)[:6] == [1, 2, 4, 8, 16, 32]
    assert (result.status, result.level, result.passes) == ("found", 8, 7)


def test_at_the_maximum_a_short_step_is_held_to_its_share_of_a_doubling() -> None:
    """From 64 to 80 is a third of a doubling: 10 % a doubling are 3.1 % here."""
    search, grown = knee(maximum=80), [rate(32, 100.0), rate(64, 120.0)]
    assert sides(search, *grown, rate(80, 124.0)) == [True, True, True]
    assert sides(search, *grown, rate(80, 123.0)) == [True, False, False]
    assert sides(search, *grown, rate(80, 90.0)) == [True, False, True]


def test_the_limit_of_one_request_is_the_widest_of_its_latency() -> None:
    limits = {"ttft_ms_p50": 200.0, "ttft_ms_p95": 900.0, "e2e_ms_max": 5000.0, "failure_share": 0.01}
    search = Search("concurrency", limits, None, 1, 8, 0.1, 20)
    assert request_limits(search) == {"ttft_ms": 900.0, "e2e_ms": 5000.0}


@pytest.mark.parametrize(("maximum", "most"), [(1, 1), (2, 2), (256, 9 + 4), (130, 9 + 4)])
def test_the_most_levels_are_growth_and_the_halvings_of_one_doubling(maximum: int, most: int) -> None:
    assert len(most_levels(slo(maximum=maximum))) == most


def test_the_most_levels_never_exceed_the_most_probes_and_are_the_costly_ones() -> None:
    assert most_levels(slo(probes_max=5)) == [256] * 5


@given(st.floats(0.01, 5), st.floats(1.5, 1000), RESOLUTIONS, st.floats(0, 1))
def test_a_search_over_rates_finds_the_threshold_to_the_resolution(
    minimum: float, factor: float, resolution: float, share: float
) -> None:
    search = Search("rate_per_s", {"ttft_ms_p95": 2000.0}, None, minimum, minimum * factor, resolution, 100)
    true = minimum * factor**share
    probes: list[Probe] = []
    while not isinstance(result := decide(search, probes), Result):
        assert search.minimum <= result <= search.maximum
        probes.append(latency(result, result <= true))
    assert len(probes) <= len(most_levels(search))
    if result.status == "found":
        assert result.passes is not None and result.fails is not None
        assert result.passes <= true < result.fails <= result.passes * (1 + resolution) * 1.0001
    else:
        assert result.status == "above_maximum"
    assert search.level(minimum).rate_per_s == minimum
