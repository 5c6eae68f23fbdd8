"""Cold or not: the three sources of a hit rate, retractions, and ranks that the mean hides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attempt_evidence import BEFORE, INPUT, N, after, broken, evidence, findings, hits, only, rows, verdict

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


def ranks(cached: dict[int, int | None]) -> Evidence:
    """Requests of two data-parallel ranks in turn; `cached` by ticket."""
    changes = {ticket: {"dp_rank": ticket % 2, "cached_tokens": cached.get(ticket, 0)} for ticket in range(N)}
    hit = sum(value or 0 for value in cached.values())
    return evidence(rows(changes), after=ServerView("pid-1", after(prefix_hit_tokens=hit)))


def test_a_warm_rank_is_not_hidden_by_the_mean_over_all() -> None:
    """200 with one rank's reply: the others may not have flushed (case O-P2)."""
    guards = Guards(hit_rate_max=0.3)
    found = only(ranks({1: INPUT // 2, 3: INPUT // 2, 5: INPUT // 2}), "hit_rate_exceeded", guards)
    assert found.message == "not cold: prefix hit rate 0.5000 by requests of DP1 is over the limit 0.3"
    assert found.data["ranks"] == {"requests of DP0": 0.0, "requests of DP1": 0.5}
    assert findings(ranks({1: INPUT // 2}), guards) == {}


def test_a_warm_rank_is_not_hidden_by_an_answer_of_another_that_tells_no_hits() -> None:
    given = ranks({0: None, 1: INPUT // 2, 3: INPUT // 2, 5: INPUT // 2})
    guards = Guards(hit_rate_max=0.3)
    assert verdict(given, guards).hit_rates["requests"] is None
    assert only(given, "hit_rate_exceeded", guards).data["source"] == "requests of DP1"


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


def test_o_p3_a_hit_rate_over_the_limit_is_retried_on_fresh_text_and_void_after_the_last_attempt() -> None:
    warm = evidence(hits([INPUT - 1] * N), after=ServerView("pid-1", after(prefix_hit_tokens=N * (INPUT - 1))))
    judged = verdict(warm, attempts_left=1)
    assert judged.decision == "retry"
    assert judged.hit_rates["requests"] == pytest.approx(0.99902, abs=1e-5)
    assert [finding.code for finding in judged.findings] == ["hit_rate_exceeded"] * 2
    assert judged.reasons[0] == "not cold: prefix hit rate 0.9990 by requests is over the limit 0.01"
    assert verdict(warm, attempts_left=0).decision == "void"


def test_the_hit_rate_is_over_all_tokens_and_the_limit_itself_is_cold() -> None:
    guards = Guards(hit_rate_max=0.25)
    unseen = {"before": ServerView("pid-1", None), "after": ServerView("pid-1", None)}
    at_limit = evidence(hits([INPUT, INPUT // 2, 0, 0, 0, 0]), **unseen)
    assert verdict(at_limit, guards).hit_rates["requests"] == 0.25
    assert list(findings(at_limit, guards)) == ["traffic_not_verified"]
    over = findings(evidence(hits([INPUT, INPUT // 2, 1, 0, 0, 0]), **unseen), guards)
    assert over["hit_rate_exceeded"].data["source"] == "requests"


def test_hits_that_only_the_counters_see_are_hits() -> None:
    """A flush that said 200 and did not flush, and an engine whose answers hide it (case O-P2)."""
    found = findings(evidence(after=ServerView("pid-1", after(prefix_hit_tokens=4000))))
    assert set(found) == {"hit_rate_exceeded", "hit_sources_disagree"}
    assert found["hit_rate_exceeded"].data["source"] == "counters"
    assert found["hit_sources_disagree"].severity == "void"
    lenient = findings(evidence(after=ServerView("pid-1", after(prefix_hit_tokens=4000))), Guards(strict=False))
    assert lenient["hit_sources_disagree"].severity == "warning"


def test_the_finding_says_which_tier_held_the_text() -> None:
    tiers = {"cached_tokens": 1000, "cached_tokens_host": 990, "cached_tokens_device": 10}
    found = findings(evidence(rows(dict.fromkeys(range(N), tiers)), after=ServerView("pid-1", None)))
    assert found["hit_rate_exceeded"].data["tiers"] == {"device": 60, "host": 5940, "storage": None}


@pytest.mark.parametrize(
    ("strict", "severity", "decision"), [(True, "void", "retry"), (False, "warning", "accept")]
)
def test_o_p4_without_any_source_the_hit_rate_is_not_verified(strict: bool, severity: str, decision: str) -> None:
    silent = evidence(hits([None] * N), before=ServerView(None, None), after=ServerView(None, None))
    guards = Guards(strict=strict)
    found = findings(silent, guards)
    assert list(found) == ["hit_rate_not_verified", "traffic_not_verified"]
    assert found["hit_rate_not_verified"].severity == severity
    judged = verdict(silent, guards)
    assert (judged.decision, judged.hit_rates) == (decision, {"requests": None, "counters": None, "log": None})
    assert verdict(silent, guards, attempts_left=0).decision == ("void" if strict else "accept")


def test_o_p4_one_unknown_request_silences_its_source_and_is_never_a_zero() -> None:
    """Five zeros and an unknown are not a rate of zero."""
    no_counters = evidence(hits([0, 0, 0, 0, 0, None]), after=ServerView("pid-1", None))
    assert verdict(no_counters).hit_rates["requests"] is None
    assert "hit_rate_not_verified" in findings(no_counters)


def test_o_p4_the_counters_are_the_second_source_of_an_unknown() -> None:
    judged = verdict(evidence(hits([0, 0, 0, 0, 0, None])))
    assert (judged.decision, judged.hit_rates) == ("accept", {"requests": None, "counters": 0.0, "log": None})


def test_o_p4_a_counter_that_one_side_lacks_is_no_source() -> None:
    """A labelled series that first appears after the load is not a difference from zero."""
    before = replace(BEFORE, prefix_queried_tokens=None, prefix_hit_tokens=None, cached_tokens=None)
    judged = verdict(evidence(hits([None] * N), before=ServerView("pid-1", before)))
    assert judged.hit_rates == {"requests": None, "counters": None, "log": None}


def test_the_older_counters_serve_where_the_prefix_counters_are_missing() -> None:
    before = replace(BEFORE, prefix_queried_tokens=None)
    judged = verdict(
        evidence(before=ServerView("pid-1", before), after=ServerView("pid-1", after(cached_tokens=3000)))
    )
    assert judged.hit_rates["counters"] == pytest.approx(3000 / (N * INPUT))


def test_failed_requests_have_no_part_in_the_hit_rate() -> None:
    whole = rows({0: broken(0, 0, 1, "http_error", "http_503")})
    assert verdict(evidence(whole, after=ServerView("pid-1", None))).hit_rates["requests"] == 0.0


def test_sources_within_the_rounding_of_a_page_agree() -> None:
    assert findings(evidence(after=ServerView("pid-1", after(prefix_hit_tokens=40)))) == {}
