"""What the real engines answer to single requests, as raybench's client records it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from by_hand import CONTEXT, Row, Start, counted_alike, hand, table, until

from raybench.engines.contract import Counters, Facts, Gauges, RequestShape
from raybench.engines.histogram import Histogram
from raybench.protocol.answer_checks import check_lengths
from raybench.protocol.evidence import Evidence
from raybench.protocol.target import ServerView
from raybench.scenario.plan import Point
from raybench.scenario.schema import Guards

pytestmark = pytest.mark.engine

ENGINES = ("sglang", "llamacpp", "vllm")
ROUTES = [("sglang", "generate"), *((engine, route) for engine in ENGINES for route in ("completions", "chat"))]


def shape(route: str = "completions", **changes: Any) -> RequestShape:
    return RequestShape(**{"route": route, "input_tokens": 200, "output_tokens": 12, **changes})


def ask(start: Start, engine: str, what: RequestShape, seed: int, count: int = 1) -> list[Row]:
    async def go() -> list[Row]:
        async with hand(start(engine)) as one:
            return await one.ask(what, seed, count)

    return asyncio.run(go())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("engine", "route"), ROUTES)
def test_every_route_brings_the_servers_counts(engine: str, route: str, stream: bool, start: Start) -> None:
    server = start(engine)
    before = server.tally()
    seed = 100 + 2 * ROUTES.index((engine, route)) + stream
    rows = ask(start, engine, shape(route, stream=stream), seed, count=3)
    for row in rows:
        assert (row["outcome"], row["tokens_source"], row["finish_reason"]) == ("ok", "server", "length"), row
        assert row["output_tokens"] == 12
        assert row["cached_tokens"] is not None
        if route == "chat":  # the template adds tokens of its own
            assert row["input_tokens"] > 200
        else:
            assert row["input_tokens"] == 200
        if stream:
            assert row["sent_ns"] <= row["first_token_ns"] <= row["last_token_ns"] <= row["end_ns"]
            assert 1 <= len(row["chunk_ns"]) == len(row["chunk_tokens"]) <= 12
            assert row["done_marker"] is True
    assert counted_alike(server, before, rows)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_repeat_is_a_hit_until_the_flush(engine: str, start: Start) -> None:
    what = shape(input_tokens=1000)

    async def go() -> list[int]:
        async with hand(start(engine)) as one:
            cached = []
            for flush in (True, False, True):
                if flush:
                    await one.flush()
                cached += [row["cached_tokens"] for row in await one.ask(what, seed=200)]
            return cached

    first, again, after_flush = asyncio.run(go())
    assert (first, after_flush) == (0, 0)
    assert again == {"sglang": 999, "llamacpp": 999, "vllm": 896}[engine]  # vLLM's blocks hold 128 tokens


@pytest.mark.parametrize(
    ("engine", "outcome", "error_class"),
    [
        ("sglang", "engine_error", "engine_400"),  # on a stream, an event of an answer with status 200
        ("llamacpp", "http_error", "http_400"),
        ("vllm", "http_error", "http_400"),
    ],
)
def test_input_beyond_the_context_is_a_failed_request(
    engine: str, outcome: str, error_class: str, start: Start
) -> None:
    route = "generate" if engine == "sglang" else "completions"
    [row] = ask(start, engine, shape(route, input_tokens=CONTEXT + 100), seed=300)
    assert (row["outcome"], row["error_class"]) == (outcome, error_class), row
    assert str(CONTEXT) in row["error_message"]
    assert (row["output_tokens"], row["partial_output_tokens"]) == (0, 0)
    assert row["first_token_ns"] is None


@pytest.mark.parametrize(
    ("engine", "route", "asked"),
    [
        # SGLang refuses what is longer than the context, and clips what is exactly as long.
        ("sglang", "generate", 96),
        ("llamacpp", "completions", 400),
        ("vllm", "completions", 400),
    ],
)
def test_an_answer_clipped_at_the_context_is_caught_by_its_length(
    engine: str, route: str, asked: int, start: Start
) -> None:
    """No engine says that it clipped: the finish reason is `length` as ever."""
    rows = ask(start, engine, shape(route, input_tokens=CONTEXT - 96, output_tokens=asked), seed=400)
    assert (rows[0]["outcome"], rows[0]["finish_reason"]) == ("ok", "length"), rows
    assert 0 < rows[0]["output_tokens"] <= 96
    [finding] = check_lengths(evidence(rows), Guards())
    assert (finding.code, finding.severity) == ("output_length_differs", "void")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_closed_connection_leaves_no_ghost(engine: str, start: Start) -> None:
    server = start(engine)
    what = shape("generate" if engine == "sglang" else "completions", output_tokens=3800)

    async def go() -> list[Row]:
        async with hand(server) as one:
            asking = asyncio.ensure_future(one.ask(what, seed=500, count=2))
            await one.first_bytes.wait()
            asking.cancel()
            rows = await asking
            await until(one.idle)
            return rows

    before = server.tally()
    rows = asyncio.run(go())
    assert [row["outcome"] for row in rows] == ["cancelled", "cancelled"]
    assert [row["output_tokens"] for row in rows] == [0, 0]
    assert server.tally().since(before).output_tokens < 2 * 3800


def test_o_s5_a_full_queue_is_an_error_in_an_answer_with_status_200(start: Start) -> None:
    """Two run and four wait: of twelve at once six are refused, or up to eight if none had begun to run yet.

    The refused ones are in no counter of tokens.
    """
    server = start("sglang", "--max-running-requests", "2", "--max-queued-requests", "4")
    before = server.tally()

    async def go() -> list[Row]:
        async with hand(server) as one:
            return await one.ask(shape("generate", output_tokens=100), seed=700, count=12)

    rows = asyncio.run(go())
    refused = [row for row in rows if row["outcome"] != "ok"]
    assert 6 <= len(refused) <= 8
    for row in refused:
        assert (row["outcome"], row["error_class"], row["http_status"]) == ("engine_error", "engine_503", 200), row
        assert "queue is full" in row["error_message"]
        assert row["output_tokens"] == row["partial_output_tokens"] == 0
    assert {row["output_tokens"] for row in rows if row["outcome"] == "ok"} == {100}
    assert counted_alike(server, before, [row for row in rows if row["outcome"] == "ok"])


@pytest.mark.parametrize("engine", ENGINES)
def test_facts_counters_and_histograms_are_read(engine: str, start: Start) -> None:
    server = start(engine)

    async def go() -> tuple[Facts, tuple[Counters, Gauges] | None, Mapping[str, Histogram]]:
        async with hand(server) as one:
            await one.ask(shape(), seed=800)
            await until(one.idle)
            facts, scraped = await one.engine.facts(one.control), await one.engine.scrape(one.control)
            return facts, scraped, await one.engine.latencies(one.control)

    facts, scraped, latencies = asyncio.run(go())
    assert facts.model is not None
    assert facts.instance is not None
    assert facts.context_tokens == CONTEXT
    assert facts.version is not None
    assert scraped is not None
    counters, gauges = scraped
    tally = server.tally()
    assert (counters.input_tokens, counters.output_tokens) == (tally.input_tokens, tally.output_tokens)
    assert (counters.requests, counters.cached_tokens) == (tally.requests, tally.cached_tokens)
    assert (gauges.running_requests, gauges.queued_requests) == (0, 0)
    kinds = set() if engine == "llamacpp" else {"ttft", "e2e", "tpot", "itl", "queue"}
    assert set(latencies) == kinds
    for histogram in latencies.values():
        assert histogram.count > 0
        assert histogram.buckets


def test_an_aborted_request_is_an_engine_error(start: Start) -> None:
    what = shape("generate", output_tokens=3800)

    async def go() -> list[Row]:
        async with hand(start("sglang")) as one:
            asking = asyncio.ensure_future(one.ask(what, seed=600))
            await one.first_bytes.wait()
            reply = await one.engine.abort(one.control, one.rid(what, 600))
            assert reply is not None and reply.ok, reply
            rows = await asking
            await until(one.idle)
            return rows

    [row] = asyncio.run(go())
    assert row["outcome"] == "engine_error", row
    assert row["finish_reason"] == "abort"
    assert row["output_tokens"] == 0
    assert row["partial_output_tokens"] < 3800


def evidence(rows: list[Row]) -> Evidence:
    first = rows[0]
    point = Point(
        point_id="tiny/hand/c1",
        arm="tiny",
        workload="hand",
        concurrency=1,
        requests=len(rows),
        input_tokens=first["input_tokens_asked"],
        output_tokens=first["output_tokens_asked"],
        active_limit=None,
        queueing=None,
        skip_reason=None,
    )
    return Evidence(point, table(rows), ServerView(None, None), ServerView(None, None))
