"""The comparison of two answers finds every kind of drift, and none where only numbers and words differ."""

import pytest
from answer_shapes import differences, log_shapes, parse
from engine_captures import SGLANG_23, raw_answer

STREAM, CHAT, PLAIN = "11_generate_stream_ids", "16_chat_stream_usage", "13_generate_plain_ids"
METRICS, ERROR, FLUSH = "53_metrics_end", "45_error_too_long_chat", "09_flush_idle"


def recorded(name: str) -> bytes:
    return raw_answer(SGLANG_23, f"main/{name}")


def changed(raw: bytes, old: bytes, new: bytes) -> bytes:
    """The answer with other bytes, its chunks of their new sizes."""
    head, _, _ = raw.partition(b"\r\n\r\n")
    answer = parse(raw)
    assert old in head or old in answer.body
    if answer.chunks is None:
        return head.replace(old, new) + b"\r\n\r\n" + answer.body.replace(old, new)
    chunks = [chunk.replace(old, new) for chunk in answer.chunks]
    return head.replace(old, new) + b"\r\n\r\n" + in_chunks(chunks)


def in_chunks(chunks: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk) + b"0\r\n\r\n"


@pytest.mark.parametrize("name", [STREAM, CHAT, PLAIN, METRICS, ERROR, FLUSH])
def test_an_answer_does_not_differ_from_itself(name: str) -> None:
    assert differences(recorded(name), recorded(name), "/generate") == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (STREAM, b'"forward_entry_time":1796056625.1', b'"forward_entry_time":1696056625.2'),
        (STREAM, b" dorpir", b" another"),
        (STREAM, b"date: Mon", b"date: Tue"),
        (STREAM, b'"completion_tokens":2', b'"completion_tokens":3'),
        (CHAT, b'"created":1796056626', b'"created":1796056627'),
        (METRICS, b'model_name="tiny"', b'model_name="other"'),
        (METRICS, b"} 0.0\n", b"} 7.0\n"),
    ],
)
def test_what_is_another_in_each_answer_is_no_difference(name: str, old: bytes, new: bytes) -> None:
    assert differences(recorded(name), changed(recorded(name), old, new), "/generate") == []


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        (STREAM, b"200 OK", b"400 Bad Request", "status: HTTP/1.1 400 Bad Request for HTTP/1.1 200 OK"),
        (STREAM, b"server: uvicorn\r\n", b"", "header: server left out"),
        (STREAM, b"server: uvicorn", b"server: other", "header server: other for uvicorn"),
        (STREAM, b"data: {", b"data:{", "stream, field and space: ['data:', 'data: '] for ['data: ']"),
        (STREAM, b"data: [DONE]\n\n", b"", "stream: first, middle, last for first, middle, last, [DONE]"),
        (STREAM, b',"dp_rank":null', b"", "event.meta_info: dp_rank left out"),
        (STREAM, b'"dp_rank":null', b'"dp_rank":0', "event.meta_info.dp_rank: whole for null"),
        (STREAM, b'"queue_time":0.', b'"queue_time":1,"more":0.', "event.meta_info: more made up"),
        (
            STREAM,
            b'"queue_time":0.',
            b'"queue_time":1,"more":0.',
            "event.meta_info.queue_time: whole for fraction",
        ),
        (
            STREAM,
            b'"completion_tokens":8',
            b'"completion_tokens":7',
            "event.meta_info.completion_tokens: another number",
        ),
        (STREAM, b'"type":"length"', b'"type":"stop"', "event.meta_info.finish_reason.type: another text"),
        (
            STREAM,
            b'{"text":" dor","output_ids":[582],',
            b'{"output_ids":[582],"text":"a",',
            "event: another order",
        ),
        (CHAT, b'"usage":{', b'"usage":null,"used":{', "usage.usage: null for object"),
        (
            CHAT,
            b'"choices":[],"usage"',
            b'"choices":[{"finish_reason":null}],"usage"',
            "stream: role, text, finish, text, [DONE] for role, text, finish, usage, [DONE]",
        ),
        (PLAIN, b'"output_ids":[347,', b'"output_ids":[3.5,', ".output_ids[]: fraction for whole"),
        (
            PLAIN,
            b'"weight_versions":[{"version":"default","start":0,"end":8}]',
            b'"weight_versions":[]',
            ".meta_info.weight_versions: an empty list",
        ),
        (ERROR, b"is longer than", b"exceeds", ".message: another text"),
        (ERROR, b'"param":null,', b"", ": param left out"),
        (FLUSH, b"Cache flushed.", b"Flushed.", "text: another"),
        (METRICS, b"The number of running requests.", b"Running.", "sglang:num_running_reqs: another help"),
        (METRICS, b"num_running_reqs gauge", b"num_running_reqs counter", "sglang:num_running_reqs: another type"),
        (METRICS, b"NaN", b"nan", "sglang:fwd_occupancy: another odd_numbers"),
        (METRICS, b'le="1e+06"', b'le="1000000.0"', "sglang:prompt_tokens_histogram le: 1e+06 left out"),
        (METRICS, b'is_streaming="true",', b"", "sglang:num_requests_total is_streaming: true left out"),
        (
            METRICS,
            b'cache_source="device"',
            b'cache_source="gpu"',
            "sglang:cached_tokens_total cache_source: gpu made up",
        ),
        (METRICS, b"sglang:num_pages", b"sglang:pages", "metrics: sglang:num_pages left out"),
    ],
)
def test_a_drift_is_named(name: str, old: bytes, new: bytes, line: str) -> None:
    assert line in differences(recorded(name), changed(recorded(name), old, new), "/generate")


def test_events_that_share_a_chunk_are_a_difference() -> None:
    answer = recorded(STREAM)
    head, _, _ = answer.partition(b"\r\n\r\n")
    together = head + b"\r\n\r\n" + in_chunks([parse(answer).body])
    assert differences(answer, together, "/generate") == ["stream, events in a chunk: [9] for [1]"]


def test_a_reader_that_was_late_sees_fewer_events_and_no_difference() -> None:
    answer = recorded(STREAM)
    head, _, _ = answer.partition(b"\r\n\r\n")
    chunks = parse(answer).chunks
    assert chunks is not None
    assert differences(answer, head + b"\r\n\r\n" + in_chunks(chunks[-2:]), "/generate") == []


def test_lines_of_a_log_are_told_apart_by_their_words() -> None:
    log = (
        "[2026-11-30 16:37:00] before\n[2026-11-30 16:37:00] The server is fired up and ready to roll!\n"
        "[2026-11-30 16:37:05] #new-token: 100, token usage: 0.02\n[2026-11-30 16:37:06 DP1] Cache flushed\n"
        "[2026-11-30 16:37:07] #new-token: 7, token usage: 0.13\n"
    )
    assert log_shapes(log) == {"[stamp] #new-token: N, token usage: N", "[stamp DPN] Cache flushed"}
