"""The block `search:` of a workload: what is refused, where, and with which way out; how it is planned."""

from __future__ import annotations

import pytest

from raybench.errors import ConfigError
from raybench.report.plan import closing, search_lines, search_row
from raybench.scenario.levels import Level
from raybench.scenario.load import parse_scenario
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Limits, Scenario

TEXT = """
name: find
arms: {{mine: {{url: "http://host:30000", limits: {limits}}}}}
workloads:
  - name: chat
    input_tokens: 1000
    output_tokens: {output_tokens}
    search: {search}
{more}
corpus: {{synthetic: {{}}}}
guards: {guards}
"""


def read(
    search: str, *, more: str = "", limits: str = "{}", guards: str = "{}", output_tokens: int = 10
) -> Scenario:
    lines = "".join(f"    {line}\n" for line in more.splitlines())
    return parse_scenario(
        TEXT.format(search=search, more=lines, limits=limits, guards=guards, output_tokens=output_tokens),
        "find.yaml",
    )


@pytest.mark.parametrize(
    ("search", "more", "said"),
    [
        ("{maximum: 8}", "", "a search needs exactly one of `slo` and `knee`"),
        ("{maximum: 8, knee: {}, slo: {ttft_ms_p95: 1}}", "", "a search needs exactly one of `slo` and `knee`"),
        ("{maximum: 8, slo: {}}", "", "`slo` names no metric"),
        ("{maximum: 8, minimum: 9, knee: {}}", "", "minimum 9 is not below maximum 8"),
        ("{maximum: 8, minimum: 8, knee: {}}", "", "minimum 8 is not below maximum 8"),
        ("{maximum: 8.5, knee: {}}", "", "a concurrency is a whole number"),
        ("{knee: {}}", "", "maximum (line 8): required key is missing"),
        ("{maximum: 8, knee: {gain_min: 0}}", "", "allowed: a number above 0, at most 1"),
        ("{maximum: 8, knee: {}, resolution: 0}", "", "allowed: a number from 0.01 to 1"),
        ("{maximum: 8, knee: {}, probes_max: 1}", "", "allowed: a whole number from 2 to 100"),
        ("{maximum: 8, slo: {ttft_ms_p94: 1}}", "", "got: ttft_ms_p94; try: ttft_ms_p9"),
        ("{maximum: 8, slo: {ttft_ms_mean: 1}}", "", "allowed: one of ttft_ms_p50, ttft_ms_p95"),
        ("{maximum: 8, slo: {ttft_ms_p95: -1}}", "", "allowed: a number from 0"),
        ("{maximum: 8, slo: {ttft_scheduled_ms_p95: 1}}", "", "a closed loop has no schedule"),
        ("{maximum: 8, knee: {}}", "concurrency: [1]", "there is concurrency and search"),
        ("{maximum: 8, knee: {}}", "requests: 7", "7 requests can never be 8 at once"),
        (
            "{maximum: 8, slo: {tpot_ms_p95: 1}}",
            "stream: false",
            "`tpot_ms_p95` of the search is not known",
        ),
        ("{maximum: 8, knee: {}, over: rate_per_s}", "", "exactly one of `duration_s` and `requests`"),
        ("{maximum: 8, knee: {}}", "duration_s: 3", "belongs to a workload with `rate_per_s`"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(search: str, more: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(search, more=more)
    assert said in str(refused.value)
    assert "workloads[0]" in str(refused.value)


def test_tpot_of_one_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="not defined for one output token"):
        read("{maximum: 8, slo: {tpot_ms_p95: 1}}", output_tokens=1)


def test_a_failure_share_that_the_guards_void_first_is_refused() -> None:
    search = "{maximum: 8, slo: {failure_share: 0.01}}"
    with pytest.raises(ConfigError, match=r"success_rate_min 1 voids a\s+point") as refused:
        read(search)
    assert refused.value.problems[0].path == "workloads[0].search.slo.failure_share"
    assert read(search, guards="{success_rate_min: 0.9}").workloads[0].search is not None


def test_a_plan_shows_a_search_by_its_bounds_and_its_most_points() -> None:
    plan = make_plan(read("{maximum: 8, slo: {ttft_ms_p95: 2000}}"))
    (search,) = plan.searches
    assert (plan.points, search.probes, search.bounded_by) == ((), 4 + 3, None)
    assert search_row(search) == ("  chat", "1,000 -> 10", "1..8", "8..16", "not known", "search")
    assert list(search_lines(search)) == [
        "search chat: the highest level with ttft_ms_p95 <= 2,000; to within 10%, about 7 points at most"
        " (never more than 20)"
    ]
    assert closing(plan) == "0 points to measure, 0 skipped, 1 searches of at most about 7 points"
    # two attempts of 8, 8, 8, 16 and three times 16 requests, each with two of the prewarm
    assert plan.windows["mine"] == {1000: 2 * (8 + 8 + 8 + 4 * 16 + 7 * 2)}


def test_the_levels_that_a_search_came_to_are_points_of_the_plan() -> None:
    plan = make_plan(read("{maximum: 8, knee: {}}"), probed={("mine", "chat"): [Level(1), Level(4)]})
    assert [point.point_id for point in plan.points] == ["mine/chat/c1", "mine/chat/c4"]


def test_what_the_target_holds_bounds_the_search_from_above() -> None:
    given = read("{maximum: 64, knee: {}}", more="over_active_limit: skip", limits="{max_running_requests: 5}")
    (search,) = make_plan(given).searches
    assert (search.search.maximum, search.bounded_by) == (5, "active limit: concurrency 6 > 5 running requests")
    assert "search chat: up to C=5 only: active limit" in list(search_lines(search))[1]
    (wider,) = make_plan(given, {"mine": Limits(max_running_requests=64)}).searches
    assert (wider.search.maximum, wider.bounded_by) == (64, None)


def test_a_search_that_the_target_cannot_hold_at_all_is_skipped_with_the_arithmetic() -> None:
    plan = make_plan(read("{maximum: 64, knee: {}}", limits="{context_tokens: 1000}"))
    (search,) = plan.searches
    assert (search.probes, plan.windows["mine"]) == (0, {})
    assert list(search_lines(search)) == [
        "skipped chat C=1: context limit: 1000 input + 10 output + 2 reserved = 1012 > 1000 tokens"
    ]


def test_a_search_over_rates_has_open_loop_points() -> None:
    given = read(
        "{maximum: 8, minimum: 0.5, over: rate_per_s, slo: {ttft_scheduled_ms_p95: 9}}", more="duration_s: 10"
    )
    (planned,) = make_plan(given).searches
    assert (planned.lowest.level.name, planned.lowest.requests) == ("r0.5", 5)
    assert (planned.highest.level.name, planned.highest.requests) == ("r8", 80)
