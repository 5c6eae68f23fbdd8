"""Plans: points in order, queueing marks, skips as rows, windows needed."""

from raybench.report.plan import note, rows
from raybench.scenario.levels import Level
from raybench.scenario.plan import make_plan, point_id
from raybench.scenario.schema import Limits, Scenario


def scenario(**changes: object) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "s",
            "arms": {
                "b": {"url": "http://b:1", "limits": {"max_running_requests": 4, "kv_pool_tokens": 10_000}},
                "a": {"url": "http://a:1"},
            },
            "workloads": [
                {"name": "long", "input_tokens": 4000, "output_tokens": 1000, "concurrency": [4, 1]},
                {"name": "only-a", "input_tokens": 10, "output_tokens": 1, "concurrency": [2], "arms": ["a"]},
                {
                    "name": "edge",
                    "input_tokens": 8000,
                    "output_tokens": 1,
                    "concurrency": [1, 2],
                    "requests": {"minimum": 1, "per_concurrency": 1},
                    "over_active_limit": "skip",
                    "prewarm_requests": 0,
                },
            ],
            "corpus": {"synthetic": {}},
        }
        | changes
    )


def test_points_come_arm_by_arm_in_the_order_of_the_file() -> None:
    assert [point.point_id for point in make_plan(scenario()).points] == [
        "b/long/c4",
        "b/long/c1",
        "b/edge/c1",
        "b/edge/c2",
        "a/long/c4",
        "a/long/c1",
        "a/only-a/c2",
        "a/edge/c1",
        "a/edge/c2",
    ]
    assert point_id("arm", "work", Level(64)) == "arm/work/c64"


def test_a_point_says_what_one_attempt_sends_and_whether_it_queues() -> None:
    first, second, edge, skipped = make_plan(scenario()).points[:4]
    assert (first.requests, first.prewarm_requests, first.active_limit, first.queueing) == (8, 2, 2, True)
    assert (second.requests, second.active_limit, second.queueing, second.skip_reason) == (8, 2, False, None)
    assert (edge.requests, edge.prewarm_requests, edge.active_limit, edge.queueing) == (1, 0, 1, False)
    assert skipped.skip_reason == "active limit: concurrency 2 > 1 = KV pool 10000 // 8001 tokens a request"


def test_unknown_limits_stay_unknown() -> None:
    plan = make_plan(scenario())
    of_a = [point for point in plan.points if point.arm == "a"]
    assert {(point.active_limit, point.queueing, point.skip_reason) for point in of_a} == {(None, None, None)}
    assert {row[-2:] for row in rows(of_a, {})} == {("not known", "queueing not known")}


def test_what_was_read_from_the_engine_wins() -> None:
    facts = {"b": Limits(kv_pool_tokens=100_000), "a": Limits(context_tokens=4500)}
    plan = make_plan(scenario(), facts)
    assert {point.active_limit for point in plan.points if point.arm == "b"} == {4}
    assert [point.point_id for point in plan.skipped] == ["a/long/c4", "a/long/c1", "a/edge/c1", "a/edge/c2"]
    assert set(plan.measured) | set(plan.skipped) == set(plan.points)


def test_windows_hold_every_request_of_every_attempt_and_none_of_a_skip() -> None:
    assert make_plan(scenario()).windows == {
        "b": {4000: 2 * ((8 + 2) + (8 + 2)), 8000: 2 * 1},
        "a": {4000: 40, 10: 2 * (8 + 2), 8000: 2 * (1 + 2)},
    }
    once = make_plan(scenario(guards={"attempts_max": 1, "prewarm_requests": 0}))
    assert once.windows["b"] == {4000: 16, 8000: 1}


def test_the_table_has_a_row_for_every_point_skips_included() -> None:
    points = list(make_plan(scenario()).points)
    cells = list(rows(points, {}))
    assert len(cells) == 9
    assert cells[0] == ("  long", "4,000 -> 1,000", "4", "8", "2", "queueing")
    assert note(points[1]) == ""
    assert cells[3][3:] == ("-", "1", "skipped")
    assert str(points[3].skip_reason).startswith("active limit: concurrency 2 > 1")
