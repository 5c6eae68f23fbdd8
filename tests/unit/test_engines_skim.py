"""The skimming decoder beside the full one: the same answer in all but the text, however the bytes are cut."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pytest
from engine_captures import (
    CAPTURES,
    EVENT_BYTES_MAX,
    LLAMACPP,
    SGLANG_9,
    SGLANG_17,
    SGLANG_23,
    TRANSFORMERS,
    VLLM,
    as_read,
    capture,
)
from hypothesis import given
from hypothesis import strategies as st

from raybench.engines import ENGINES
from raybench.engines.contract import Answer, RequestShape
from raybench.engines.decoder import StreamDecoder
from raybench.engines.openai import OpenAIReader
from raybench.engines.sglang_generate import GenerateReader
from raybench.engines.skim import SkimmingDecoder, last_event_end, split_events
from raybench.scenario.schema import Route

ENGINE_OF = {
    SGLANG_23: "sglang",
    SGLANG_17: "sglang",
    SGLANG_9: "sglang",
    VLLM: "vllm",
    LLAMACPP: "llamacpp",
    TRANSFORMERS: "openai",
}
GENERATE = (
    "main/11_generate_stream_ids",
    "main/27_cache_1_cold",
    "main/28_cache_2_warm",
    "main/31_cache_3_after_flush",
    "main/33_cache_4_half_shared",
    "main/37_long_stream_during_flush",
    "main/39_stream_aborted_by_rid",
    "main/40_stream_client_closed",
    "main/43_error_too_long_stream",
    "incremental/02_first",
    "queue-limit/02_queue_4",
    "queue-limit/02_queue_6",
    "queue-limit/09_queue_0",
    "hicache/11_again_after_eviction",
    "hicache-storage/05_after_flush",
    "spec/02_first",
    "dp2/repeat/02_first",
)
COMPLETIONS = {
    SGLANG_23: ("main/20_completions_stream_usage",),
    SGLANG_17: ("main/20_completions_stream_usage",),
    SGLANG_9: ("main/20_completions_stream_usage",),
    VLLM: (
        "main/12_completions_stream_usage",
        "main/13_completions_stream_no_usage",
        "main/15_completions_stream_ids",
        "main/19_cache_1_cold",
        "main/20_cache_2_warm",
        "main/23_cache_3_after_reset",
        "main/28_stream_client_closed",
    ),
    LLAMACPP: (
        "main/10_completions_stream_usage",
        "main/13_completions_stream_ids",
        "main/17_cache_1_cold",
        "main/18_cache_2_warm",
        "main/24_cache_3_after_erase",
        "main/28_long_stream_during_erase",
        "main/29_stream_client_closed",
    ),
    TRANSFORMERS: ("main/09_completions_stream_usage",),
}
STREAMS: list[tuple[str, str, Route]] = [
    (engine, name, "generate")
    for engine in (SGLANG_23, SGLANG_17, SGLANG_9)
    for name in GENERATE
    if list(CAPTURES.glob(f"{engine}/{name}.resp*"))
] + [(engine, name, "completions") for engine, names in COMPLETIONS.items() for name in names]

Pieces = list[tuple[int, bytes]]


def facts(answer: Answer) -> dict[str, object]:
    return {name: getattr(answer, name) for name in answer.__slots__ if name not in ("text", "text_complete")}


def decode(
    pieces: Pieces, route: Route, *, skim: bool, complete: bool = True, engine: str = "sglang", limit: int
) -> Answer:
    shape = RequestShape(route=route, input_tokens=1, output_tokens=1)
    decoder = ENGINES[engine].decoder(shape, event_bytes_max=limit, skim=skim)
    assert isinstance(decoder, SkimmingDecoder) is skim
    for stamp_ns, data in pieces:
        decoder.feed(data, stamp_ns)
    return decoder.finish(complete=complete)


def both(
    pieces: Pieces, route: Route, *, complete: bool = True, engine: str = "sglang", limit: int = EVENT_BYTES_MAX
) -> Answer:
    """The answer as skimmed, which is the answer as read in full."""
    read = decode(pieces, route, skim=False, complete=complete, engine=engine, limit=limit)
    skimmed = decode(pieces, route, skim=True, complete=complete, engine=engine, limit=limit)
    assert facts(skimmed) == facts(read)
    if skimmed.text_complete:
        assert skimmed.text == read.text
    return skimmed


def cut_at(body: bytes, cuts: Iterable[int]) -> Pieces:
    ends = [*cuts, len(body)]
    return [(a + 1, body[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def by_event(body: bytes) -> Pieces:
    *events, rest = body.split(b"\n\n")
    pieces = [event + b"\n\n" for event in events] + ([rest] if rest else [])
    return [(10 * number, piece) for number, piece in enumerate(pieces, 1)]


# Captures


def test_no_stream_of_tokens_among_the_captures_is_left_out() -> None:
    def is_stream(engine: str, name: str) -> bool:
        start = capture(engine, name).body[:400]
        return start.startswith(b"data:") and b"chat.completion.chunk" not in start

    paths = [path.relative_to(CAPTURES) for path in CAPTURES.glob("*/**/*.resp*")]
    names = [(path.parts[0], "/".join(path.parts[1:]).partition(".resp")[0]) for path in paths]
    assert {name for name in names if is_stream(*name)} == {(engine, name) for engine, name, _ in STREAMS}


@pytest.mark.parametrize(("engine", "name", "route"), STREAMS)
@pytest.mark.parametrize("complete", [True, False])
def test_a_skimmed_capture_is_the_read_one(engine: str, name: str, route: Route, complete: bool) -> None:
    captured = capture(engine, name)
    body = captured.body
    cuts = [as_read(captured), by_event(body), cut_at(body, [])]
    chance = random.Random(name)
    cuts += [cut_at(body, sorted(chance.sample(range(len(body)), min(len(body), 40)))) for _ in range(4)]
    if len(body) < 20_000:
        cuts.append(cut_at(body, range(1, len(body))))
    for pieces in cuts:
        both(pieces, route, complete=complete, engine=ENGINE_OF[engine])


@pytest.mark.parametrize(("engine", "name", "route"), STREAMS)
def test_a_capture_that_is_cut_off_anywhere_is_the_read_one(engine: str, name: str, route: Route) -> None:
    pieces = by_event(capture(engine, name).body)[:60]
    for end in range(len(pieces) + 1):
        both(pieces[:end], route, complete=False, engine=ENGINE_OF[engine])
    for end in range(1, len(pieces) + 1):
        stamp_ns, last = pieces[end - 1]
        both([*pieces[: end - 1], (stamp_ns, last[: len(last) // 2])], route, engine=ENGINE_OF[engine])


@pytest.fixture
def read_events(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The messages that readers were given."""
    seen: list[object] = []

    def counting(original: Callable[..., None]) -> Callable[..., None]:
        def event(reader: object, message: object, stamp_ns: int) -> None:
            seen.append(message)
            original(reader, message, stamp_ns)

        return event

    for reader in (OpenAIReader, GenerateReader):
        monkeypatch.setattr(reader, "event", counting(reader.event))
    return seen


@pytest.mark.parametrize(
    ("engine", "name", "route"),
    [
        (SGLANG_23, "main/37_long_stream_during_flush", "generate"),
        (SGLANG_17, "incremental/02_first", "generate"),
        (SGLANG_9, "incremental/02_first", "generate"),
        (VLLM, "main/28_stream_client_closed", "completions"),
        (LLAMACPP, "main/28_long_stream_during_erase", "completions"),
        (TRANSFORMERS, "main/09_completions_stream_usage", "completions"),
    ],
)
def test_of_a_long_stream_only_the_ends_are_parsed(
    engine: str, name: str, route: Route, read_events: list[object]
) -> None:
    pieces = by_event(capture(engine, name).body)
    decode(pieces, route, skim=True, engine=ENGINE_OF[engine], limit=EVENT_BYTES_MAX)
    assert 2 <= len(read_events) <= 3 < len(pieces)


def test_several_events_in_a_read_are_skimmed_as_well(read_events: list[object]) -> None:
    events = [piece for _, piece in by_event(capture(SGLANG_23, "incremental/02_first").body)]
    pieces = [(n + 1, b"".join(events[n : n + 4])) for n in range(0, len(events), 4)]
    decode(pieces, "generate", skim=True, limit=EVENT_BYTES_MAX)
    # the first read, and the last
    assert len(read_events) <= 4 + 4


def test_a_stream_whose_reads_never_end_with_an_event_is_skimmed_as_well(read_events: list[object]) -> None:
    body = capture(SGLANG_23, "main/37_long_stream_during_flush").body
    ends = [at + 2 for at in range(len(body)) if body.startswith(b"\n\n", at)]
    pieces = cut_at(body, [end + 7 for end in ends[:-1]])
    decode(pieces, "generate", skim=True, limit=EVENT_BYTES_MAX)
    assert 2 <= len(read_events) <= 4 < len(pieces)


@given(st.lists(st.sampled_from([b"\n", b"\n\n", b"data: x", b"\r"])))
def test_events_are_found_where_the_two_byte_search_finds_them(parts: list[bytes]) -> None:
    block = b"".join(parts)
    assert last_event_end(block) == (block.rindex(b"\n\n") + 2 if b"\n\n" in block else 0)
    *events, _rest = block.split(b"\n\n")
    assert list(split_events(block)) == [event + b"\n\n" for event in events]


def test_a_chat_is_never_skimmed() -> None:
    shape = RequestShape(route="chat", input_tokens=1, output_tokens=1)
    for engine in ENGINES.values():
        assert isinstance(engine.decoder(shape, event_bytes_max=4096, skim=True), StreamDecoder)


# Streams made by hand

DONE = b"data: [DONE]\n\n"


def event(message: object) -> bytes:
    return b"data: " + orjson.dumps(message) + b"\n\n"


def generated(count: object, text: str = "x", finish: object = None, **more: object) -> bytes:
    meta = {"finish_reason": finish, "prompt_tokens": 5, "completion_tokens": count, "cached_tokens": 0, **more}
    return event({"text": text, "output_ids": [7], "meta_info": meta})


def completed(text: str | None = "x", finish: str | None = None, count: int | None = None) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    usage = None if count is None else {"prompt_tokens": 5, "completion_tokens": count}
    return event({"id": "a", "choices": [choice], "usage": usage})


USAGE = event({"id": "a", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}})
ENGINE_STOPPED = event({"error": {"message": "engine stopped", "type": "Error", "param": None, "code": 500}})


def reads(*data: bytes) -> Pieces:
    return [(10 * number, piece) for number, piece in enumerate(data, 1)]


def tokens(answer: Answer) -> int:
    return sum(count or 0 for count in answer.chunk_tokens)


@pytest.mark.parametrize("after", [(), (DONE,), (USAGE, DONE), (completed(),) * 20])
def test_o_s5_an_error_after_tokens_is_found(after: tuple[bytes, ...]) -> None:
    answer = both(reads(*[completed()] * 8, ENGINE_STOPPED, *after), "completions")
    assert (answer.error_class, answer.error_message) == ("engine_500", "engine stopped")


def test_o_s5_an_error_comes_first() -> None:
    answer = both(reads(ENGINE_STOPPED, DONE), "completions")
    assert (answer.error_class, answer.output_tokens) == ("engine_500", 0)


@pytest.mark.parametrize("before", [0, 8])
@pytest.mark.parametrize("after", [(), (DONE,), tuple(generated(n) for n in range(9, 20))])
def test_o_s5_an_error_in_a_string_is_found(before: int, after: tuple[bytes, ...]) -> None:
    many = [generated(n + 1) for n in range(before)]
    answer = both(reads(*many, b'data: {"error":"queue full"}\n\n', *after), "generate")
    assert (answer.error_class, answer.error_message) == ("engine_error", "queue full")


def test_an_error_with_text_from_a_server_without_finish_reasons_is_found() -> None:
    plain = event({"choices": [{"index": 0, "text": "x"}]})
    error = event({"error": {"message": "stopped", "text": "x"}})
    answer = both(reads(*[plain] * 4, error, *[plain] * 4, DONE), "completions")
    assert (answer.error_message, answer.output_tokens) == ("stopped", 8)


@pytest.mark.parametrize("after", [0, 9])
def test_an_abort_is_found_however_much_follows(after: int) -> None:
    abort = generated(0, "", {"type": "abort", "message": "Aborted", "status_code": 503})
    many = [generated(n) for n in range(1, 9)]
    answer = both(reads(*many, abort, *[DONE] * after), "generate")
    assert (answer.error_class, answer.finish_reason, answer.output_tokens) == ("engine_503", "abort", 8)
    answer = both(reads(*[completed()] * 9, completed("", "abort"), *[completed()] * after), "completions")
    assert answer.error_class == "engine_error"


@pytest.mark.parametrize("route", ["generate", "completions"])
def test_an_end_that_many_reads_of_comments_follow_is_an_end(route: Route) -> None:
    if route == "generate":
        end = [*(generated(n) for n in range(1, 9)), generated(9, finish={"type": "length"})]
    else:
        end = [*[completed()] * 8, completed("x", "length"), USAGE]
    answer = both(reads(*end, DONE, *[b": ping\n\n"] * 20), route)
    assert (answer.done_marker, answer.finish_reason, answer.output_tokens) == (True, "length", 9)
    answer = both(reads(*[piece for data in (*end, DONE) for piece in (b": ping\n\n", data)]), route)
    assert (answer.done_marker, answer.finish_reason, answer.output_tokens) == (True, "length", 9)


def test_a_stream_without_its_end_marker_but_with_a_finish_reason_is_whole() -> None:
    answer = both(reads(*(generated(n) for n in range(1, 9)), generated(9, finish="length")), "generate")
    assert (answer.error_class, answer.done_marker, answer.output_tokens) == (None, False, 9)


def test_a_stream_without_any_end_is_broken() -> None:
    for route, events in (
        ("generate", [generated(n) for n in range(1, 9)]),
        ("completions", [completed()] * 8),
    ):
        answer = both(reads(*events), route)  # type: ignore[arg-type]
        assert (answer.error_class, answer.output_tokens) == ("broken_stream", 8)


def test_comments_and_other_fields_between_events_count_for_nothing() -> None:
    odd = b'id: 3\nevent: message\ndata: {"meta_info":{"completion_tokens":4,"finish_reason":null}}\n: b\n\n'
    answer = both(
        reads(generated(1), b": ping\n\n", generated(2), b"\n", b": a\n\n" + generated(3) + b": b\n\n", odd, DONE),
        "generate",
    )
    assert (answer.events, answer.chunk_tokens, answer.chunk_ns) == (4, [1, 1, 1, 1], [10, 30, 50, 60])


def test_several_tokens_in_an_event_are_counted_as_the_server_does() -> None:
    answer = both(reads(*(generated(n) for n in (1, 5, 9, 12)), DONE), "generate")
    assert (answer.chunk_tokens, answer.output_tokens) == ([1, 4, 4, 3], 12)


def test_tokens_after_a_retraction_are_not_counted_twice() -> None:
    """The server begins anew and repeats what it had sent."""
    counts = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7]
    events = [generated(n, num_retractions=int(k >= 5)) for k, n in enumerate(counts)]
    answer = both(reads(*events, generated(8, finish="length", num_retractions=1), DONE), "generate")
    assert (tokens(answer), answer.output_tokens, answer.retractions) == (8, 8, 1)
    assert answer.chunk_ns == [10, 20, 30, 40, 50, 110, 120, 130]


def test_continuous_usage_gives_the_tokens_of_each_chunk() -> None:
    """Tokens that do not make a character yet come with the next text."""
    events = [completed("x", count=1), completed("x", count=3), completed("", count=4), completed("x", count=6)]
    answer = both(
        reads(completed("", count=0), *events, *[completed("x", count=n) for n in (7, 8)]), "completions"
    )
    assert answer.chunk_tokens == [1, 2, 3, 1, 1]
    odd = [completed("x", count=n) for n in (1, 2, 2, 1, 3, 4)]
    assert both(reads(*odd), "completions").chunk_tokens == [1, 1, 0, None, 2, 1]


def test_a_read_that_brings_the_first_text_and_more_counts_keeps_them_apart() -> None:
    first = completed("x", count=1) + completed("", count=2)
    assert both(reads(first, completed("x", count=3), completed("x", count=4)), "completions").chunk_tokens == [
        1,
        2,
        1,
    ]


def test_usage_that_stops_or_begins_in_the_middle() -> None:
    stops = [completed("x", count=1), completed("x", count=2), *[completed()] * 4]
    assert both(reads(*stops, DONE), "completions").chunk_tokens == [1, 1, None, None, None, None]
    begins = [*[completed()] * 4, *(completed(count=n) for n in (5, 6)), DONE]
    answer = both(reads(*begins), "completions")
    assert (answer.chunk_tokens, answer.output_tokens) == ([None] * 5 + [1], 6)


@pytest.mark.parametrize("text", ["", None])
def test_completions_events_without_text_are_no_chunks(text: str | None) -> None:
    answer = both(reads(*[completed(), completed(text)] * 6, completed("", "stop"), DONE), "completions")
    assert (len(answer.chunk_ns), answer.events) == (6, 13)


def test_generate_events_without_counts_are_chunks_of_unknown_size() -> None:
    bare = event({"text": "x", "meta_info": {"finish_reason": None}})
    answer = both(reads(*[bare] * 6, DONE), "generate")
    assert (answer.chunk_tokens, answer.tokens_source) == ([None] * 6, "estimated")
    answer = both(reads(generated(1), generated(2), bare, generated(4), DONE), "generate")
    assert (answer.chunk_tokens, answer.output_tokens) == ([1, 1, None, 2], 4)


@pytest.mark.parametrize("count", ["null", "-1", "2.0", "2e1", '"2"', "[2]", "true", "9" * 5000])
def test_a_count_that_is_no_whole_number_is_read_as_ever(count: str) -> None:
    odd = b'data: {"text":"x","meta_info":{"finish_reason":null,"completion_tokens":%b}}\n\n' % count.encode()
    both(reads(generated(1), odd, generated(3), generated(4), DONE), "generate")
    usage = b'{"prompt_tokens":5,"completion_tokens":%b}' % count.encode()
    odd = b'data: {"choices":[{"text":"x","finish_reason":null}],"usage":%b}\n\n' % usage
    both(reads(completed(count=1), odd, completed(count=3), completed(count=4), DONE), "completions")


NASTY = [
    '"completion_tokens":7',
    '\\"completion_tokens":7,',
    '\n\ndata: {"meta_info":{"completion_tokens":99}}\n\n',
    "data: [DONE]",
    '"error":{"message":"no","code":500}',
    '"finish_reason":"abort"',
    '"finish_reason":null',
    '"text":"","finish_reason":{"type":"abort"}',
    '","text":""',
    "\\",
    '\\"',
    "\r\n\r\n",
    "\u2028\x85\x00",
]


@pytest.mark.parametrize("text", NASTY)
def test_generated_text_is_never_taken_for_the_protocol(text: str) -> None:
    answer = both(
        reads(*(generated(n, text) for n in range(1, 7)), generated(7, text, "length"), DONE), "generate"
    )
    assert (answer.output_tokens, tokens(answer), answer.events, answer.error_class) == (7, 7, 7, None)
    for counts in ([None] * 6, range(1, 7)):
        events = [completed(text, count=count) for count in counts]
        answer = both(reads(*events, completed(text, "length"), USAGE, DONE), "completions")
        assert (len(answer.chunk_ns), answer.output_tokens, answer.error_class) == (7, 9, None)


@pytest.mark.parametrize("text", NASTY)
def test_keys_that_are_generated_text_are_never_taken_for_the_protocol(text: str) -> None:
    """`top_logprobs` has the candidates for keys."""
    logprobs = {"top_logprobs": [{text: -0.5, "text": -1.0, "completion_tokens": -2.0, "finish_reason": -3.0}]}
    for counts in ([None] * 6, range(1, 7)):
        events = []
        for count in counts:
            choice = {"index": 0, "text": "x", "logprobs": logprobs, "finish_reason": None}
            usage = None if count is None else {"prompt_tokens": 5, "completion_tokens": count}
            events.append(event({"choices": [choice], "usage": usage}))
        answer = both(reads(*events, completed("", "length"), DONE), "completions")
        assert (len(answer.chunk_ns), answer.error_class) == (6, None)
        assert tokens(answer) == (0 if counts == [None] * 6 else 6)


def test_the_text_of_a_skimmed_stream_is_not_called_complete_unless_the_last_event_repeats_it() -> None:
    short = [generated(n, chr(96 + n)) for n in range(1, 7)]
    assert both(reads(*short, DONE), "generate").text_complete is False
    assert both(reads(*[completed()] * 6, DONE), "completions").text_complete is False
    long = [
        event(
            {"text": "x" * n, "output_ids": [7] * n, "meta_info": {"completion_tokens": n, "finish_reason": end}}
        )
        for n, end in zip(range(1, 7), [None] * 5 + ["length"], strict=True)
    ]
    answer = both(reads(*long, DONE), "generate")
    assert (answer.text, answer.text_complete) == ("x" * 6, True)
    assert both(reads(completed(), DONE), "completions").text_complete is True


# Framing


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
def test_other_line_ends_are_read_in_full(line_end: bytes) -> None:
    events = [generated(n).replace(b"\n", line_end) for n in range(1, 9)]
    assert both(reads(*events, DONE), "generate").output_tokens == 8
    plain = [generated(n) for n in range(1, 5)]
    answer = both(reads(*plain, *events[4:], DONE), "generate")
    assert (answer.output_tokens, answer.chunk_ns) == (8, [10 * n for n in range(1, 9)])


@pytest.mark.parametrize("number", [0, 1, 2, 5, 7])
@pytest.mark.parametrize("piece_bytes", [100, 1000, 100_000])
@pytest.mark.parametrize("together", [False, True])
def test_o_n3_an_event_over_the_limit_ends_what_is_read(number: int, piece_bytes: int, together: bool) -> None:
    events = [generated(n, "y" * 5000 if n == number + 1 else "x") for n in range(1, 9)]
    whole = [b"".join(events[:3]), *events[3:]] if together else events
    pieces = [data[at : at + piece_bytes] for data in (*whole, DONE) for at in range(0, len(data), piece_bytes)]
    answer = both(reads(*pieces), "generate", limit=4096)
    assert (answer.error_class, answer.output_tokens or 0) == ("event_too_large", number)


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_o_n3_an_event_at_the_limit_is_read(excess: int) -> None:
    large = generated(4, "y" * 2000)
    limit = len(large) - 2 - excess
    for pieces in (
        reads(*(generated(n) for n in range(1, 4)), large, generated(5), DONE),
        reads(*(generated(n) for n in range(1, 4)), large[:700], large[700:], generated(5), DONE),
    ):
        answer = both(pieces, "generate", limit=limit)
        assert (answer.error_class == "event_too_large") is (excess == 1)


def test_a_blank_line_across_two_reads_ends_its_event_with_the_second() -> None:
    first, second, third = generated(1), generated(2), generated(3)
    answer = both(reads(first, second[:-1], second[-1:] + third[:9], third[9:], DONE), "generate")
    assert (answer.chunk_ns, answer.chunk_tokens) == ([10, 30, 40], [1, 1, 1])


def test_json_with_spaces_is_read_in_full() -> None:
    def spaced(message: object) -> bytes:
        return b"data: " + json.dumps(message).encode() + b"\n\n"

    many = [
        spaced({"text": "x", "meta_info": {"completion_tokens": n, "finish_reason": None}}) for n in range(1, 9)
    ]
    assert both(reads(*many, DONE), "generate").chunk_tokens == [1] * 8
    other = [spaced({"choices": [{"text": "x" * (n % 2), "finish_reason": None}]}) for n in range(1, 9)]
    assert len(both(reads(*other, DONE), "completions").chunk_ns) == 4


# Any stream

TEXTS = st.one_of(st.sampled_from(NASTY), st.text(max_size=4), st.just("x"))
COMMENTS = st.sampled_from([b": ping\n\n", b"\n", b"id: 1\n\n", b"retry: 5\n\n", b"data:\n\n"])
OTHERS = st.sampled_from(
    [
        DONE,
        ENGINE_STOPPED,
        USAGE,
        b"data: {\n\n",
        b"data: 5\n\n",
        b'data: {"error":"queue full"}\n\n',
        b'data: {"error":null}\n\n',
        b'data: {"object":"error","message":"m","code":400}\n\n',
        b'data: {"choices":[{"index":0,\ndata: "text":"x","finish_reason":null}]}\n\n',
        b'id: 4\ndata: {"choices":[{"index":0,"text":"x","finish_reason":null}]}\n\n',
        b'data: {"choices":[{"text":"a","finish_reason":null},{"text":"b","finish_reason":null}]}\n\n',
    ]
)


@st.composite
def generate_streams(draw: st.DrawFn) -> bytes:
    incremental = draw(st.booleans())
    events: list[bytes] = []
    text, count = "", 0
    ids: list[int] = []
    for _ in range(draw(st.integers(0, 12))):
        added = draw(st.sampled_from([0, 1, 1, 1, 1, 3, -1]))
        count = max(0, count + added)
        new, new_ids = draw(TEXTS) if added > 0 else "", [7] * max(0, added)
        text, ids = text + new, [*ids, *new_ids]
        finish = draw(st.sampled_from([None, None, None, None, {"type": "length"}, {"type": "abort"}, "stop"]))
        meta: dict[str, Any] = {"id": "a", "finish_reason": finish, "prompt_tokens": 5}
        if draw(st.integers(0, 9)):
            meta["completion_tokens"] = count
        shown = (new, new_ids) if incremental else (text, ids)
        events.append(event({"text": shown[0], "output_ids": shown[1], "meta_info": meta}))
        if not draw(st.integers(0, 4)):
            events.append(draw(st.one_of(COMMENTS, OTHERS)))
    return b"".join(events) + draw(st.sampled_from([b"", DONE, DONE + b": ping\n\n", b"data: {"]))


@st.composite
def completions_streams(draw: st.DrawFn) -> bytes:
    continuous, finishes = draw(st.booleans()), draw(st.booleans())
    events: list[bytes] = []
    count = 0
    for _ in range(draw(st.integers(0, 12))):
        count += draw(st.sampled_from([0, 1, 1, 1, 3]))
        choice: dict[str, Any] = {"index": 0, "text": draw(TEXTS), "logprobs": None}
        if finishes:
            choice["finish_reason"] = draw(st.sampled_from([None, None, None, "length", "abort"]))
        message: dict[str, Any] = {"id": "a", "choices": [choice]}
        if continuous and draw(st.integers(0, 9)):
            message["usage"] = {"prompt_tokens": 5, "completion_tokens": count}
        events.append(event(message))
        if not draw(st.integers(0, 4)):
            events.append(draw(st.one_of(COMMENTS, OTHERS)))
    return b"".join(events) + draw(st.sampled_from([b"", USAGE + DONE, DONE, b"data: {"]))


@st.composite
def cuts_of(draw: st.DrawFn, body: bytes) -> Pieces:
    """Whole events mostly, as servers send them, or anything."""
    ends = [at + 2 for at in range(len(body)) if body.startswith(b"\n\n", at)]
    anywhere = st.integers(0, len(body))
    cuts = draw(st.lists(st.sampled_from(ends) if ends else anywhere, max_size=20))
    cuts += draw(st.lists(anywhere, max_size=4))
    if draw(st.booleans()):
        cuts += ends
    return [piece for piece in cut_at(body, sorted(set(cuts))) if piece[1]]


@given(st.data(), st.booleans(), st.sampled_from([EVENT_BYTES_MAX, EVENT_BYTES_MAX, 220]))
def test_any_generate_stream_is_skimmed_as_it_is_read(data: st.DataObject, complete: bool, limit: int) -> None:
    body = data.draw(generate_streams())
    read = decode(pieces := data.draw(cuts_of(body)), "generate", skim=False, complete=complete, limit=limit)
    skimmed = decode(pieces, "generate", skim=True, complete=complete, limit=limit)
    assert facts(skimmed) == facts(read)


@given(st.data(), st.booleans(), st.sampled_from([EVENT_BYTES_MAX, EVENT_BYTES_MAX, 120]))
def test_any_completions_stream_is_skimmed_as_it_is_read(data: st.DataObject, complete: bool, limit: int) -> None:
    body = data.draw(completions_streams())
    pieces = data.draw(cuts_of(body))
    read = decode(pieces, "completions", skim=False, complete=complete, limit=limit)
    skimmed = decode(pieces, "completions", skim=True, complete=complete, limit=limit)
    assert facts(skimmed) == facts(read)
