"""The log as the third hit source, retractions, and ranks that the mean hides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attempt_evidence import INPUT, N, after, evidence, findings, hits, only, rows, verdict

from raybench.analysis.server_log import PrefillLog
from raybench.protocol.evidence import Evidence
from raybench.protocol.target import ServerView
from raybench.scenario.schema import Guards

TOTAL = N * INPUT
NO_VIEW = ServerView(None, None)
QUIET = PrefillLog(TOTAL, 0, 0, 0, (), frozenset({None}))


def with_log(log: PrefillLog | None = QUIET, **changes: object) -> Evidence:
    return evidence(**{"log": log, **changes})


def test_counters_that_did_not_move_tell_no_rate() -> None:
    still = dict.fromkeys(("input_tokens", "cached_tokens", "prefix_queried_tokens", "prefix_hit_tokens"), 0.0)
    assert verdict(evidence(after=ServerView("pid-1", after(**still)))).hit_rates["counters"] is None


def test_a_cold_log_is_a_third_source() -> None:
    judged = verdict(with_log())
    assert (judged.decision, judged.findings) == ("accept", ())
    assert judged.hit_rates == {"requests": 0.0, "counters": 0.0, "log": 0.0}


def test_hits_that_only_the_log_tells_are_hits() -> None:
    found = findings(with_log(replace(QUIET, new_tokens=TOTAL - 600, cached_tokens=600)))
    assert set(found) == {"hit_rate_exceeded", "hit_sources_disagree"}
    assert found["hit_rate_exceeded"].data["source"] == "log"
    assert found["hit_sources_disagree"].severity == "void"


def test_o_p4_the_log_alone_verifies_what_answers_and_counters_do_not_tell() -> None:
    alone = with_log(requests=evidence(hits([None] * N)).requests, before=NO_VIEW, after=NO_VIEW)
    judged = verdict(alone)
    assert (judged.decision, judged.findings) == ("accept", ())
    assert judged.hit_rates == {"requests": None, "counters": None, "log": 0.0}


@pytest.mark.parametrize(
    ("log", "code", "severity"),
    [
        (PrefillLog(None, None, 0, 0, (), frozenset()), "log_silent", "warning"),
        (replace(QUIET, gaps=("the file was cut short",)), "log_incomplete", "warning"),
        (replace(QUIET, new_tokens=TOTAL // 2), "log_incomplete", "warning"),
    ],
    ids=["no prefill line", "a gap", "half of the prompts"],
)
def test_o_p5_a_log_that_does_not_tell_all_is_unknown_and_not_zero(
    log: PrefillLog, code: str, severity: str
) -> None:
    found = only(with_log(log), code)
    assert found.severity == severity
    assert verdict(with_log(log)).hit_rates["log"] is None


def test_a_log_that_should_have_been_read_and_was_not_is_said() -> None:
    missing = only(evidence(log_reason="the log /x cannot be read on the target host"), "log_not_read")
    assert missing.message == "no hit rate by log: the log /x cannot be read on the target host"


def test_o_p5_a_line_that_denies_its_own_hits_is_told() -> None:
    assert only(with_log(replace(QUIET, contradictions=2)), "log_contradicts_itself").severity == "note"


def test_retracted_requests_leave_the_rate_and_the_log_is_no_source_with_them() -> None:
    """The log tells a retracted request's hits on its own KV; some versions count them in cached_tokens, too."""
    whole = rows({1: {"retractions": 1, "cached_tokens": INPUT - 1}})
    retracted = with_log(
        replace(QUIET, new_tokens=TOTAL, cached_tokens=INPUT, retractions=1), requests=evidence(whole).requests
    )
    judged = verdict(retracted)
    assert judged.decision == "accept"
    assert judged.hit_rates == {"requests": 0.0, "counters": 0.0, "log": None}
    found = {finding.code: finding for finding in judged.findings}
    assert set(found) == {"hits_left_out", "log_left_out", "preemptions"}
    assert found["hits_left_out"].data == {"left_out": 1}


def test_when_all_were_retracted_the_requests_tell_nothing() -> None:
    judged = verdict(evidence(rows({ticket: {"retractions": 1, "cached_tokens": 500} for ticket in range(N)})))
    assert judged.hit_rates == {"requests": None, "counters": 0.0, "log": None}


def test_hits_of_a_request_that_was_not_retracted_count_beside_retractions() -> None:
    found = findings(evidence(rows({1: {"retractions": 1}, 2: {"cached_tokens": INPUT - 1}})))
    assert found["hit_rate_exceeded"].data["source"] == "requests"


def ranks(cached: dict[int, int]) -> Evidence:
    """Requests of two data-parallel ranks in turn; `cached` by ticket."""
    changes = {ticket: {"dp_rank": ticket % 2, "cached_tokens": cached.get(ticket, 0)} for ticket in range(N)}
    hit = sum(cached.values())
    return evidence(rows(changes), after=ServerView("pid-1", after(prefix_hit_tokens=hit)))


def test_a_warm_rank_is_not_hidden_by_the_mean_over_all() -> None:
    """200 with one rank's reply: the others may not have flushed (case O-P2)."""
    guards = Guards(hit_rate_max=0.3)
    found = only(ranks({1: INPUT // 2, 3: INPUT // 2, 5: INPUT // 2}), "hit_rate_exceeded", guards)
    assert found.message == "not cold: prefix hit rate 0.5000 by requests of DP1 is over the limit 0.3"
    assert found.data["ranks"] == {"requests of DP0": 0.0, "requests of DP1": 0.5}
    assert findings(ranks({1: INPUT // 2}), guards) == {}


@pytest.mark.parametrize(
    ("groups", "served", "missing"),
    [
        (({0}, {1}), {0, 1}, [1]),
        (({0}, set()), {0, 1}, [1]),
        (({0, 1}, set()), {0, 1}, None),
        ((set(), set()), {0, 1}, None),
    ],
    ids=["one said no", "one said nothing", "both did", "the log has no word on it"],
)
def test_o_p2_a_rank_that_did_not_flush_by_its_log_is_told(
    groups: tuple[set[int], set[int]], served: set[int], missing: list[int] | None
) -> None:
    flushed = (frozenset(groups[0]), frozenset(groups[1]))
    given = with_log(replace(QUIET, groups=frozenset(served)), flushed_groups=flushed)
    if missing is None:
        assert findings(given) == {}
    else:
        found = only(given, "flush_partial")
        assert (found.severity, found.data) == ("warning", {"not_flushed": missing})
