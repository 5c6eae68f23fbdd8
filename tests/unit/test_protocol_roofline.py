"""The ladder of the roofline, and what a step that was not carried is put down to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.protocol.roofline import QUICK, Effort, Ladder, limit_of
from raybench.records.roofline import Step


def climb(
    limit: int, first: int = 64, most: int = 65536, effort: Effort | None = None
) -> tuple[list[int], Ladder]:
    """All steps on a host that carries up to `limit` streams."""
    ladder = Ladder(first, most, effort or Effort())
    steps = []
    while (streams := ladder.next) is not None:
        steps.append(streams)
        ladder.tell(carried=streams <= limit)
    return steps, ladder


def test_it_doubles_to_the_first_failure_and_then_looks_between() -> None:
    assert climb(1000)[0] == [64, 128, 256, 512, 1024, 1024, 724, 861]
    assert climb(700)[0] == [64, 128, 256, 512, 1024, 1024, 724, 724, 609]
    assert climb(700, effort=QUICK)[0] == [64, 256, 1024, 1024, 512]


def test_a_single_failure_is_not_believed() -> None:
    ladder = Ladder(64, 128, Effort())
    for carried in (False, True, False, True):
        assert ladder.next is not None
        ladder.tell(carried=carried)
    assert (ladder.next, ladder.topped_out) == (None, True)


def test_a_host_that_carries_nothing_is_left_alone_at_once() -> None:
    steps, ladder = climb(10)
    assert steps == [64, 64]
    assert not ladder.topped_out


def test_the_largest_load_that_may_be_tried_is_tried_and_no_more() -> None:
    steps, ladder = climb(10**6, most=300)
    assert steps == [64, 128, 256, 300]
    assert ladder.topped_out
    assert climb(10**6, most=20)[0] == [20]


@given(st.integers(1, 10**6), st.integers(1, 4096), st.integers(1, 70_000), st.sampled_from([Effort(), QUICK]))
def test_it_ends_repeats_failures_once_only_and_comes_close(
    limit: int, first: int, most: int, effort: Effort
) -> None:
    steps, ladder = climb(limit, first, most, effort)
    assert len(steps) <= 30
    assert all(steps.count(streams) == (1 if streams <= limit else 2) for streams in steps)
    assert max(steps) <= most
    carried = [streams for streams in steps if streams <= limit]
    if carried and not ladder.topped_out and max(carried) > 100:
        closeness = effort.factor ** (0.5**effort.refinements)
        assert max(carried) * closeness * 1.1 >= limit


def test_a_quick_probe_says_that_it_is_short() -> None:
    assert (Effort().told(), QUICK.told()) == ("about two minutes a node", "about half a minute a node")


GOOD = Step("tokens_per_s", 64, 20, 1, 3200.0, 0.1, 1.0, 2.0, 2.0, 0.3, 0.3, 0.15, 0.4, 0.0, None)


@pytest.mark.parametrize(
    ("changes", "limited_by"),
    [
        ({}, None),
        ({"worker_cpu_share": None, "server_cpu_share": None, "node_cpu_share": None}, None),
        ({"worker_cpu_share": 0.9, "node_cpu_share": 0.99}, None),
        ({"worker_cpu_share": 0.96}, "client CPU"),
        ({"ttft_error_ms_p99": 26.0, "worker_cpu_share": 0.9}, "client CPU"),
        ({"ttft_error_ms_p99": 26.0, "server_cpu_share": 0.9, "node_cpu_share": 1.0}, "null server CPU"),
        ({"stamp_error_ms_p99": 26.0, "node_cpu_share": 0.97}, "CPU of the whole host"),
        ({"stamp_error_ms_p99": 26.0, "node_cpu_share": 1.0, "others_node_share": 0.4}, "other work on the host"),
        ({"stamp_error_ms_p99": 26.0}, "stamp error"),
        ({"ttft_error_ms_p99": None}, "stamp error"),
        ({"tokens_per_s": 2800.0}, "null server's pace"),
        ({"tokens_per_s": None, "server_cpu_share": 0.99}, "null server CPU"),
    ],
)
def test_a_step_is_carried_or_put_down_to_what_was_full(changes: dict[str, float], limited_by: str | None) -> None:
    assert limit_of(replace(GOOD, **changes), 25.0) == limited_by  # type: ignore[arg-type]
