"""Crossovers are intervals between measured levels; insights are numbers of points that count."""

from itertools import pairwise
from typing import Any

from compared_points import point
from hypothesis import given
from hypothesis import strategies as st

from raybench.analysis.crossover import Crossover, crossovers
from raybench.analysis.difference import NOISE_FLOOR_PERCENT
from raybench.analysis.insights import Growth, insights, trend
from raybench.analysis.pooling import pooled_point

RATE = "output_tokens_per_s"
Series = dict[int, float]


def crossed(metric: str, a: Series, b: Series, arms: tuple[str, str] = ("a", "b")) -> list[Crossover]:
    return crossovers("w", metric, arms, (a, b), dict.fromkeys([*a, *b], NOISE_FLOOR_PERCENT))


def test_the_lead_changes_hands_somewhere_between_two_measured_levels() -> None:
    fast, wide = {1: 50.0, 8: 84.0, 64: 100.0}, {1: 17.0, 8: 101.0, 64: 211.0}
    (found,) = crossed(RATE, fast, wide, ("fast", "wide"))
    assert (found.from_arm, found.to_arm, found.above, found.at) == ("fast", "wide", 1, 8)
    assert found.tied == ()
    assert (round(found.advantage_before or 0, 2), round(found.advantage_after or 0, 2)) == (2.94, 1.2)


def test_levels_without_a_clear_difference_widen_the_interval() -> None:
    (found,) = crossed(RATE, {1: 10, 2: 20, 4: 30, 8: 40}, {1: 5, 2: 20.1, 4: 29.9, 8: 50})
    assert (found.above, found.at, found.tied) == (1, 8, (2, 4))


def test_a_tie_is_no_crossover_and_only_common_levels_count() -> None:
    assert crossed(RATE, {1: 10, 8: 20}, {1: 5, 8: 20}) == []
    assert crossed(RATE, {1: 10, 8: 20}, {1: 5, 16: 90}) == []
    assert crossed(RATE, {}, {}) == []


def test_for_latencies_the_smaller_value_leads() -> None:
    (found,) = crossed("ttft_ms_p95", {1: 5.0, 8: 90.0}, {1: 10.0, 8: 30.0})
    assert (found.to_arm, found.advantage_before, found.advantage_after) == ("b", 2.0, 3.0)


SERIES = st.dictionaries(st.sampled_from([1, 2, 4, 8, 16, 32]), st.floats(0.1, 1e6))


@given(SERIES, SERIES, st.sampled_from([RATE, "ttft_ms_p95"]))
def test_swapped_arms_have_the_same_crossovers(a: dict[int, float], b: dict[int, float], metric: str) -> None:
    assert crossed(metric, a, b) == crossed(metric, b, a, ("b", "a"))


@given(SERIES, SERIES)
def test_crossovers_alternate_and_do_not_overlap(a: dict[int, float], b: dict[int, float]) -> None:
    found = crossed(RATE, a, b)
    for one, following in pairwise(found):
        assert one.to_arm == following.from_arm
        assert one.at <= following.above


def test_a_throughput_climbs_stays_or_falls() -> None:
    def growth(*values: float) -> Growth:
        return trend("w", "a", dict(zip((1, 8, 16, 32, 64), values, strict=False)), 3.0).growth

    assert growth(17, 101, 146, 193, 211) is Growth.CLIMBING
    assert growth(50, 84, 92, 98, 99.6) is Growth.PLATEAU
    assert growth(50, 84, 120, 119, 90) is Growth.FALLING


def test_a_plateau_begins_at_its_first_level() -> None:
    told = trend("w", "a", {1: 50.0, 8: 98.0, 16: 99.0, 32: 100.0}, 3.0)
    assert (told.plateau_from, told.last_at, told.best_at) == (8, 32, 32)
    assert trend("w", "a", {1: 50.0, 8: 98.0}, 3.0).plateau_from is None


def arm(name: str, values: dict[int, float], **more: object) -> list[dict[str, Any]]:
    return [point(name, concurrency=level, output_tokens_per_s=value, **more) for level, value in values.items()]


def test_insights_name_who_leads_where_and_by_how_much() -> None:
    told = insights([*arm("fast", {1: 50.0, 8: 84.0}), *arm("wide", {1: 17.0, 8: 101.0})])
    leads = {(lead.arm, *(level.concurrency for level in lead.levels)): lead for lead in told.leads}
    assert set(leads) == {("fast", 1), ("wide", 8)}
    assert round(leads["fast", 1].largest.advantage or 0, 2) == 2.94
    assert [(one.above, one.at) for one in told.crossovers] == [(1, 8)]
    assert [(peak.arm, peak.concurrency) for peak in told.peaks] == [("wide", 8)]


def test_of_several_arms_the_one_ahead_of_all_leads_and_those_in_front_together_tie() -> None:
    told = insights(
        [*arm("a", {1: 100.0, 8: 100.0}), *arm("b", {1: 99.0, 8: 100.0}), *arm("c", {1: 90.0, 8: 200.0})]
    )
    (lead,) = told.leads
    assert lead.arm == "c"
    assert [(one.concurrency, one.ahead, one.behind, one.other) for one in lead.levels] == [(8, 200.0, 100.0, "a")]
    (tie,) = told.ties
    assert (tie.arms, tie.all_arms, tie.levels, tie.of_repeats) == (("a", "b"), False, (1,), False)
    (together,) = insights([*arm("a", {1: 100.0}), *arm("b", {1: 99.0})]).ties
    assert together.all_arms


def test_a_tie_of_repeats_says_that_the_floor_is_theirs() -> None:
    def repeated(name: str, *values: float) -> dict[str, Any]:
        return pooled_point([point(name, output_tokens_per_s=value) for value in values])

    (tie,) = insights([repeated("a", 100.0, 108.0, 92.0), repeated("b", 101.0, 109.0, 93.0)]).ties
    assert tie.of_repeats


def test_void_points_are_in_no_insight() -> None:
    void = [row | {"verdict": "void"} for row in arm("wide", {1: 900.0, 8: 900.0})]
    told = insights([*arm("fast", {1: 50.0, 8: 84.0}), *void])
    assert told.leads == [] and told.crossovers == []
    assert {peak.arm for peak in told.peaks} == {"fast"}
    assert [(reach.arm, reach.others) for reach in told.reaches] == [("fast", ("wide",))]


def test_queueing_points_say_how_many_wait() -> None:
    told = insights(arm("a", {64: 100.0}, active_limit=16, queueing=True))
    assert [(q.concurrency, q.waiting) for q in told.queueing] == [(64, 48)]


def test_the_tightest_device_is_that_of_the_least_headroom_of_any_valid_point() -> None:
    def gpu(index: int, headroom: int | None) -> dict[str, object]:
        return {"host": "h", "gpu_index": index, "gpu_uuid": f"GPU-{index}", "headroom_min_bytes": headroom}

    rows = [
        point("a", concurrency=1, gpus=[gpu(0, 9), gpu(1, 7)]),
        point("a", concurrency=8, gpus=[gpu(0, 3), gpu(1, None)]),
        point("a", concurrency=16, gpus=[gpu(0, 0)]) | {"verdict": "void"},
    ]
    (tightest,) = insights(rows).tightest
    assert (tightest.gpu_index, tightest.headroom_min_bytes, tightest.concurrency) == (0, 3, 8)


def test_no_points_give_no_insights() -> None:
    told = insights([])
    assert not any((told.peaks, told.leads, told.ties, told.crossovers, told.trends, told.queueing, told.reaches))
