"""Every recorded answer of every real engine goes through the parser that would have read it.

What is expected comes from the bytes themselves, read here the plain way: all events parsed by `json`, the last
one believed, counters summed by a regular expression. No answer is left out: one that nothing reads is named.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from engine_captures import (
    EVENT_BYTES_MAX,
    Capture,
    FakeHttp,
    Recorded,
    answers_stored,
    as_read,
    capture,
    decode,
    everything_recorded,
    without_stamps,
)
from test_engines_captures import ENGINE_OF

from raybench.engines import ENGINES
from raybench.engines.contract import Answer, Reply, RequestShape
from raybench.scenario.schema import Route

ROUTES: dict[str, Route] = {
    "/generate": "generate",
    "/v1/completions": "completions",
    "/v1/chat/completions": "chat",
}
#: Calls that raybench makes beside the load, by what reads their answers.
QUEUE = ("/v1/loads", "/get_load", "/slots")
FACTS = ("/server_info", "/get_server_info", "/v1/models", "/version", "/props")
FLUSH = re.compile(r"/(flush_cache|reset_prefix_cache|slots/\d+)")
#: Calls that raybench never makes; their answers are recorded for people.
NEVER_ASKED = {
    "/health_generate": "it generates",
    "/get_model_info": "/server_info says more",
    "/clear_hicache_storage_backend": "emptying a storage tier is the user's to do",
    "/completion": "llama.cpp's own route, beside the OpenAI one",
    "/load": "vLLM's /metrics say it",
    "/no_such_path": "",
}
#: Bodies that only a batch or log probabilities have, which raybench never asks for.
NEVER_SENT = re.compile(r"generate_(batch|stream_logprob)")

ALL = everything_recorded()


def of(*paths: str) -> list[Any]:
    return [pytest.param(one, id=f"{one.engine}/{one.name}") for one in ALL if one.path in paths]


def test_every_stored_answer_is_listed_and_read_by_something() -> None:
    assert {(one.engine, one.name) for one in ALL} == answers_stored()
    assert len(ALL) == 387
    known = {*ROUTES, *QUEUE, *FACTS, *NEVER_ASKED, "/metrics", "/health", "/abort_request"}
    unread = [one for one in ALL if one.path not in known and not FLUSH.fullmatch(one.path)]
    assert unread == []


# -- answers to requests ---------------------------------------------------------------------------


def events_of(body: bytes) -> list[Any]:
    """The JSON of each `data:` line; without [DONE]."""
    lines = [line[5:].strip() for line in body.decode("utf-8", "replace").splitlines() if line.startswith("data:")]
    events = []
    for line in lines:
        if line != "[DONE]":
            try:
                events.append(json.loads(line))
            except ValueError:
                continue  # the last line of a stream that was cut
    return events


def plain_counts(messages: list[Any]) -> tuple[int | None, int | None, int | None]:
    """(input, output, cached) tokens by the last count that any message gives."""
    counts: tuple[int | None, int | None, int | None] = (None, None, None)
    for message in messages:
        meta, usage, timings = (message.get(key) for key in ("meta_info", "usage", "timings"))
        if meta:
            counts = (meta.get("prompt_tokens"), meta["completion_tokens"], meta.get("cached_tokens"))
        elif usage:
            details = usage.get("prompt_tokens_details") or {}
            cached = details.get("cached_tokens")
            counts = (usage["prompt_tokens"], usage["completion_tokens"], counts[2] if cached is None else cached)
        elif timings and not usage and "prompt_n" in timings:
            counts = (timings["prompt_n"] + timings["cache_n"], timings["predicted_n"], timings["cache_n"])
    return counts


def refused(messages: list[Any]) -> bool:
    """Whether a message is an error or ends in an abort."""
    for message in messages:
        reason = (message.get("meta_info") or {}).get("finish_reason") or {}
        if "error" in message or message.get("object") == "error" or reason.get("type") == "abort":
            return True
    return False


def answered(one: Recorded, captured: Capture, *, skim: bool = False) -> Answer:
    streamed = captured.body.startswith(b"data:")
    shape = RequestShape(route=ROUTES[one.path], input_tokens=1, output_tokens=1, stream=streamed)
    engine = ENGINES[ENGINE_OF[one.engine]]
    decoder = engine.decoder(shape, event_bytes_max=EVENT_BYTES_MAX, skim=skim)
    return decode(decoder, as_read(captured))


@pytest.mark.parametrize("one", of(*ROUTES))
def test_an_answer_is_recorded_as_its_own_bytes_say(one: Recorded) -> None:
    captured = capture(one.engine, one.name)
    if captured.status != 200:  # the client keeps the body of such an answer as the error's text
        assert 400 <= captured.status < 500
        assert len(captured.body) > 10
        return
    if NEVER_SENT.search(one.name):
        return
    streamed = captured.body.startswith(b"data:")
    messages = events_of(captured.body) if streamed else [json.loads(captured.body)]
    answer = answered(one, captured)
    input_tokens, output_tokens, cached_tokens = plain_counts(messages)
    assert answer.bytes_received == len(captured.body)
    if refused(messages):
        assert answer.error_class is not None
        assert answer.output_tokens == (output_tokens or 0)
        return
    cut = streamed and not _ended(messages)
    assert (answer.error_class is not None) == cut, answer.error_class
    assert (answer.input_tokens, answer.cached_tokens) == (input_tokens, cached_tokens)
    if output_tokens is not None:
        assert (answer.output_tokens, answer.tokens_source) == (output_tokens, "server")
    else:
        assert answer.tokens_source == "estimated"
        assert answer.output_tokens == len(answer.chunk_ns)
    if streamed:
        assert answer.events == len(messages)
        assert answer.done_marker == (b"data: [DONE]" in captured.body)
        known = [tokens for tokens in answer.chunk_tokens if tokens is not None]
        if len(known) == len(answer.chunk_tokens) and not cut:
            assert sum(known) == answer.output_tokens


@pytest.mark.parametrize("one", of(*ROUTES))
def test_skimming_counts_the_same(one: Recorded) -> None:
    captured = capture(one.engine, one.name)
    if captured.status != 200 or not captured.body.startswith(b"data:") or NEVER_SENT.search(one.name):
        return
    full, skimmed = answered(one, captured), answered(one, captured, skim=True)
    for name in ("input_tokens", "output_tokens", "cached_tokens", "chunk_ns", "error_class", "finish_reason"):
        assert getattr(skimmed, name) == getattr(full, name), name
    assert without_stamps(skimmed)["events"] == full.events


def _ended(messages: list[Any]) -> bool:
    """Whether a finish reason came: a stream without was closed by its client."""
    for message in messages:
        reasons = [choice.get("finish_reason") for choice in message.get("choices") or []]
        if (message.get("meta_info") or {}).get("finish_reason") or any(reasons):
            return True
    return False


# -- answers to control calls ----------------------------------------------------------------------

#: The counters that each engine's /metrics must come to, by a plain sum over the series of a name.
SUMS = {
    "sglang": ("sglang:prompt_tokens_total", "sglang:generation_tokens_total", "sglang:num_requests_total"),
    "vllm": ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total"),
    "llamacpp": (None, "llamacpp:tokens_predicted_total", None),
}


def summed(text: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("one", of("/metrics"))
def test_a_metrics_page_is_read_to_its_sums(one: Recorded) -> None:
    captured, name = capture(one.engine, one.name), ENGINE_OF[one.engine]
    scraped = asyncio.run(ENGINES[name].scrape(FakeHttp({"GET /metrics": captured.reply})))
    if name == "openai":
        assert scraped is None
        return
    assert scraped is not None
    counters, text = scraped[0], captured.body.decode()
    for value, counter in zip(
        (counters.input_tokens, counters.output_tokens, counters.requests), SUMS[name], strict=True
    ):
        if counter is not None:
            assert value == summed(text, counter), counter
    assert (counters.prefix_hit_tokens or 0) <= (counters.prefix_queried_tokens or 0)
    latencies = asyncio.run(ENGINES[name].latencies(FakeHttp({"GET /metrics": captured.reply})))
    for histogram in latencies.values():
        assert all(up_to <= histogram.count for _, up_to in histogram.buckets)


@pytest.mark.parametrize("one", of(*QUEUE))
def test_queue_numbers_are_those_of_the_page(one: Recorded) -> None:
    captured, name = capture(one.engine, one.name), ENGINE_OF[one.engine]
    state = asyncio.run(ENGINES[name].queue(FakeHttp({f"GET {one.path}": captured.reply})))
    if captured.status != 200:
        assert state is None
        return
    page = json.loads(captured.body)
    entries = page["loads"] if isinstance(page, dict) else page
    assert state is not None
    if name == "llamacpp":
        assert state.running == sum(slot["is_processing"] for slot in entries)
    else:
        assert state.queued == sum(entry["num_waiting_reqs"] for entry in entries)
        assert state.running == sum(map(running, entries))


def running(entry: dict[str, int]) -> int:
    """/v1/loads tells those that run, /get_load all that are inside."""
    told = entry.get("num_running_reqs")
    return entry["num_reqs"] - entry["num_waiting_reqs"] if told is None else told


@pytest.mark.parametrize("one", of(*FACTS))
def test_facts_are_those_of_the_page(one: Recorded) -> None:
    captured, name = capture(one.engine, one.name), ENGINE_OF[one.engine]
    facts = asyncio.run(ENGINES[name].facts(FakeHttp({f"GET {one.path}": captured.reply})))
    page = json.loads(captured.body)
    if one.path in ("/server_info", "/get_server_info"):
        assert (facts.version, facts.dp_size) == (page["version"], page["dp_size"])
        assert facts.kv_pool_tokens == page["max_total_num_tokens"] * page["dp_size"]
        assert facts.prefix_cache is not page["disable_radix_cache"]
        assert facts.host_cache is page["enable_hierarchical_cache"]
        assert facts.storage_cache == page["hicache_storage_backend"]
    elif one.path == "/v1/models":
        assert facts.model == page["data"][0]["id"]
    elif one.path == "/version":
        assert facts.version == page["version"]
    else:
        assert (facts.version, facts.max_running_requests) == (page["build_info"], page["total_slots"])


@pytest.mark.parametrize(
    "one", [pytest.param(one, id=f"{one.engine}/{one.name}") for one in ALL if FLUSH.fullmatch(one.path)]
)
def test_a_flush_was_done_when_the_status_or_the_body_says_so(one: Recorded) -> None:
    captured, name = capture(one.engine, one.name), ENGINE_OF[one.engine]
    replies = {f"POST {one.path}": captured.reply, "GET /props": Reply(200, b'{"total_slots":1}')}
    if name == "llamacpp":
        replies["POST /slots/0"] = captured.reply
    flush = asyncio.run(ENGINES[name].flush(FakeHttp(replies), timeout_s=1))
    told = json.loads(captured.body).get("success") if name == "vllm" else captured.status == 200
    assert flush.accepted is told


@pytest.mark.parametrize("one", of("/health", "/abort_request", *NEVER_ASKED))
def test_other_answers_are_what_the_contract_says_of_them(one: Recorded) -> None:
    captured = capture(one.engine, one.name)
    assert captured.status == (404 if one.path == "/no_such_path" else 200)
