"""The judge of the chaos run can fail: it knows a spoiled attempt from a clean one."""

import chaos_verdict as verdict
import pytest
from hypothesis import given
from hypothesis import strategies as st

POINT = {"point_id": "a/w/c2", "attempt": 3}


def journal(*, decision: str = "accepted") -> list[verdict.Line]:
    return [
        {"event": "run_started", "unix_ns": 5},
        {"event": "attempt_started", "unix_ns": 10, **POINT},
        {"event": "step", "step": "load", "unix_ns": 41, **POINT},
        {"event": "load_started", "unix_ns": 20, **POINT},
        {"event": "load_ended", "unix_ns": 40, **POINT},
        {"event": "step", "step": "counters_after", "unix_ns": 50, **POINT},
        {"event": "verdict", "unix_ns": 55, "verdict": "accept", **POINT},
        {"event": "point_committed", "unix_ns": 60, "verdict": decision, **POINT},
    ]


def test_only_commits_of_accepted_points_are_looked_at() -> None:
    assert verdict.accepted(journal()) == [verdict.Accepted("a/w/c2", 3, 10, 20, 40, 50, 60)]
    assert verdict.accepted(journal(decision="void")) == []


@pytest.mark.parametrize(
    ("kind", "spoiled"),
    [
        ("worker killed", (10, 40)),
        ("client link cut", (20, 40)),
        ("engine killed", (10, 50)),
        ("driver killed", (10, 60)),
        ("client link slow", None),
    ],
)
def test_an_accepted_attempt_that_met_a_fault_is_wrong(kind: str, spoiled: tuple[int, int] | None) -> None:
    commits = verdict.accepted(journal())
    wrong = [at for at in range(70) if verdict.wrongly_accepted(commits, [verdict.Fault(kind, at, at)])]
    assert wrong == ([] if spoiled is None else list(range(spoiled[0], spoiled[1] + 1)))


def test_a_fault_that_lasts_is_met_by_an_attempt_that_began_within_it() -> None:
    commits = verdict.accepted(journal())
    assert verdict.wrongly_accepted(commits, [verdict.Fault("client link cut", 1, 25)])
    assert not verdict.wrongly_accepted(commits, [verdict.Fault("client link cut", 1, 19)])


def test_a_whole_set_of_tickets_has_nothing_lost() -> None:
    assert verdict.lost_or_doubled(range(6), 6) == 0


@given(st.lists(st.integers(0, 9), max_size=20))
def test_every_ticket_that_is_missing_or_doubled_is_counted(tickets: list[int]) -> None:
    missing = len(set(range(6)) - set(tickets))
    doubled = len(tickets) - len({ticket for ticket in tickets if ticket < 6})
    assert verdict.lost_or_doubled(tickets, 6) == missing + doubled
