"""Answers of real engines, replayed: the numbers in them, however the bytes are cut."""

from __future__ import annotations

import random

import pytest
from engine_captures import (
    EVENT_BYTES_MAX,
    LLAMACPP,
    SGLANG_9,
    SGLANG_17,
    SGLANG_23,
    TRANSFORMERS,
    VLLM,
    Capture,
    as_read,
    capture,
    decode,
    without_stamps,
)

from raybench.engines import ENGINES
from raybench.engines.contract import Answer, RequestShape
from raybench.scenario.schema import Route

ENGINE_OF = {
    SGLANG_23: "sglang",
    SGLANG_17: "sglang",
    SGLANG_9: "sglang",
    VLLM: "vllm",
    LLAMACPP: "llamacpp",
    TRANSFORMERS: "openai",
}
SGLANG_VERSIONS = [SGLANG_23, SGLANG_17, SGLANG_9]

STREAMS: list[tuple[str, str, Route]] = [
    *((engine, "main/11_generate_stream_ids", "generate") for engine in SGLANG_VERSIONS),
    *((engine, "main/28_cache_2_warm", "generate") for engine in SGLANG_VERSIONS),
    *((engine, "main/40_stream_client_closed", "generate") for engine in SGLANG_VERSIONS),
    *((engine, "main/43_error_too_long_stream", "generate") for engine in SGLANG_VERSIONS),
    *((engine, "incremental/02_first", "generate") for engine in SGLANG_VERSIONS),
    *((engine, "main/16_chat_stream_usage", "chat") for engine in SGLANG_VERSIONS),
    *((engine, "main/17_chat_stream_continuous_usage", "chat") for engine in SGLANG_VERSIONS),
    *((engine, "main/20_completions_stream_usage", "completions") for engine in SGLANG_VERSIONS),
    (SGLANG_23, "queue-limit/02_queue_4", "generate"),
    (SGLANG_9, "queue-limit/02_queue_6", "generate"),
    (SGLANG_17, "hicache-storage/05_after_flush", "generate"),
    (VLLM, "main/08_chat_stream_usage", "chat"),
    (VLLM, "main/09_chat_stream_continuous_usage", "chat"),
    (VLLM, "main/20_cache_2_warm", "completions"),
    (LLAMACPP, "main/06_chat_stream_usage", "chat"),
    (LLAMACPP, "main/18_cache_2_warm", "completions"),
    (TRANSFORMERS, "main/05_chat_stream_usage", "chat"),
    (TRANSFORMERS, "main/09_completions_stream_usage", "completions"),
]


def replay(
    engine: str,
    captured: Capture,
    route: Route,
    *,
    stream: bool = True,
    pieces: list[tuple[int, bytes]] | None = None,
    complete: bool = True,
) -> Answer:
    shape = RequestShape(route=route, input_tokens=1, output_tokens=1, stream=stream)
    decoder = ENGINES[ENGINE_OF[engine]].decoder(shape, event_bytes_max=EVENT_BYTES_MAX)
    return decode(decoder, as_read(captured) if pieces is None else pieces, complete=complete)


def cut_at(body: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    return [(a, body[a:b]) for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]


@pytest.mark.parametrize(("engine", "name", "route"), STREAMS)
def test_o_s1_an_answer_does_not_depend_on_where_reads_begin_and_end(engine: str, name: str, route: Route) -> None:
    captured = capture(engine, name)
    body = captured.body
    expected = without_stamps(replay(engine, captured, route, pieces=[(1, body)]))
    assert expected["bytes_received"] == len(body)
    assert without_stamps(replay(engine, captured, route)) == expected
    every_byte = cut_at(body, list(range(1, len(body))))
    assert without_stamps(replay(engine, captured, route, pieces=every_byte)) == expected
    chance = random.Random(name)
    for _ in range(5):
        cuts = sorted(chance.sample(range(len(body)), 12))
        assert without_stamps(replay(engine, captured, route, pieces=cut_at(body, cuts))) == expected


@pytest.mark.parametrize("engine", SGLANG_VERSIONS)
@pytest.mark.parametrize(
    ("name", "cached"),
    [
        ("main/27_cache_1_cold", 0),
        ("main/28_cache_2_warm", 999),
        ("main/31_cache_3_after_flush", 0),
        ("main/33_cache_4_half_shared", 500),
    ],
)
def test_sglang_reports_what_came_from_its_cache(engine: str, name: str, cached: int) -> None:
    answer = replay(engine, capture(engine, name), "generate")
    assert (answer.input_tokens, answer.output_tokens, answer.cached_tokens) == (1000, 4, cached)
    assert (answer.tokens_source, answer.finish_reason, answer.done_marker) == ("server", "length", True)
    assert (answer.error_class, answer.retractions, answer.chunk_tokens) == (None, 0, [1, 1, 1, 1])
    # 0.5.9 leaves its details null even for a hit.
    device = None if engine == SGLANG_9 and cached else cached
    assert answer.cached_tokens_device == device


@pytest.mark.parametrize("engine", SGLANG_VERSIONS)
def test_o_s2_incremental_streams_give_the_text_and_count_of_cumulative_ones(engine: str) -> None:
    long = replay(engine, capture(engine, "incremental/02_first"), "generate")
    short = replay(engine, capture(engine, "main/27_cache_1_cold"), "generate")
    assert (long.output_tokens, sum(tokens or 0 for tokens in long.chunk_tokens)) == (48, 48)
    assert long.text.startswith(short.text)
    assert len(long.text) > 3 * len(short.text)


def test_o_s2_half_a_thousand_cumulative_tokens_are_counted_once() -> None:
    answer = replay(SGLANG_23, capture(SGLANG_23, "main/37_long_stream_during_flush"), "generate")
    assert (answer.output_tokens, answer.events, answer.bytes_received) == (500, 496, 1_294_412)
    assert sum(tokens or 0 for tokens in answer.chunk_tokens) == 500


def test_o_t1_under_load_events_are_fewer_than_tokens() -> None:
    answer = replay(SGLANG_23, capture(SGLANG_23, "queue-limit/09_queue_0"), "generate")
    assert (answer.output_tokens, len(answer.chunk_ns), max(answer.chunk_tokens, key=lambda n: n or 0)) == (
        150,
        143,
        2,
    )


@pytest.mark.parametrize(
    ("engine", "seconds"), [(SGLANG_23, 0.195785), (SGLANG_17, 0.016097), (SGLANG_9, 0.182852)]
)
def test_the_first_token_is_stamped_by_the_read_that_brought_it(engine: str, seconds: float) -> None:
    answer = replay(engine, capture(engine, "main/11_generate_stream_ids"), "generate")
    assert answer.first_token_ns == round(seconds * 1e9)
    assert answer.engine_ttft_s is not None
    assert 0 < answer.engine_ttft_s < seconds


@pytest.mark.parametrize(
    ("engine", "name"), [(SGLANG_23, "queue-limit/02_queue_4"), (SGLANG_9, "queue-limit/02_queue_6")]
)
def test_o_s5_a_full_queue_is_a_failure_with_http_200(engine: str, name: str) -> None:
    captured = capture(engine, name)
    answer = replay(engine, captured, "generate")
    assert captured.status == 200
    assert (answer.error_class, answer.error_message) == ("engine_503", "The request queue is full.")
    assert (answer.output_tokens, answer.input_tokens, answer.first_token_ns) == (0, None, None)


@pytest.mark.parametrize(("engine", "tokens"), [(SGLANG_23, 137), (SGLANG_17, 314), (SGLANG_9, 101)])
def test_o_s5_an_aborted_stream_keeps_its_partial_tokens(engine: str, tokens: int) -> None:
    answer = replay(engine, capture(engine, "main/39_stream_aborted_by_rid"), "generate")
    assert (answer.error_class, answer.error_message) == ("engine_error", "Aborted")
    assert (answer.output_tokens, answer.finish_reason, answer.done_marker) == (tokens, "abort", True)


@pytest.mark.parametrize(
    ("engine", "error_class"), [(SGLANG_23, "engine_400"), (SGLANG_17, "engine_400"), (SGLANG_9, "engine_error")]
)
def test_o_s5_a_prompt_that_is_too_long_is_a_failure_with_http_200(engine: str, error_class: str) -> None:
    captured = capture(engine, "main/43_error_too_long_stream")
    answer = replay(engine, captured, "generate")
    assert captured.status == 200
    assert answer.error_class == error_class
    assert (answer.error_message or "").startswith("The input (32778 tokens) is longer")
    assert (answer.output_tokens, answer.tokens_source) == (0, "none")


@pytest.mark.parametrize(
    ("engine", "name", "route", "tokens", "source"),
    [
        (SGLANG_23, "main/40_stream_client_closed", "generate", 48, "server"),
        (VLLM, "main/28_stream_client_closed", "completions", 94, "estimated"),
        (LLAMACPP, "main/29_stream_client_closed", "completions", 95, "estimated"),
    ],
)
def test_a_stream_that_was_cut_is_broken(engine: str, name: str, route: Route, tokens: int, source: str) -> None:
    answer = replay(engine, capture(engine, name), route, complete=False)
    assert (answer.error_class, answer.output_tokens) == ("broken_stream", tokens)
    assert (answer.tokens_source, answer.finish_reason) == (source, None)


@pytest.mark.parametrize(
    ("name", "tiers"),
    [("hicache-storage/05_after_flush", (0, 0, 1984)), ("hicache/11_again_after_eviction", (0, 1984, None))],
)
def test_cached_tokens_of_the_lower_tiers_are_named(name: str, tiers: tuple[int, int, int | None]) -> None:
    answer = replay(SGLANG_17, capture(SGLANG_17, name), "generate")
    found = (answer.cached_tokens_device, answer.cached_tokens_host, answer.cached_tokens_storage)
    assert (answer.cached_tokens, found) == (1984, tiers)


def test_speculative_decoding_reports_its_accept_length() -> None:
    answer = replay(SGLANG_17, capture(SGLANG_17, "spec/02_first"), "generate")
    assert answer.accept_length == pytest.approx(48 / 45)


def test_data_parallel_ranks_are_named() -> None:
    answer = replay(SGLANG_23, capture(SGLANG_23, "dp2/repeat/02_first"), "generate")
    assert answer.dp_rank in (0, 1)


@pytest.mark.parametrize(
    ("engine", "name", "source"),
    [
        *((engine, "main/16_chat_stream_usage", "server") for engine in SGLANG_VERSIONS),
        *((engine, "main/17_chat_stream_continuous_usage", "server") for engine in SGLANG_VERSIONS),
        *((engine, "main/18_chat_stream_no_usage", "estimated") for engine in SGLANG_VERSIONS),
        (VLLM, "main/08_chat_stream_usage", "server"),
        (VLLM, "main/09_chat_stream_continuous_usage", "server"),
        (VLLM, "main/10_chat_stream_no_usage", "estimated"),
        (LLAMACPP, "main/06_chat_stream_usage", "server"),
        # llama.cpp's `timings` count even when no usage was asked for.
        (LLAMACPP, "main/08_chat_stream_no_usage", "server"),
        (TRANSFORMERS, "main/05_chat_stream_usage", "server"),
    ],
)
def test_o_s3_chat_streams_of_all_engines_have_eight_tokens(engine: str, name: str, source: str) -> None:
    answer = replay(engine, capture(engine, name), "chat")
    assert (answer.output_tokens, answer.tokens_source) == (8, source)
    assert answer.input_tokens == (None if source == "estimated" else 23)
    assert (answer.error_class, answer.finish_reason, answer.no_answer_text) == (None, "length", False)
    assert answer.done_marker is (engine != TRANSFORMERS)
    assert answer.first_event_ns is not None
    assert answer.first_token_ns is not None
    assert answer.first_event_ns <= answer.first_token_ns
    if "continuous" in name:
        assert sum(tokens or 0 for tokens in answer.chunk_tokens) == 8


def test_o_s3_the_role_chunk_of_a_slow_prefill_is_not_the_first_token() -> None:
    answer = replay(TRANSFORMERS, capture(TRANSFORMERS, "main/05_chat_stream_usage"), "chat")
    assert (answer.first_event_ns, answer.first_token_ns) == (14_708_000, 16_737_247_000)


@pytest.mark.parametrize(
    ("engine", "name", "cached"),
    [
        (VLLM, "main/19_cache_1_cold", 0),
        (VLLM, "main/20_cache_2_warm", 896),
        (VLLM, "main/23_cache_3_after_reset", 0),
        (LLAMACPP, "main/17_cache_1_cold", 0),
        (LLAMACPP, "main/18_cache_2_warm", 999),
        (LLAMACPP, "main/24_cache_3_after_erase", 0),
    ],
)
def test_completions_report_what_came_from_the_cache(engine: str, name: str, cached: int) -> None:
    answer = replay(engine, capture(engine, name), "completions")
    assert (answer.input_tokens, answer.output_tokens, answer.cached_tokens) == (1000, 4, cached)
    assert answer.error_class is None


@pytest.mark.parametrize(("engine", "cached"), [(SGLANG_23, 0), (SGLANG_17, None), (SGLANG_9, None)])
def test_o_p4_versions_differ_in_how_they_report_a_miss(engine: str, cached: int | None) -> None:
    answer = replay(engine, capture(engine, "main/16_chat_stream_usage"), "chat")
    assert answer.cached_tokens == cached


@pytest.mark.parametrize(
    ("engine", "name", "route", "input_tokens"),
    [
        *((engine, "main/13_generate_plain_ids", "generate", 100) for engine in SGLANG_VERSIONS),
        *((engine, "main/19_chat_plain", "chat", 23) for engine in SGLANG_VERSIONS),
        *((engine, "main/22_completions_plain", "completions", 10) for engine in SGLANG_VERSIONS),
        (VLLM, "main/11_chat_plain", "chat", 23),
        (VLLM, "main/14_completions_plain", "completions", 10),
        (LLAMACPP, "main/09_chat_plain", "chat", 23),
        (LLAMACPP, "main/12_completions_plain", "completions", 10),
        (TRANSFORMERS, "main/08_chat_plain", "chat", 23),
        (TRANSFORMERS, "main/11_completions_plain", "completions", 10),
    ],
)
def test_bodies_that_are_not_streamed_are_read(engine: str, name: str, route: Route, input_tokens: int) -> None:
    answer = replay(engine, capture(engine, name), route, stream=False)
    assert (answer.input_tokens, answer.output_tokens, answer.finish_reason) == (input_tokens, 8, "length")
    assert (answer.error_class, answer.first_token_ns) == (None, None)
    assert len(answer.text) > 10


def test_greedy_answers_of_three_engines_are_the_same_text() -> None:
    texts = {
        replay(engine, capture(engine, name), "chat", stream=False).text
        for engine, name in (
            (SGLANG_23, "main/19_chat_plain"),
            (VLLM, "main/11_chat_plain"),
            (TRANSFORMERS, "main/08_chat_plain"),
        )
    }
    assert texts == {"orwlest;eanteler weapend daplir00"}
