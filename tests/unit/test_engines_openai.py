"""The OpenAI routes: what counts as a token, as an error, as a cached-token report."""

from __future__ import annotations

import asyncio
import json

import pytest
from engine_captures import EVENT_BYTES_MAX, FIVE_WRITES, FakeHttp, decode

from raybench.engines import ENGINES
from raybench.engines.contract import Answer, Reply, RequestShape, ToolCall
from raybench.errors import ConfigError

CHAT = RequestShape(route="chat", input_tokens=9, output_tokens=3, model="m")
COMPLETIONS = RequestShape(route="completions", input_tokens=9, output_tokens=3, model="m")
OPENAI = ENGINES["openai"]
S = 1_000_000_000


def timed(*events: tuple[float, object]) -> list[tuple[int, bytes]]:
    """(seconds, message) -> reads; a string stands for itself."""
    return [(round(t * S), f"data: {m if isinstance(m, str) else json.dumps(m)}\n\n".encode()) for t, m in events]


def answer_of(*events: tuple[float, object], complete: bool = True) -> Answer:
    decoder = OPENAI.decoder(CHAT, event_bytes_max=EVENT_BYTES_MAX)
    return decode(decoder, timed(*events), complete=complete)


def delta(finish_reason: str | None = None, /, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def text(value: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "text": value}]}


def usage(**fields: object) -> dict[str, object]:
    return {"choices": [], "usage": fields}


def test_o_s1_three_tokens_and_their_exact_text_from_five_writes() -> None:
    whole = b"".join(FIVE_WRITES)
    for reads in (FIVE_WRITES, [whole], [whole[i : i + 1] for i in range(len(whole))]):
        decoder = OPENAI.decoder(COMPLETIONS, event_bytes_max=EVENT_BYTES_MAX)
        answer = decode(decoder, list(enumerate(reads, start=1)))
        assert (answer.text, len(answer.text), len(answer.chunk_ns)) == ("a b ", 4, 3)
        assert (answer.error_class, answer.done_marker, answer.events) == (None, True, 3)
        assert (answer.output_tokens, answer.tokens_source) == (3, "estimated")
        assert answer.bytes_received == len(whole)


def test_o_s3_role_chunk_empty_delta_and_usage_chunk_are_not_tokens() -> None:
    answer = answer_of(
        (0.9, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
        (2.2, delta(content="x")),
        (2.3, delta(content="y")),
        (2.4, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        (2.5, usage(prompt_tokens=9, completion_tokens=2, total_tokens=11)),
        (2.6, "[DONE]"),
    )
    assert (answer.first_event_ns, answer.first_token_ns, answer.last_token_ns) == (0.9 * S, 2.2 * S, 2.3 * S)
    assert (answer.input_tokens, answer.output_tokens, answer.tokens_source) == (9, 2, "server")
    assert (answer.error_class, answer.text, answer.no_answer_text) == (None, "xy", False)
    assert answer.chunk_tokens == [None, None]


@pytest.mark.parametrize(
    "names", [("reasoning_content",), ("reasoning",), ("reasoning_content", "reasoning")], ids="+".join
)
def test_o_s4_reasoning_counts_under_either_name_and_once(names: tuple[str, ...]) -> None:
    deltas = [(t, delta(**dict.fromkeys(names, letter))) for t, letter in ((1.0, "a"), (1.1, "a"), (1.2, "a"))]
    answer = answer_of(
        *deltas, (1.3, delta("length", content=None)), (1.4, usage(completion_tokens=3)), (1.5, "[DONE]")
    )
    assert (answer.first_token_ns, answer.last_token_ns) == (1.0 * S, 1.2 * S)
    assert (answer.output_tokens, len(answer.chunk_ns)) == (3, 3)
    assert (answer.error_class, answer.no_answer_text, answer.text) == (None, True, "")


def test_o_s4_a_tool_call_is_a_token_and_an_answer() -> None:
    call = [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]
    answer = answer_of((1, delta(content=None, tool_calls=call)), (2, delta("tool_calls")), (3, "[DONE]"))
    assert (answer.first_token_ns, answer.no_answer_text) == (1 * S, False)


def test_a_tool_call_is_put_together_from_its_pieces_whatever_number_the_server_gives_it() -> None:
    pieces = [
        {"index": 1, "function": {"name": "f", "arguments": ""}},
        {"index": -1, "function": {"name": "g", "arguments": "{}"}},
        {"index": 1, "function": {"arguments": '{"a":'}},
        {"index": 1, "function": {"arguments": "1}"}},
        {"function": {"name": "h"}},
    ]
    events = [(number, delta(content=None, tool_calls=[piece])) for number, piece in enumerate(pieces, 1)]
    answer = answer_of(*events, (9, "[DONE]"))
    assert answer.tool_calls == [ToolCall("f", '{"a":1}'), ToolCall("g", "{}"), ToolCall("h")]


def test_o_s5_an_error_event_after_two_chunks_keeps_their_count() -> None:
    error = {"message": "engine stopped", "type": "InternalServerError", "param": None, "code": 500}
    answer = answer_of((1, delta(content="a")), (2, delta(content="b")), (3, {"error": error}), (4, "[DONE]"))
    assert (answer.error_class, answer.error_message) == ("engine_500", "engine stopped")
    assert answer.output_tokens == 2


def test_o_s5_an_error_event_first_has_no_tokens() -> None:
    error = {"message": "engine stopped", "type": "InternalServerError", "param": None, "code": 500}
    answer = answer_of((1, {"error": error}), (2, "[DONE]"))
    assert (answer.error_class, answer.error_message) == ("engine_500", "engine stopped")
    assert (answer.output_tokens, answer.first_token_ns) == (0, None)


def test_o_s5_legal_events_without_tokens_are_no_errors() -> None:
    answer = answer_of(
        (1, {"choices": [], "prompt_filter_results": []}),
        (2, {"choices": None, "error": None, "usage": None}),
        (3, delta("stop", content="a")),
        (4, "[DONE]"),
    )
    assert (answer.error_class, len(answer.chunk_ns)) == (None, 1)


def test_o_s5_a_finish_reason_of_abort_is_an_engine_error() -> None:
    assert answer_of((1, delta("abort", content="a")), (2, "[DONE]")).error_class == "engine_error"


def test_a_code_that_is_a_word_leaves_the_class_general() -> None:
    answer = answer_of((1, {"error": {"message": "full", "code": "server_overloaded"}}))
    assert (answer.error_class, answer.error_message) == ("engine_error", "full")


def test_the_end_needs_a_finish_reason_or_done() -> None:
    assert answer_of((1, delta(content="a"))).error_class == "broken_stream"
    without_marker = answer_of((1, delta("stop", content="a")))
    assert (without_marker.error_class, without_marker.done_marker) == (None, False)
    assert answer_of((1, delta("stop", content="a")), complete=False).error_class == "broken_stream"


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ({}, None),
        ({"prompt_tokens_details": None}, None),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": 4095}}, 4095),
    ],
)
def test_o_p4_cached_tokens_that_are_not_reported_are_unknown(
    details: dict[str, object], cached: int | None
) -> None:
    last = usage(prompt_tokens=4096, completion_tokens=8, **details)
    answer = answer_of((1, delta("length", content="a")), (2, last), (3, "[DONE]"))
    assert (answer.cached_tokens, answer.input_tokens) == (cached, 4096)


def test_sglangs_tiers_of_cached_tokens_stand_in_for_a_missing_count() -> None:
    tiers = {"choices": [], "sglext": {"cached_tokens_details": {"device": 100, "host": 28}}}
    last = usage(prompt_tokens=200, completion_tokens=1, prompt_tokens_details=None)
    answer = answer_of((1, delta("length", content="a")), (2, tiers), (3, last), (4, "[DONE]"))
    assert (answer.cached_tokens, answer.cached_tokens_device, answer.cached_tokens_host) == (128, 100, 28)
    assert answer.cached_tokens_storage is None


def test_vllms_request_metrics_count_from_arrival() -> None:
    metrics = {
        "queue_time_ms": 1500.0,
        "time_to_first_token_ms": 500.0,
        "speculative_decoding": {"mean_acceptance_length": 2.5},
    }
    last = usage(prompt_tokens=9, completion_tokens=1) | {"metrics": metrics}
    answer = answer_of((1, delta("length", content="a")), (2, last), (3, "[DONE]"))
    assert (answer.engine_queue_s, answer.engine_ttft_s, answer.accept_length) == (1.5, 2.0, 2.5)


def test_o_t1_a_running_count_gives_the_tokens_of_each_chunk() -> None:
    def counted(tokens: int, **fields: object) -> dict[str, object]:
        return delta(**fields) | {"usage": {"prompt_tokens": 9, "completion_tokens": tokens}}

    answer = answer_of(
        (1, counted(0, role="assistant", content="")),
        (2, counted(2, content="ab")),
        (3, counted(3, content="")),
        (4, counted(6, content="cdef")),
        (5, delta("length")),
        (6, "[DONE]"),
    )
    assert answer.chunk_tokens == [2, 4]
    assert (answer.output_tokens, answer.tokens_source) == (6, "server")


def test_o_t1_a_total_on_the_last_chunk_is_not_taken_for_the_tokens_of_that_chunk() -> None:
    last = delta("length", content="b") | {"usage": {"prompt_tokens": 9, "completion_tokens": 7}}
    answer = answer_of((1, delta(content="a")), (2, last), (3, "[DONE]"))
    assert (answer.chunk_tokens, answer.output_tokens) == ([None, None], 7)


def test_a_server_without_usage_gives_an_estimate_that_says_so() -> None:
    answer = answer_of((1, delta(content="a")), (2, delta("stop", content="b")), (3, "[DONE]"))
    assert (answer.output_tokens, answer.tokens_source, answer.input_tokens) == (2, "estimated", None)


def test_comments_and_odd_fields_do_not_count_as_the_first_event() -> None:
    decoder = OPENAI.decoder(CHAT, event_bytes_max=EVENT_BYTES_MAX)
    decoder.feed(b": keep-alive\n\n", 1)
    decoder.feed(b'event: message\nid: 1\ndata: {"choices":[{"text":"a","finish_reason":"stop"}]}\n\n', 2)
    answer = decoder.finish(complete=True)
    assert (answer.first_event_ns, answer.events, answer.error_class) == (2, 1, None)


def test_a_chat_body_that_is_not_streamed_is_read_whole() -> None:
    shape = RequestShape(route="chat", input_tokens=9, output_tokens=3, stream=False)
    message = {"role": "assistant", "content": None, "reasoning": "hm"}
    body = {
        "choices": [{"message": message, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
    }
    decoder = OPENAI.decoder(shape, event_bytes_max=EVENT_BYTES_MAX)
    answer = decode(decoder, [(1, json.dumps(body).encode())])
    assert (answer.output_tokens, answer.cached_tokens, answer.finish_reason) == (3, 4, "length")
    assert (answer.no_answer_text, answer.first_token_ns, answer.error_class) == (True, None, None)


def test_bodies_name_their_sampling_fields_and_ask_for_usage() -> None:
    completions = OPENAI.template(COMPLETIONS)
    assert (completions.path, completions.prompt, completions.rid_slot) == ("/v1/completions", "ids", None)
    assert json.loads(completions.render("r", b"1,2")) == {
        "model": "m", "prompt": [1, 2], "max_tokens": 3, "temperature": 0.0, "top_p": 1.0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    chat = OPENAI.template(CHAT)
    assert (chat.path, chat.prompt) == ("/v1/chat/completions", "text")
    assert json.loads(chat.render("r", rb"say \"x\""))["messages"] == [{"role": "user", "content": 'say "x"'}]


def test_each_engine_adds_its_own_fields() -> None:
    def body(engine: str, shape: RequestShape) -> dict[str, object]:
        body = json.loads(ENGINES[engine].template(shape).render("r-01", b"1"))
        assert isinstance(body, dict)
        return body

    sglang = body("sglang", COMPLETIONS)
    assert (sglang["rid"], sglang["return_cached_tokens_details"], sglang["top_k"]) == ("r-01", True, -1)
    vllm = body("vllm", CHAT)
    assert (vllm["request_id"], vllm["ignore_eos"], vllm["top_k"]) == ("r-01", True, -1)
    assert "rid" not in body("llamacpp", COMPLETIONS)


def test_a_generic_server_gets_no_field_it_may_refuse_and_no_usage_wish_without_a_stream() -> None:
    shape = RequestShape(route="completions", input_tokens=1, output_tokens=1, ignore_eos=False, stream=False)
    body = json.loads(OPENAI.template(shape).render("r", b"1"))
    assert sorted(body) == ["max_tokens", "prompt", "stream", "temperature", "top_p"]


@pytest.mark.parametrize("engine", ["openai", "vllm", "llamacpp"])
def test_the_native_route_of_sglang_is_refused_by_the_others(engine: str) -> None:
    with pytest.raises(ConfigError, match="no such route"):
        ENGINES[engine].template(RequestShape(route="generate", input_tokens=1, output_tokens=1))


def test_a_generic_server_is_only_asked_for_its_models() -> None:
    models = Reply(200, b'{"data":[{"id":"m","max_model_len":8192}]}')
    http = FakeHttp({"GET /v1/models": models})

    async def ask() -> None:
        assert (await OPENAI.alive(http)).ok
        assert await OPENAI.queue(http) is None
        assert await OPENAI.scrape(http) is None
        assert await OPENAI.abort(http, "r") is None
        flush = await OPENAI.flush(http, timeout_s=1)
        assert (flush.accepted, flush.unsupported, bool(flush.note)) == (False, True, True)
        facts = await OPENAI.facts(http)
        assert (facts.model, facts.context_tokens, facts.instance) == ("m", 8192, None)

    asyncio.run(ask())
    assert set(http.asked) == {"GET /v1/models"}
