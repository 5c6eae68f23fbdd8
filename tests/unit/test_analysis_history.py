"""The journal as a story of points."""

from raybench.analysis.alignment import ClockReading
from raybench.analysis.history import read_history


def line(event: str, unix_ns: int, **fields: object) -> dict[str, object]:
    return {"event": event, "unix_ns": unix_ns, "monotonic_ns": unix_ns, **fields}


P = "a/w/c1"


def test_a_point_committed_again_after_a_resume_is_told_by_its_last_commit() -> None:
    history = read_history(
        [
            line("attempt_started", 1, point_id=P, attempt=1),
            line("point_committed", 2, point_id=P, attempt=1, verdict="void", reasons=["lost"]),
            line("attempt_started", 3, point_id=P, attempt=2),
            line("point_committed", 4, point_id=P, attempt=2, verdict="accepted", reasons=[]),
        ]
    )
    point = history.point(P)
    assert (point.verdict, point.final_attempt, point.reasons) == ("accepted", 2, ())
    assert point.final is not None and point.final.started_unix_ns == 3
    assert sorted(point.attempts) == [1, 2]


def test_lines_of_other_events_and_of_no_point_are_left_out() -> None:
    history = read_history(
        [line("run_started", 1), line("torn_line", 2), line("gpu_monitor", 3, arm="a", reason=None)]
    )
    assert history.points == {}
    assert history.point(P).verdict is None


def test_a_line_about_a_point_outside_its_attempts_changes_nothing_of_it() -> None:
    history = read_history(
        [
            line("attempt_started", 1, point_id=P, attempt=1),
            line("search_probe", 2, point_id=P),
            line("point_committed", 3, point_id=P, attempt=1, verdict="accepted", reasons=[]),
        ]
    )
    assert sorted(history.point(P).attempts) == [1]
    assert history.point(P).verdict == "accepted"


def test_load_times_come_in_order_and_without_loads_that_did_not_end() -> None:
    history = read_history(
        [
            line("load_started", 50, point_id="a/w/c2", attempt=1),
            line("load_ended", 60, point_id="a/w/c2", attempt=1),
            line("load_started", 10, point_id=P, attempt=1),
            line("load_ended", 20, point_id=P, attempt=1),
            line("load_started", 70, point_id=P, attempt=2),
        ]
    )
    assert history.load_times() == [(10, 20, P, 1), (50, 60, "a/w/c2", 1)]


def test_a_counter_that_went_down_gives_no_preemptions() -> None:
    def steps(before: float | None, after: float | None) -> int | None:
        step = {"point_id": P, "attempt": 1, "status": "done"}
        lines = [
            line("step", 1, **step, step="counters_before", counters={"preemptions": before}),
            line("step", 2, **step, step="counters_after", counters={"preemptions": after}),
        ]
        return read_history(lines).point(P).attempts[1].preemptions

    assert (steps(4, 7), steps(4, 4), steps(4, 1), steps(None, 7), steps(4, None)) == (3, 0, None, None, None)


def test_clock_readings_are_found_by_worker_and_attempt() -> None:
    offset = {"offset_ns": 5, "uncertainty_ns": 1, "when": "start"}
    history = read_history(
        [
            line("clock", 1, point_id=P, attempt=1, worker="w0", **offset),
            line("clock", 2, point_id=P, attempt=2, worker="w0", **offset),
            line("clock", 3, point_id=P, attempt=2, worker="w1", **offset),
            line("clock", 4, clock="gpu/host~2", **offset, wall_ahead_ns=8),
        ]
    )
    assert history.attempt_clocks(P, 2) == {"w0": [ClockReading(2, 5, 1)], "w1": [ClockReading(3, 5, 1)]}
    assert history.attempt_clocks(P, 3) == {}
    every = history.all_clocks()
    assert (len(every["w0"]), every["gpu/host~2"]) == (2, [ClockReading(4, 5, 1, 8)])


def test_an_arm_made_ready_twice_was_last_ready_before_the_moment_asked_for() -> None:
    history = read_history([line("arm_ready", 10, arm="a"), line("arm_ready", 90, arm="a")])
    assert [history.ready_before("a", at) for at in (5, 10, 50, 90)] == [None, 10, 10, 90]
