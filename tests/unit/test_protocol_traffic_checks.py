"""The same server and us alone: by its counters, by its log, and by what is left inside."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attempt_evidence import BEFORE, INPUT, OUTPUT, N, after, broken, evidence, findings, only, rows, verdict
from test_protocol_hit_checks import NO_VIEW, QUIET, TOTAL

from raybench.engines.contract import Counters, QueueState
from raybench.protocol.evidence import Evidence
from raybench.protocol.target import ServerView
from raybench.scenario.schema import Guards


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


def test_an_instance_that_changed_is_a_restart() -> None:
    found = only(evidence(after=ServerView("pid-2", after())), "server_restarted")
    assert found.severity == "void"
    assert "pid-1 -> pid-2" in found.message


def test_an_instance_that_is_not_told_any_more_is_no_proof_against_a_restart() -> None:
    found = only(evidence(after=ServerView(None, after())), "restart_not_excluded")
    assert found.severity == "void"


def test_a_server_that_never_told_its_instance_is_judged_by_its_counters() -> None:
    assert findings(evidence(before=ServerView(None, BEFORE), after=ServerView(None, after()))) == {}


def test_o_p6_a_counter_that_went_down_is_a_restart() -> None:
    fallen = replace(after(), requests=N - 20)
    assert only(evidence(after=ServerView("pid-1", fallen)), "server_restarted").severity == "void"


@pytest.mark.parametrize(
    ("deltas", "counter"),
    [
        ({"requests": N + 1}, "requests"),
        ({"input_tokens": N * INPUT + 1}, "input_tokens"),
        ({"output_tokens": N * OUTPUT + 1}, "output_tokens"),
    ],
)
def test_more_than_ours_is_foreign_traffic(deltas: dict[str, float], counter: str) -> None:
    found = only(evidence(after=ServerView("pid-1", after(**deltas))), "foreign_traffic")
    assert (found.severity, found.data["counter"]) == ("void", counter)


def test_foreign_tokens_are_told_in_full() -> None:
    found = only(evidence(after=ServerView("pid-1", after(input_tokens=2_000_001))), "foreign_traffic")
    ours = "the server counted 2,000,001 input tokens, ours were 6,144"
    assert found.message == f"foreign traffic: {ours}: 1,993,857 came from elsewhere"


def test_what_failed_may_or_may_not_be_counted_by_the_server() -> None:
    whole = rows({0: broken(0, 0, 1, "timeout", "timeout_total")})
    for counted in (N - 1, N):
        deltas = {"requests": counted, "input_tokens": counted * INPUT, "output_tokens": counted * OUTPUT}
        found = findings(evidence(whole, after=ServerView("pid-1", after(**deltas))))
        assert list(found) == ["requests_failed"]


def test_what_was_sent_twice_may_be_counted_twice() -> None:
    deltas = {"requests": N + 1, "input_tokens": (N + 1) * INPUT, "output_tokens": (N + 1) * OUTPUT}
    twice = evidence(rows({2: {"tries": 2}}), after=ServerView("pid-1", after(**deltas)))
    assert list(findings(twice)) == ["stale_connections"]


@pytest.mark.parametrize(("strict", "severity"), [(True, "void"), (False, "warning")])
def test_counters_behind_our_records_are_no_proof_that_we_were_alone(strict: bool, severity: str) -> None:
    behind = evidence(after=ServerView("pid-1", after(requests=N - 2)))
    found = only(behind, "counters_behind", Guards(strict=strict))
    assert (found.severity, found.message) == (severity, "the server counted 4 requests, our records say 6")


def test_missing_counters_are_neither_foreign_nor_behind_but_not_verified() -> None:
    silent = evidence(before=ServerView("pid-1", Counters()), after=ServerView("pid-1", Counters()))
    assert only(silent, "traffic_not_verified").severity == "warning"


def test_counters_that_are_gone_after_the_load_prove_nothing() -> None:
    lost = only(evidence(after=ServerView("pid-1", None)), "counters_lost")
    assert lost.severity == "void"


def test_retractions_are_told_from_either_source() -> None:
    by_request = findings(evidence(rows({1: {"retractions": 2}})))["preemptions"]
    by_counter = only(evidence(after=ServerView("pid-1", after(preemptions=3))), "preemptions")
    assert (by_request.message, by_counter.message) == (
        "2 retractions during the point",
        "3 retractions during the point",
    )
    assert by_request.severity == "warning"


def test_an_idle_state_that_nobody_confirmed_is_told() -> None:
    assert only(evidence(idle_known=False), "idle_not_verified").severity == "warning"
