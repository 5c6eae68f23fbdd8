"""Failed and empty answers, lengths, finish reasons, and streams that somebody held back."""

from __future__ import annotations

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
    ns,
    only,
    rows,
    verdict,
)

from raybench.protocol.evidence import Evidence
from raybench.protocol.target import ServerView
from raybench.scenario.schema import Guards


def answers(**columns: object) -> Evidence:
    return evidence(rows(dict.fromkeys(range(N), columns)))


def test_an_empty_answer_counts_against_the_success_limit() -> None:
    empty = evidence(rows({2: {"output_tokens": 0}}), ignore_eos=False)
    found = findings(empty)["empty_answers"]
    assert (found.severity, found.data["empty"]) == ("void", 1)
    assert findings(empty, Guards(success_rate_min=0.5))["empty_answers"].severity == "warning"


def test_failed_and_empty_answers_are_counted_together() -> None:
    whole = rows({0: {"outcome": "http_error", "error_class": "http_503"}, 1: {"output_tokens": 0}})
    found = findings(evidence(whole, ignore_eos=False), Guards(success_rate_min=0.7))
    assert (found["requests_failed"].severity, found["empty_answers"].severity) == ("warning", "void")


def test_finish_reasons_other_than_length_are_noted() -> None:
    found = only(evidence(rows({0: {"finish_reason": "stop"}, 1: {"finish_reason": "length"}})), "finish_reasons")
    assert found.severity == "note"
    assert found.message == "answers ended by None: 4, length: 1, stop: 1"
    assert findings(answers(finish_reason="length")) == {}


def one_piece(engine_ttft_s: float | None) -> Evidence:
    """Answers of a second whose tokens all came at its end."""
    ends = {ticket: ns(ticket // 2 + 1) for ticket in range(N)}
    stamps = {ticket: {"first_token_ns": end, "last_token_ns": end} for ticket, end in ends.items()}
    return evidence(rows({ticket: stamp | {"engine_ttft_s": engine_ttft_s} for ticket, stamp in stamps.items()}))


def test_a_stream_that_is_held_back_has_no_ttft() -> None:
    found = only(one_piece(0.25), "answers_in_one_piece")
    assert found.severity == "void"
    assert "after 1000 ms, while the engine had its first token after 250 ms" in found.message
    assert verdict(one_piece(0.25)).decision == "void"


def test_an_engine_whose_first_token_is_its_last_is_no_liar() -> None:
    assert findings(one_piece(0.95)) == {}


def test_without_the_engine_s_own_ttft_it_is_a_warning() -> None:
    assert only(one_piece(None), "answers_in_one_piece").severity == "warning"


def test_answers_that_are_not_streamed_may_come_in_one_piece() -> None:
    whole = one_piece(0.25)
    assert findings(evidence(streamed=False, requests=whole.requests)) == {}


def test_one_answer_with_several_pieces_shows_that_nothing_is_held_back() -> None:
    whole = one_piece(0.25).requests.to_pylist()
    whole[0]["first_token_ns"] = ns(0.5)
    assert findings(evidence(whole)) == {}


def test_it_is_the_median_answer_whose_first_token_came_long_before() -> None:
    whole = one_piece(0.25).requests.to_pylist()
    whole[0]["engine_ttft_s"] = 0.99
    found = only(evidence(whole), "answers_in_one_piece")
    assert (found.data["engine_ttft_s"], found.data["whole_s"]) == (0.25, 1.0)


def test_answers_of_unknown_length_say_nothing_about_pieces() -> None:
    whole = [row | {"output_tokens": None} for row in one_piece(0.25).requests.to_pylist()]
    assert "answers_in_one_piece" not in findings(evidence(whole))


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
