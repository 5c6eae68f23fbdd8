"""Foreign traffic that no counter shows: by the log, and by what is left inside."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attempt_evidence import INPUT, N, after, broken, evidence, findings, only, rows, verdict
from test_protocol_hit_checks import NO_VIEW, QUIET, TOTAL

from raybench.engines.contract import QueueState
from raybench.protocol.evidence import Evidence
from raybench.protocol.target import ServerView


def without_counters(**changes: object) -> Evidence:
    return evidence(**{"before": NO_VIEW, "after": NO_VIEW, **changes})


def test_without_counters_the_log_shows_who_else_was_there() -> None:
    found = only(without_counters(log=replace(QUIET, new_tokens=TOTAL + 500)), "foreign_traffic")
    assert found.severity == "void"
    assert found.data == {"log": TOTAL + 500, "ours": TOTAL, "elsewhere": 500}
    assert found.message.endswith("ours were 6,144: 500 came from elsewhere")


def test_without_counters_a_log_of_ours_alone_is_enough() -> None:
    assert findings(without_counters(log=QUIET)) == {}


def test_a_probe_of_a_token_is_no_foreign_traffic_by_the_log() -> None:
    assert findings(without_counters(log=replace(QUIET, new_tokens=TOTAL + 3))) == {}


def test_with_counters_the_log_s_sum_is_not_asked() -> None:
    """Retractions, twins of a kind that is not known yet: the counters are the better witness."""
    assert findings(evidence(log=replace(QUIET, new_tokens=2 * TOTAL))) == {}


@pytest.mark.parametrize(
    "log",
    [None, replace(QUIET, gaps=("cut",)), replace(QUIET, retractions=1), replace(QUIET, new_tokens=None)],
    ids=["none", "with a gap", "after retractions", "silent"],
)
def test_with_neither_counters_nor_a_whole_log_it_is_not_verified(log: object) -> None:
    assert findings(without_counters(log=log))["traffic_not_verified"].severity == "warning"


def test_a_request_that_is_left_inside_is_somebody_else_s() -> None:
    found = only(evidence(left_inside=QueueState(1, 2)), "foreign_traffic")
    assert found.severity == "void"
    assert found.data == {"running": 1, "queued": 2}


def test_what_is_left_inside_may_be_a_request_that_we_gave_up() -> None:
    whole = rows({0: broken(0, 0, 1, "timeout", "timeout_total")})
    given = evidence(whole, left_inside=QueueState(1, 0), before=NO_VIEW, after=NO_VIEW, log=QUIET)
    assert list(findings(given)) == ["requests_failed"]


def test_an_idle_engine_and_one_that_cannot_tell_are_no_finding() -> None:
    assert findings(evidence(left_inside=QueueState(0, 0))) == findings(evidence(left_inside=None)) == {}


def test_prompts_of_failed_requests_may_be_in_the_log() -> None:
    whole = rows({0: broken(0, 0, 1, "timeout", "timeout_total")})
    for told in (TOTAL - INPUT, TOTAL):
        given = without_counters(requests=evidence(whole).requests, log=replace(QUIET, new_tokens=told))
        assert "foreign_traffic" not in findings(given)
    assert N * INPUT == TOTAL


def test_counters_of_another_process_are_not_compared() -> None:
    fallen = ServerView("pid-2", replace(after(), requests=1))
    told = verdict(evidence(after=fallen)).findings
    assert [(one.code, "instance pid-1 -> pid-2" in one.message) for one in told] == [("server_restarted", True)]
