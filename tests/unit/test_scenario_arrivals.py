"""Open loops in scenario files: the rate over time and its inverse, and what fits together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.arrivals import Arrivals, Ramp
from raybench.scenario.levels import Level
from raybench.scenario.load import effective, parse_scenario
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Limits, Scenario

RATES = st.floats(0.01, 1e4)
RAMPS = st.builds(Ramp, start_rate_per_s=st.floats(0, 1e4), duration_s=st.floats(0.1, 1e4))

FILE = """
name: s
arms: {{a: {{url: "http://a:1"}}}}
workloads:
  - {{name: w, input_tokens: 1k, output_tokens: 16, {keys}}}
corpus: {{synthetic: {{}}}}
"""


def scenario(keys: str) -> Scenario:
    return parse_scenario(FILE.format(keys=keys), "s.yaml")


def problem(keys: str) -> ConfigProblem:
    with pytest.raises(ConfigError) as caught:
        scenario(keys)
    (one,) = caught.value.problems
    return one


@given(st.none() | RAMPS, RATES, st.floats(0, 1e5))
def test_when_so_many_are_due_is_the_inverse_of_how_many_are_due_by_then(
    ramp: Ramp | None, rate: float, requests: float
) -> None:
    arrivals = Arrivals(ramp=ramp)
    seconds = arrivals.seconds_until(requests, rate)
    assert seconds >= 0
    assert arrivals.requests_by(seconds, rate) == pytest.approx(requests, rel=1e-6, abs=1e-6)


@given(RAMPS, RATES, st.floats(0, 1e4), st.floats(0, 1e4))
def test_the_number_due_never_falls(ramp: Ramp, rate: float, first: float, second: float) -> None:
    arrivals = Arrivals(ramp=ramp)
    early, late = sorted((first, second))
    assert arrivals.requests_by(early, rate) <= arrivals.requests_by(late, rate) * (1 + 1e-9) + 1e-9


def test_a_ramp_is_a_straight_line_to_the_level() -> None:
    up = Arrivals(ramp=Ramp(start_rate_per_s=0, duration_s=10))
    assert up.requests_by(10, 8) == 40
    assert up.requests_by(5, 8) == 10
    assert up.requests_by(12, 8) == 56
    down = Arrivals(ramp=Ramp(start_rate_per_s=8, duration_s=10))
    assert down.requests_by(5, 4) == pytest.approx(35)
    assert down.seconds_until(35, 4) == pytest.approx(5)


def test_a_rate_sends_what_is_expected_in_its_duration() -> None:
    counts = [point.requests for point in make_plan(scenario("rate_per_s: [0.5, 8], duration_s: 60")).points]
    assert counts == [30, 480]
    ramp = "arrivals: {ramp: {start_rate_per_s: 0, duration_s: 10}}"
    (point,) = make_plan(scenario(f"rate_per_s: [8], duration_s: 20, {ramp}")).points
    assert point.requests == 40 + 80


def test_points_of_open_loops_are_named_by_their_level() -> None:
    rates = make_plan(scenario("rate_per_s: [0.5, 8], requests: 30"), {"a": Limits(max_running_requests=1)}).points
    assert [(p.point_id, p.concurrency, p.rate_per_s, p.requests) for p in rates] == [
        ("a/w/r0.5", None, 0.5, 30),
        ("a/w/r8", None, 8.0, 30),
    ]
    speeds = make_plan(scenario("trace: {path: t.jsonl, speeds: [1, 2.5]}, requests: 7")).points
    assert [(p.point_id, p.level) for p in speeds] == [
        ("a/w/x1", Level(trace_speed=1.0)),
        ("a/w/x2.5", Level(trace_speed=2.5)),
    ]


def test_an_open_loop_neither_queues_nor_is_skipped_by_its_level() -> None:
    known = Limits(max_running_requests=1, kv_pool_tokens=2000, context_tokens=4096)
    (point,) = make_plan(scenario("rate_per_s: [1000], requests: 30"), {"a": known}).points
    assert (point.active_limit, point.queueing, point.skip_reason) == (1, None, None)
    (point,) = make_plan(scenario("rate_per_s: [1000], requests: 30"), {"a": Limits(context_tokens=512)}).points
    assert str(point.skip_reason).startswith("context limit")


def test_the_effective_scenario_tells_the_defaults_and_measures_the_same() -> None:
    for keys in ("rate_per_s: [1], duration_s: 5", "concurrency: [1]", "trace: {path: t.csv}, requests: 3"):
        given = scenario(keys)
        again = Scenario.model_validate(effective(given))
        assert effective(again) == effective(given)
        assert make_plan(again) == make_plan(given)
    shown = effective(scenario("rate_per_s: [1], duration_s: 5"))["workloads"][0]
    assert (shown["requests"], shown["arrivals"]["process"], shown["arrivals"]["seed"]) == (None, "poisson", 0)


@pytest.mark.parametrize(
    ("keys", "path", "message"),
    [
        (
            "requests: 8",
            "workloads[0]",
            "exactly one of `concurrency`, `rate_per_s`, `trace` and `search` is needed",
        ),
        (
            "concurrency: [1], rate_per_s: [1], duration_s: 1",
            "workloads[0]",
            "there is concurrency and rate_per_s",
        ),
        ("rate_per_s: [1]", "workloads[0].duration_s", "exactly one of `duration_s` and `requests`"),
        ("rate_per_s: [1], duration_s: 1, requests: 4", "workloads[0].duration_s", "exactly one"),
        ("rate_per_s: [1], requests: {minimum: 4}", "workloads[0].requests", "give a number"),
        ("rate_per_s: [1, 1.0], requests: 4", "workloads[0].rate_per_s[1]", "listed twice"),
        ("rate_per_s: [0], requests: 4", "workloads[0].rate_per_s[0]", "out of range"),
        ("rate_per_s: 4, requests: 4", "workloads[0].rate_per_s", "not a list"),
        ("trace: {path: t.jsonl}", "workloads[0].requests", "how many of its entries are sent"),
        ("trace: {path: t.jsonl}, requests: 4, duration_s: 3", "workloads[0].duration_s", "belongs to"),
        ("trace: {path: t.jsonl}, requests: 4, arrivals: {}", "workloads[0].arrivals", "belongs to"),
        ("concurrency: [1], duration_s: 3", "workloads[0].duration_s", "belongs to a workload with `rate_per_s`"),
        ("rate_per_s: [1], requests: 4, over_active_limit: skip", "workloads[0].over_active_limit", "belongs to"),
        (
            "rate_per_s: [1], requests: 4, arrivals: {process: gamma}",
            "workloads[0].arrivals.burstiness",
            "1 is Poisson",
        ),
        (
            "rate_per_s: [1], requests: 4, arrivals: {burstiness: 2}",
            "workloads[0].arrivals.burstiness",
            "write `process: gamma`",
        ),
        (
            "rate_per_s: [1], requests: 4, arrivals: {process: uniform}",
            "workloads[0].arrivals.process",
            "not one of the choices",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(keys: str, path: str, message: str) -> None:
    found = problem(keys)
    assert found.path == path
    assert message in found.message
