"""The first seed's report: every ratio that its text claims, from its appendix B imported as a run.

Where the text and its own table do not agree, the test says so and holds to the table.
"""

from pathlib import Path
from typing import Any

import pytest

from raybench.analysis.comparison import NotCompared, PointComparison
from raybench.analysis.crossover import Crossover
from raybench.analysis.difference import Verdict, advantage
from raybench.analysis.insights import Growth, Insights, insights
from raybench.analysis.points import read_points
from raybench.report import numbers
from raybench.report.baseline import BaselineComparison, compare_baseline
from raybench.report.compare import PairComparison, compare_runs
from raybench.report.published import read_published, write_imported
from raybench.report.retest import RetestResult, compare_retest

GOLDEN = Path(__file__).parents[1] / "golden" / "seed1"
BASELINE = Path(__file__).parents[2] / "baselines" / "b300.yaml"
FAST, WIDE = "TP8+EAGLE3+AR", "TP2PP4"
METRICS = ("input_tokens_per_s", "output_tokens_per_s", "ttft_ms_p95", "tpot_ms_p95", "preemptions")
RATE, INPUT, TTFT, TPOT = "output_tokens_per_s", "input_tokens_per_s", "ttft_ms_p95", "tpot_ms_p95"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seed1") / "run"
    write_imported(read_published(GOLDEN / "appendix_b.yaml"), path)
    return path


@pytest.fixture(scope="module")
def pair(run: Path) -> PairComparison:
    """B = the fast recipe against A = the wide one."""
    (found,) = compare_runs([f"{run}:{WIDE}"], [f"{run}:{FAST}"], METRICS).pairs
    return found


@pytest.fixture(scope="module")
def told(run: Path) -> Insights:
    from raybench.records.rundir import RunDirectory

    return insights(read_points(RunDirectory(run)))


def at(pair: PairComparison, workload: str, level: int) -> PointComparison:
    (found,) = [p for p in pair.points if (p.workload, p.concurrency) == (workload, level)]
    return found


def values(pair: PairComparison, workload: str, level: int, metric: str) -> tuple[float, float]:
    """(fast, wide)."""
    (one,) = [one for one in at(pair, workload, level).differences if one.metric == metric]
    assert one.a is not None and one.b is not None
    return one.b, one.a


def verdict(pair: PairComparison, workload: str, level: int, metric: str) -> Verdict:
    return next(one.verdict for one in at(pair, workload, level).differences if one.metric == metric)


def test_all_points_of_both_arms_meet_or_are_named(pair: PairComparison) -> None:
    assert len(pair.compared) == 20
    left = {(p.workload, p.concurrency): p.not_compared for p in pair.points if p.not_compared is not None}
    assert left == dict.fromkeys(
        [("256k-1", 2), ("256k-1", 3), ("512k-1", 1), ("896k-1", 1)], NotCompared.NOT_VALID_IN_B
    )


@pytest.mark.parametrize(
    ("workload", "level", "metric", "claim"),
    [
        ("16k-512", 1, RATE, 3.0),
        ("16k-512", 1, TPOT, 3.7),
        ("1k-4k", 1, RATE, 6.7),
        ("1k-4k", 1, TPOT, 5.7),
        ("1k-4k", 8, RATE, 4.0),
        ("1k-4k", 32, RATE, 1.8),
        ("1k-4k", 64, RATE, 1.7),
        ("1k-128", 8, RATE, 1.5),
    ],
)
def test_how_many_times_the_fast_recipe_is_better(
    pair: PairComparison, workload: str, level: int, metric: str, claim: float
) -> None:
    fast, wide = values(pair, workload, level, metric)
    assert verdict(pair, workload, level, metric) is Verdict.BETTER
    assert round(advantage(fast, wide) or 0, 1) == claim


@pytest.mark.parametrize(
    ("workload", "level", "metric", "claim"),
    [
        ("16k-512", 64, RATE, 2.1),
        ("16k-512", 64, INPUT, 2.1),
        ("1k-128", 32, RATE, 1.2),
        ("256k-1", 1, INPUT, 2.5),
    ],
)
def test_how_many_times_the_wide_recipe_is_better(
    pair: PairComparison, workload: str, level: int, metric: str, claim: float
) -> None:
    fast, wide = values(pair, workload, level, metric)
    assert verdict(pair, workload, level, metric) is Verdict.WORSE
    assert round(advantage(wide, fast) or 0, 1) == claim


def test_text_and_table_disagree_on_the_short_input_at_64(pair: PairComparison) -> None:
    """The text says 1.2x for 341 against 272 tok/s; the table gives 1.25, and 1.3 in the text's own digits."""
    fast, wide = values(pair, "1k-128", 64, RATE)
    assert numbers.times(wide / fast, decimals=2) == "1.25×"
    assert round(wide / fast, 1) == 1.3


def grown(told: Insights, arm: str, workload: str = "16k-512") -> Any:
    (found,) = [t for t in told.trends if (t.workload, t.arm) == (workload, arm)]
    return found


def percent(before: float, after: float) -> float:
    return (after / before - 1) * 100


def test_the_wide_recipe_still_climbs_by_9_percent_at_64(told: Insights) -> None:
    trend = grown(told, WIDE)
    assert trend.growth is Growth.CLIMBING
    assert (trend.before_at, trend.last_at) == (32, 64)
    assert round(trend.step_percent) == 9


def test_the_fast_recipe_stands_on_a_plateau_19_percent_above_its_8(pair: PairComparison, told: Insights) -> None:
    trend = grown(told, FAST)
    assert (trend.growth, trend.plateau_from) == (Growth.PLATEAU, 32)
    fast_at_8, _ = values(pair, "16k-512", 8, RATE)
    assert round(percent(fast_at_8, trend.last)) == 19


def test_text_and_table_disagree_by_a_digit_on_the_rise_of_the_wide_recipe_s_input(pair: PairComparison) -> None:
    """The text says +108 % from C=8 to C=64; the table gives +108.5, which rounds to 109: the text cut it off."""
    _, before = values(pair, "16k-512", 8, INPUT)
    _, after = values(pair, "16k-512", 64, INPUT)
    assert int(percent(before, after)) == 108
    assert round(percent(before, after), 1) == 108.5


def crossed(pair: PairComparison, workload: str, metric: str) -> list[Crossover]:
    return [one for one in pair.crossovers if (one.workload, one.metric) == (workload, metric)]


@pytest.mark.parametrize("metric", [RATE, INPUT, TTFT, TPOT])
def test_the_crossover_of_the_main_scenario_is_above_1_and_up_to_8(pair: PairComparison, metric: str) -> None:
    (found,) = crossed(pair, "16k-512", metric)
    assert (found.from_arm, found.to_arm, found.above, found.at) == (FAST, WIDE, 1, 8)


def test_the_crossover_of_the_short_input_is_above_8_and_up_to_32(pair: PairComparison) -> None:
    """The text: "between 8 and 32"."""
    for metric in (RATE, TPOT):
        (found,) = crossed(pair, "1k-128", metric)
        assert (found.from_arm, found.to_arm, found.above, found.at) == (FAST, WIDE, 8, 32)


@pytest.mark.parametrize("metric", [RATE, INPUT, TPOT])
def test_the_long_output_has_no_crossover(pair: PairComparison, told: Insights, metric: str) -> None:
    assert crossed(pair, "1k-4k", metric) == []
    (lead,) = [one for one in told.leads if (one.workload, one.metric) == ("1k-4k", metric)]
    assert lead.arm == FAST
    assert not [tie for tie in told.ties if (tie.workload, tie.metric) == ("1k-4k", metric)]


def test_text_and_table_disagree_on_ttft_of_the_long_output(pair: PairComparison) -> None:
    """The text has the fast recipe best at every level; at C=32 its TTFT P95 is 6.19 s against 4.14 s."""
    assert [(one.to_arm, one.above, one.at) for one in crossed(pair, "1k-4k", TTFT)] == [
        (WIDE, 8, 32),
        (FAST, 32, 64),
    ]
    assert values(pair, "1k-4k", 32, TTFT) == (6190.0, 4140.0)


def test_text_and_table_disagree_on_ttft_of_the_short_input(pair: PairComparison) -> None:
    """The text prefers the fast recipe for C <= 8; at C=8 its TTFT P95 is 2.17 s against 1.69 s."""
    assert verdict(pair, "1k-128", 8, TTFT) is Verdict.WORSE


def test_text_and_table_disagree_on_one_metric_of_64k_at_8(pair: PairComparison) -> None:
    """The text has the wide recipe ahead in all metrics; TPOT P95 is 161.8 against 157.5 ms: below the noise."""
    assert values(pair, "64k-512", 8, TPOT) == (157.5, 161.8)
    assert verdict(pair, "64k-512", 8, TPOT) is Verdict.NO_CLEAR_DIFFERENCE


def test_128k_at_1_is_a_tie_in_throughput_and_twice_the_ttft(pair: PairComparison) -> None:
    for metric in (RATE, INPUT):
        assert verdict(pair, "128k-512", 1, metric) is Verdict.NO_CLEAR_DIFFERENCE
    fast, wide = values(pair, "128k-512", 1, TTFT)
    assert round(fast / wide, 1) == 2.1


def test_the_highest_throughput_of_the_field_is_that_of_the_long_output(told: Insights) -> None:
    best = max((p for p in told.peaks if p.metric == RATE), key=lambda peak: peak.value)
    assert (best.workload, best.arm, best.concurrency, best.value) == ("1k-4k", FAST, 64, 826.5)
    assert round(percent(481.6, best.value)) == 72


def test_queueing_points_are_those_of_the_text(told: Insights) -> None:
    waiting = {(q.arm, q.workload, q.concurrency): q.waiting for q in told.queueing}
    assert (waiting[FAST, "16k-512", 32], waiting[FAST, "16k-512", 64]) == (32 - 16, 64 - 16)
    assert waiting[WIDE, "16k-512", 64] == 64 - 48
    assert waiting[FAST, "1k-4k", 64] == 10, "the text says about 52 active and 12 queued; 276480 // 5120 is 54"


def test_only_the_wide_recipe_reaches_the_boundary(told: Insights) -> None:
    assert [(reach.workload, reach.arm, reach.others) for reach in told.reaches] == [
        ("512k-1", WIDE, (FAST,)),
        ("896k-1", WIDE, (FAST,)),
    ]


def test_nothing_was_preempted_at_any_point(pair: PairComparison) -> None:
    assert {verdict(pair, p.workload, p.concurrency or 0, "preemptions") for p in pair.compared} == {
        Verdict.NO_CLEAR_DIFFERENCE
    }


# The retest


def retested(run: Path, tmp_path: Path, *anchors: str) -> RetestResult:
    before = write_imported(read_published(GOLDEN / "retest_before.yaml"), tmp_path / "before").path
    return compare_retest(
        str(before),
        f"{run}:{FAST}",
        anchors,
        METRICS,
        floor_percent=3.0,
        drift_limit_percent=3.0,
        final=None,
    )


def test_text_and_numbers_disagree_on_the_drift_of_an_anchor(run: Path, tmp_path: Path) -> None:
    """The text calls the anchors' drift at most 3 %; 81.4 -> 83.9 tok/s is 3.07 %, to the table's 83.88 3.05 %."""
    (arm,) = retested(run, tmp_path, "16k-512/c8", "1k-128/c8", "1k-4k/c8").arms
    drifts = {drift.workload: round(drift.percent, 2) for drift in arm.retest.drifts}
    assert drifts == {"16k-512": 3.05, "1k-128": -0.44, "1k-4k": -2.31}
    assert round(percent(81.4, 83.9), 2) == 3.07
    assert arm.retest.drifted
    verdicts = {one.verdict for point in arm.retest.points for one in point.comparison.differences}
    assert not verdicts & {Verdict.BETTER, Verdict.WORSE}


def test_with_the_two_anchors_that_held_the_cliff_is_gone(run: Path, tmp_path: Path) -> None:
    (arm,) = retested(run, tmp_path, "1k-128/c8", "1k-4k/c8").arms
    assert arm.retest.may_claim
    told = {(p.comparison.workload, p.comparison.level): p.comparison.differences for p in arm.retest.points}
    (tpot,) = [one for one in told["16k-512", "c16"] if one.metric == TPOT]
    assert (tpot.a, tpot.b, tpot.verdict) == (298.0, 228.8, Verdict.BETTER)


# The published baseline


@pytest.fixture(scope="module")
def b300(run: Path) -> BaselineComparison:
    return compare_baseline(str(run), BASELINE, (INPUT, RATE, TTFT, TPOT))


@pytest.mark.parametrize(
    ("arm", "workload", "metric", "best", "claim"),
    [
        (FAST, "16k-512", RATE, False, 5.0),
        (FAST, "16k-512", INPUT, False, 5.0),
        (FAST, "16k-512", TPOT, False, 3.1),
        (WIDE, "16k-512", RATE, True, 4.7),
        (WIDE, "16k-512", INPUT, True, 4.7),
        (WIDE, "16k-512", TPOT, True, 1.2),
        (WIDE, "256k-1", INPUT, False, 2.5),
        (WIDE, "512k-1", INPUT, False, 2.2),
        (WIDE, "896k-1", INPUT, False, 1.9),
    ],
)
def test_the_distance_to_the_published_report(
    b300: BaselineComparison, arm: str, workload: str, metric: str, best: bool, claim: float
) -> None:
    (row,) = [
        row
        for told in b300.arms
        for row in told.rows
        if (told.arm, row.workload, row.metric, row.best) == (arm, workload, metric, best)
    ]
    assert row.ahead == "baseline"
    assert round(row.factor or 0, 1) == claim


def test_the_baseline_declares_what_differs_and_what_is_not_stated(b300: BaselineComparison) -> None:
    fast = next(told for told in b300.arms if told.arm == FAST)
    differing = {condition.name: (condition.a, condition.b) for condition in fast.conditions}
    assert differing["hardware"] == ("8 x RTX 6000D (96 GB)", "8 x B300 (288 GB HBM3e)")
    assert "model" in fast.stated_of_run_only
    assert "quantisation of the model" in b300.not_stated
    longest = [row for told in b300.arms for row in told.rows if row.workload == "896k-1"]
    assert [row.shapes_differ for row in longest] == [True]
