"""Each finding: that it appears for what it is about, and that an honest attempt has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from attempt_evidence import (
    BEFORE,
    INPUT,
    OUTPUT,
    N,
    after,
    broken,
    evidence,
    findings,
    hits,
    only,
    rows,
    verdict,
)
from request_rows import ns

from raybench.engines.contract import Counters
from raybench.protocol.evidence import Evidence
from raybench.protocol.fleet import GpuState
from raybench.protocol.target import ServerView
from raybench.scenario.schema import Guards


def test_an_honest_attempt_has_no_finding_and_is_accepted() -> None:
    judged = verdict(evidence())
    assert (judged.decision, judged.findings, judged.reasons) == ("accept", (), [])
    assert judged.hit_rates == {"requests": 0.0, "counters": 0.0, "log": None}


# Cold


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


# Workers and records


def test_o_r4_a_lost_worker_voids_the_point_with_planned_sent_and_received() -> None:
    lost = evidence(
        rows()[:4],
        lost_workers={"w001": "its process is gone"},
        leased=5,
        after=ServerView("pid-1", after(requests=5)),
    )
    found = findings(lost)
    assert found["worker_lost"].severity == "void"
    assert found["worker_lost"].message == (
        "client lost: worker w001 (its process is gone); 6 requests planned,"
        " 5 handed out to be sent, 4 with a record"
    )
    assert found["worker_lost"].data == {"planned": 6, "handed_out": 5, "received": 4, "worker": "w001"}
    assert "requests_missing" not in found
    assert verdict(lost).decision == "void", "fresh text cures no lost worker"


def test_a_request_without_a_record_is_missed() -> None:
    found = findings(evidence(rows()[:5]))
    assert found["requests_missing"].message == "5 records for 6 planned requests"


def test_a_request_with_two_records_is_doubled() -> None:
    whole = rows()
    found = findings(evidence([*whole[:5], whole[4]]))
    assert found["requests_doubled"].severity == "void"


def test_a_part_that_was_not_closed_voids_the_point() -> None:
    torn = only(evidence(torn_parts=("w000.arrows: file not closed",)), "part_torn")
    assert (torn.severity, torn.data) == ("void", {"part": "w000.arrows: file not closed"})


def test_a_lost_worker_s_torn_part_is_not_told_twice() -> None:
    lost = evidence(torn_parts=("w1.arrows",), lost_workers={"w1": "gone"})
    assert list(findings(lost)) == ["worker_lost"]


# Outcomes


def test_o_t3_failures_below_the_success_limit_void_the_point_by_class() -> None:
    whole = rows(
        {0: broken(0, 0, 1, "http_error", "http_503"), 3: broken(3, 1, 2, "disconnected", "broken_stream")}
    )
    found = only(evidence(whole), "requests_failed")
    assert found.severity == "void"
    assert found.message == "2 of 6 requests failed (broken_stream: 1, http_503: 1); success limit 1"
    assert found.data["success_rate"] == pytest.approx(4 / 6)


def test_failures_within_the_success_limit_are_a_warning() -> None:
    whole = rows({0: broken(0, 0, 1, "http_error", "http_503")})
    found = only(evidence(whole), "requests_failed", Guards(success_rate_min=0.8))
    assert found.severity == "warning"


def test_no_record_at_all_is_void() -> None:
    found = findings(evidence([], after=ServerView("pid-1", BEFORE)))
    assert {code for code, finding in found.items() if finding.severity == "void"} >= {
        "no_requests",
        "requests_missing",
    }


def test_o_n4_second_tries_are_noted() -> None:
    found = only(evidence(rows({2: {"tries": 2}})), "stale_connections")
    assert (found.severity, found.data) == ("note", {"retried": 1})


# Lengths


def test_a_clipped_answer_is_void() -> None:
    found = findings(evidence(rows({4: {"output_tokens": 9}})))
    assert found["output_length_differs"].severity == "void"
    assert "1 of 6 requests: output tokens" in found["output_length_differs"].message
    assert "(ticket 4: 9 for 16)" in found["output_length_differs"].message


def test_a_clipped_prompt_is_void() -> None:
    found = findings(evidence(rows({1: {"input_tokens": 512}})))
    assert "(ticket 1: 512 for 1024)" in found["input_length_differs"].message


def test_answers_may_end_early_where_eos_is_not_ignored() -> None:
    whole = rows({4: {"output_tokens": 9}})
    shorter = ServerView("pid-1", after(output_tokens=N * OUTPUT - 7))
    assert findings(evidence(whole, ignore_eos=False, after=shorter)) == {}


def test_text_prompts_have_no_length_to_compare() -> None:
    whole = rows({1: {"input_tokens": INPUT + 7}})
    longer = ServerView("pid-1", after(input_tokens=N * INPUT + 7))
    assert findings(evidence(whole, prompt_is_ids=False, after=longer)) == {}


@pytest.mark.parametrize(("strict", "severity"), [(True, "void"), (False, "warning")])
def test_estimated_tokens_are_not_compared_and_verify_no_length(strict: bool, severity: str) -> None:
    whole = rows({4: {"output_tokens": 9, "tokens_source": "estimated"}})
    found = only(evidence(whole), "tokens_estimated", Guards(strict=strict))
    assert (found.severity, found.data) == (severity, {"estimated": 1})


def test_an_unknown_length_is_not_a_difference() -> None:
    assert "output_length_differs" not in findings(evidence(rows({4: {"output_tokens": None}})))


# The server


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


# The load itself


def test_a_concurrency_that_was_never_reached_is_void() -> None:
    whole = [row | {"sent_ns": ns(number), "end_ns": ns(number + 1)} for number, row in enumerate(rows())]
    found = only(evidence(whole), "concurrency_not_reached")
    assert found.message == "at most 1 requests were in flight, asked 2"
    assert found.data["level"] == 2


def test_a_concurrency_that_was_exceeded_is_void() -> None:
    found = only(evidence(rows({5: {"sent_ns": ns(0.5)}})), "concurrency_exceeded")
    assert found.message == "at most 3 requests were in flight, asked 2"


def test_a_slot_that_is_filled_again_at_once_was_never_two_requests() -> None:
    """All requests of the honest attempt end and begin at the same nanosecond."""
    assert findings(evidence()) == {}


def test_a_concurrency_that_was_not_held_long_enough_is_void_where_a_share_is_asked() -> None:
    late = rows({2: {"sent_ns": ns(1.8)}})
    assert findings(evidence(late)) == {}
    found = only(evidence(late), "concurrency_not_held", Guards(in_flight_share_min=0.95))
    assert found.data["share_at_level"] == pytest.approx(0.6)


def test_records_without_a_time_of_sending_prove_no_concurrency() -> None:
    refused = rows({n: broken(n, 0, 1, "connect_error", "connect_error", sent_ns=None) for n in range(N)})
    found = findings(evidence(refused, after=ServerView("pid-1", BEFORE)), Guards(success_rate_min=0.0))
    assert found["concurrency_not_verified"].severity == "void"


def test_a_link_that_was_interrupted_under_the_load_is_void() -> None:
    found = only(evidence(link_changes={"w0": 0, "target host": 2}), "link_interrupted")
    assert (found.severity, found.data) == ("void", {"host": "target host", "changes": 2})
    assert findings(evidence(link_changes={"w0": 0, "target host": 0})) == {}


# Retry or void


@pytest.mark.parametrize(
    ("spoil", "decision"),
    [
        (lambda e: e, "retry"),
        (lambda e: replace(e, lost_workers={"w0": "gone"}), "void"),
        (lambda e: replace(e, torn_parts=("w0.arrows",)), "void"),
        (lambda e: replace(e, gpu=GpuState("gone")), "retry"),
        (lambda e: replace(e, after=ServerView("pid-2", after())), "void"),
    ],
    ids=["only warm", "and a lost worker", "and a torn part", "and a warning", "and a restart"],
)
def test_only_what_fresh_text_can_cure_is_repeated(spoil: Callable[[Evidence], Evidence], decision: str) -> None:
    warm = evidence(hits([INPUT - 1] * N), after=ServerView("pid-1", after()))
    assert verdict(spoil(warm), attempts_left=1).decision == decision
    assert verdict(spoil(warm), attempts_left=0).decision == "void"
