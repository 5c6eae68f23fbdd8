"""SGLang's /generate: bodies, token counts and failures, with the inputs of the field cases."""

from __future__ import annotations

import json

import pytest
from engine_captures import EVENT_BYTES_MAX, decode

from raybench.engines import ENGINES
from raybench.engines.contract import Answer, RequestShape
from raybench.engines.sglang_generate import StreamedText
from raybench.load.exchange import OF_ANSWER
from raybench.records.schema import REQUESTS
from raybench.records.stream import ArrowEncoder

SGLANG = ENGINES["sglang"]
SHAPE = RequestShape(route="generate", input_tokens=5, output_tokens=3)
MS = 1_000_000


def event(body: object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def message(text: str, ids: list[int], tokens: int, reason: object = None, **meta: object) -> dict[str, object]:
    known = {"prompt_tokens": 5, "cached_tokens": 0, "completion_tokens": tokens, "finish_reason": reason}
    return {"text": text, "output_ids": ids, "meta_info": known | meta}


def answer_of(*events: bytes, complete: bool = True, done: bool = True) -> Answer:
    stream = [*events, b"data: [DONE]\n\n"] if done else list(events)
    decoder = SGLANG.decoder(SHAPE, event_bytes_max=EVENT_BYTES_MAX)
    return decode(decoder, [(i * MS, data) for i, data in enumerate(stream, start=1)], complete=complete)


LENGTH = {"type": "length", "length": 3}


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        (["A", "AB", "ABC"], [[11], [11, 12], [11, 12, 13]]),
        (["A", "B", "C"], [[11], [12], [13]]),
        (["A", "AB", "ABC"], [[11], [12], [13]]),
    ],
    ids=["cumulative", "incremental", "text cumulative, ids incremental"],
)
def test_o_s2_tokens_are_counted_by_the_server_whatever_a_chunk_repeats(
    texts: list[str], ids: list[list[int]]
) -> None:
    reasons = [None, None, LENGTH]
    chunks = zip(texts, ids, (1, 2, 3), reasons, strict=True)
    answer = answer_of(*(event(message(*chunk)) for chunk in chunks))
    assert (answer.output_tokens, answer.tokens_source, answer.text) == (3, "server", "ABC")
    assert (answer.input_tokens, answer.cached_tokens) == (5, 0)
    assert answer.chunk_tokens == [1, 1, 1]
    assert (answer.finish_reason, answer.done_marker, answer.error_class) == ("length", True, None)


def test_o_s2_tokens_without_visible_text_do_not_repeat_the_text_of_a_cumulative_stream() -> None:
    answer = answer_of(
        event(message("a", [1], 1)), event(message("a", [1, 2], 2)), event(message("a", [1, 2, 3], 3, LENGTH))
    )
    assert (answer.text, answer.output_tokens) == ("a", 3)


@pytest.mark.parametrize("reason", [None, "length", LENGTH])
def test_o_s2_several_tokens_in_a_chunk_and_every_form_of_finish_reason(reason: object) -> None:
    answer = answer_of(
        event(message("A", [1], 1)), event(message("AB", [1] * 5, 5)), event(message("ABC", [1] * 9, 9, reason))
    )
    assert answer.output_tokens == 9
    assert answer.chunk_tokens == [1, 4, 4]
    assert answer.finish_reason == (None if reason is None else "length")
    assert answer.error_class is None


def test_o_t1_three_tokens_a_chunk_keep_the_token_counts_and_the_stamps() -> None:
    decoder = SGLANG.decoder(SHAPE, event_bytes_max=EVENT_BYTES_MAX)
    decoder.feed(event(message("a", [1], 1)), 1000 * MS)
    for chunk in range(1, 11):
        tokens = 1 + 3 * chunk
        reason = {"type": "length", "length": 31} if chunk == 10 else None
        decoder.feed(event(message("a" * tokens, [1] * tokens, tokens, reason)), (1000 + 40 * chunk) * MS)
    decoder.feed(b"data: [DONE]\n\n", 1401 * MS)
    answer = decoder.finish(complete=True)
    assert answer.output_tokens == 31
    assert answer.chunk_tokens == [1] + [3] * 10
    assert (answer.first_token_ns, answer.last_token_ns) == (1000 * MS, 1400 * MS)
    tpot_ms = (1400 - 1000) / (31 - 1)
    assert round(tpot_ms, 2) == 13.33


def test_o_t1_a_first_chunk_of_four_tokens_is_known_as_such() -> None:
    answer = answer_of(event(message("abcd", [1, 2, 3, 4], 4)), event(message("abcdefg", [1] * 7, 7, LENGTH)))
    assert answer.chunk_tokens == [4, 3]


def test_the_first_token_is_the_first_count_of_one_even_without_text() -> None:
    answer = answer_of(
        event(message("", [], 0)), event(message("", [7], 1)), event(message("é", [7, 8], 2, "stop"))
    )
    assert (answer.first_event_ns, answer.first_token_ns) == (1 * MS, 2 * MS)
    assert answer.chunk_tokens == [1, 1]


def test_an_event_without_new_tokens_is_no_chunk() -> None:
    answer = answer_of(event(message("a", [1], 1)), event(message("a", [1], 1, LENGTH)))
    assert answer.chunk_ns == [1 * MS]
    assert (answer.last_token_ns, answer.output_tokens) == (1 * MS, 1)


def test_o_s5_an_error_in_string_form_fails_the_answer() -> None:
    answer = answer_of(event({"error": "queue full"}))
    assert (answer.error_class, answer.error_message) == ("engine_error", "queue full")
    assert (answer.output_tokens, answer.first_token_ns, answer.done_marker) == (0, None, True)


def test_o_s5_an_abort_with_a_status_fails_the_answer_and_keeps_its_partial_tokens() -> None:
    abort = {"type": "abort", "message": "The request queue is full.", "status_code": 503}
    answer = answer_of(event(message("ab", [1, 2], 2)), event(message("ab", [1, 2], 0, abort)))
    assert (answer.error_class, answer.error_message) == ("engine_503", "The request queue is full.")
    assert (answer.finish_reason, answer.output_tokens) == ("abort", 2)


@pytest.mark.parametrize("abort", [{"type": "abort", "status_code": None, "message": "Aborted"}, "abort"])
def test_o_s5_an_abort_without_a_status_is_an_engine_error(abort: object) -> None:
    assert answer_of(event(message("a", [1], 1, abort))).error_class == "engine_error"


def test_an_end_without_finish_reason_and_done_is_a_broken_stream() -> None:
    answer = answer_of(event(message("a", [1], 1)), done=False)
    assert (answer.error_class, answer.output_tokens) == ("broken_stream", 1)


def test_a_missing_done_after_a_finish_reason_is_a_success_without_the_marker() -> None:
    answer = answer_of(event(message("a", [1], 1, LENGTH)), done=False)
    assert (answer.error_class, answer.done_marker) == (None, False)


def test_a_connection_that_broke_is_a_broken_stream_even_after_a_finish_reason() -> None:
    answer = answer_of(event(message("a", [1], 1, LENGTH)), done=False, complete=False)
    assert answer.error_class == "broken_stream"


def test_a_connection_that_broke_after_done_lost_nothing() -> None:
    assert answer_of(event(message("a", [1], 1, LENGTH)), complete=False).error_class is None


def test_a_last_event_without_its_blank_line_counts() -> None:
    answer = answer_of(event(message("a", [1], 1)), event(message("ab", [1, 2], 2, LENGTH))[:-2], done=False)
    assert (answer.error_class, answer.output_tokens, answer.last_token_ns) == (None, 2, 2 * MS)


def test_a_stream_cut_inside_an_event_is_broken_and_not_a_bad_event() -> None:
    answer = answer_of(event(message("a", [1], 1)), event(message("ab", [1, 2], 2))[:30], done=False)
    assert (answer.error_class, answer.output_tokens) == ("broken_stream", 1)
    assert "inside an event" in (answer.error_message or "")


@pytest.mark.parametrize("payload", ["{not json", "[1]", "7"])
def test_an_event_that_is_no_json_object_is_a_bad_event(payload: str) -> None:
    answer = answer_of(event(message("a", [1], 1)), f"data: {payload}\n\n".encode())
    assert (answer.error_class, answer.output_tokens) == ("bad_event", 1)
    assert payload in (answer.error_message or "")


def test_an_answer_that_is_no_event_stream_says_how_it_starts() -> None:
    answer = answer_of(b"<html>gateway", done=False)
    assert (answer.error_class, answer.events) == ("broken_stream", 0)
    assert "<html>gateway" in (answer.error_message or "")


def test_o_n3_a_large_event_passes_and_one_over_the_limit_fails_with_its_own_class() -> None:
    large = event(message("a" * 2 * 1024 * 1024, [1], 1))
    last = event(message("b", [2], 2, LENGTH))
    assert len(answer_of(large, last).text) == 2 * 1024 * 1024 + 1
    decoder = SGLANG.decoder(SHAPE, event_bytes_max=1024 * 1024)
    answer = decode(decoder, [(1, event(message("a", [1], 1))), (2, large), (3, last)])
    assert (answer.error_class, answer.output_tokens, answer.text) == ("event_too_large", 1, "a")


def test_what_the_server_says_of_a_request_is_read_under_old_and_new_names() -> None:
    new = answer_of(
        event(
            message(
                "a", [1], 1, LENGTH, cached_tokens=9, num_retractions=2, dp_rank=1, spec_accept_length=2.5,
                cached_tokens_details={"device": 4, "host": 3, "storage": 2, "storage_backend": "file"},
                queue_time=0.5, first_token_latency=1.5, e2e_latency=2.5,
            )
        )
    )  # fmt: skip
    tiers = (new.cached_tokens_device, new.cached_tokens_host, new.cached_tokens_storage)
    assert (new.cached_tokens, tiers) == (9, (4, 3, 2))
    assert (new.retractions, new.dp_rank, new.accept_length) == (2, 1, 2.5)
    assert (new.engine_queue_s, new.engine_ttft_s, new.engine_e2e_s) == (0.5, 1.5, 2.5)
    old = answer_of(
        event(
            message(
                "abcdef", [1], 6, LENGTH, total_retractions=1, spec_verify_ct=3,
                request_received_ts=100.0, response_sent_to_client_ts=100.25,
            )
        )
    )  # fmt: skip
    assert (old.retractions, old.accept_length, old.engine_ttft_s) == (1, 2.0, 0.25)
    assert (old.dp_rank, old.cached_tokens_device) == (None, None)


@pytest.mark.parametrize("skim", [False, True])
@pytest.mark.parametrize("number", [2**31 - 1, 2**31, 2**63, 2**64 - 1, -1])
def test_a_number_that_no_column_holds_is_unknown_and_every_record_can_be_kept(number: int, skim: bool) -> None:
    counts = {"prompt_tokens": number, "dp_rank": number, "num_retractions": number, "spec_verify_ct": number}
    messages = [message("A", [1], 1), message("B", [2], number, **counts), message("C", [3], 3, LENGTH, **counts)]
    stream = [b"data: " + json.dumps(one, separators=(",", ":")).encode() + b"\n\n" for one in messages]
    decoder = SGLANG.decoder(SHAPE, event_bytes_max=EVENT_BYTES_MAX, skim=skim)
    answer = decode(decoder, list(enumerate(stream)))
    known = number if number == 2**31 - 1 else None
    assert (answer.input_tokens, answer.dp_rank, answer.retractions, answer.verify_rounds) == (known,) * 4
    assert ArrowEncoder(REQUESTS).encode([{name: getattr(answer, name) for name in OF_ANSWER}])


def test_details_that_are_null_because_nothing_was_cached_leave_nothing_for_device_and_host() -> None:
    cold = answer_of(event(message("a", [1], 1, LENGTH, cached_tokens_details=None)))
    assert (cold.cached_tokens_device, cold.cached_tokens_host, cold.cached_tokens_storage) == (0, 0, None)
    warm = answer_of(event(message("a", [1], 1, LENGTH, cached_tokens=4, cached_tokens_details=None)))
    assert (warm.cached_tokens, warm.cached_tokens_device) == (4, None)


def test_a_server_that_counts_nothing_gives_an_estimate_that_says_so() -> None:
    bare = {"text": "a", "meta_info": {"finish_reason": None}}
    last = {"text": "ab", "meta_info": {"finish_reason": {"type": "stop"}}}
    answer = answer_of(event(bare), event(last))
    assert (answer.output_tokens, answer.tokens_source) == (2, "estimated")
    assert answer.chunk_tokens == [None, None]


def test_a_body_that_is_not_streamed_has_counts_and_no_token_stamps() -> None:
    shape = RequestShape(route="generate", input_tokens=5, output_tokens=3, stream=False)
    body = json.dumps(message("ABC", [1, 2, 3], 3, LENGTH)).encode()
    decoder = SGLANG.decoder(shape, event_bytes_max=EVENT_BYTES_MAX)
    answer = decode(decoder, [(1, body[:20]), (2, body[20:])])
    assert (answer.output_tokens, answer.text, answer.tokens_source) == (3, "ABC", "server")
    assert (answer.first_token_ns, answer.chunk_ns, answer.error_class) == (None, [], None)
    assert (answer.finish_reason, answer.bytes_received) == ("length", len(body))


@pytest.mark.parametrize(
    ("body", "complete", "error_class"),
    [
        (b'{"text": "a"', True, "bad_event"),
        (b'{"text": "a"', False, "broken_stream"),
        (b'{"error": {"message": "no", "code": "404"}}', True, "engine_404"),
        (b'{"object": "error", "message": "full", "code": 503}', True, "engine_503"),
        (b'{"text": "' + b"a" * 2000 + b'"}', True, "event_too_large"),
    ],
)
def test_a_body_that_fails_has_its_class(body: bytes, complete: bool, error_class: str) -> None:
    shape = RequestShape(route="generate", input_tokens=5, output_tokens=3, stream=False)
    answer = decode(SGLANG.decoder(shape, event_bytes_max=1024), [(1, body)], complete=complete)
    assert (answer.error_class, answer.output_tokens, answer.tokens_source) == (error_class, None, "none")


def test_text_of_equal_parts_is_not_taken_for_a_repetition() -> None:
    text = StreamedText()
    for part in ("\n", "\n", "\n", "a"):
        text.add(part)
    assert text.text == "\n\n\na"


def test_cumulative_text_is_held_once() -> None:
    text = StreamedText()
    for length in range(1, 200):
        text.add("x" * length)
    assert text.text == "x" * 199
    assert len(text._parts) == 1


def test_the_body_names_every_sampling_field_and_takes_ids_and_rid() -> None:
    template = SGLANG.template(SHAPE)
    assert (template.path, template.prompt) == ("/generate", "ids")
    assert json.loads(template.render("r-000001", b"1,2,3")) == {
        "rid": "r-000001",
        "input_ids": [1, 2, 3],
        "sampling_params": {"max_new_tokens": 3, "temperature": 0.0, "top_p": 1.0, "ignore_eos": True},
        "stream": True,
    }


def test_extra_body_is_merged_last_and_key_by_key() -> None:
    extra = {"sampling_params": {"top_p": 0.9, "top_k": 5}, "priority": 1}
    shape = RequestShape(route="generate", input_tokens=5, output_tokens=3, extra_body=extra)
    body = json.loads(SGLANG.template(shape).render("r", b"1"))
    assert body["sampling_params"] == {
        "max_new_tokens": 3, "temperature": 0.0, "top_p": 0.9, "ignore_eos": True, "top_k": 5,
    }  # fmt: skip
    assert body["priority"] == 1
