"""One request against every way in which a server or a network can fail: a record, never an exception."""

from __future__ import annotations

import asyncio
import inspect
import socket
from typing import Any, get_args

import aiohttp
import pytest
from aiohttp import client_exceptions
from engine_captures import FIVE_WRITES
from fault_server import DONE, Asked, FaultServer, Script, Wire, answer, full_backlog, generate_event
from rig import SHAPE, assert_stamps_ordered, exchange, order, run, send

from raybench.engines.contract import RequestShape
from raybench.load.client import make_client
from raybench.load.http import ControlClient
from raybench.load.order import Endpoint
from raybench.load.plain_client import FAILURES, PlainClient, classify
from raybench.records.clock import AnchoredClock
from raybench.records.schema import REQUESTS, Outcome
from raybench.scenario.schema import RequestLimits

COMPLETIONS = RequestShape(route="completions", input_tokens=64, output_tokens=3)


def record_of(script: Script, limits: RequestLimits | None = None, **changes: Any) -> dict[str, Any]:
    """What one request to a server with this script leaves behind."""

    async def scene() -> dict[str, Any]:
        async with FaultServer(script) as server:
            _, row = await exchange(order(server.url, limits=limits, **changes))
            assert server.arrivals == row["tries"], "what the server saw is not what the record says"
            return row

    row = run(scene())
    assert set(row) == set(REQUESTS.names)
    assert row["outcome"] in get_args(Outcome)
    assert_stamps_ordered(row)
    return row


async def never() -> None:
    await asyncio.Event().wait()


def test_a_good_answer_has_every_stamp_and_the_server_s_counts() -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head()
        for count in (1, 5, 9):
            await wire.chunk(generate_event(count, finish="length" if count == 9 else None) + b": wait\n\n")
        await wire.chunk(DONE)
        await wire.end()

    row = record_of(script)
    assert (row["outcome"], row["error_class"], row["http_status"], row["tries"]) == ("ok", None, 200, 1)
    assert (row["output_tokens"], row["partial_output_tokens"], row["tokens_source"]) == (9, None, "server")
    assert (row["input_tokens"], row["cached_tokens"], row["done_marker"]) == (64, 0, True)
    assert (row["chunk_tokens"], row["first_chunk_tokens"]) == ([1, 4, 4], 1)
    assert None not in [row[name] for name in ("connected_ns", "sent_ns", "headers_ns", "last_token_ns")]


def test_the_request_is_what_the_engine_takes_and_nothing_of_the_client_library() -> None:
    seen: list[Asked] = []

    async def script(asked: Asked, wire: Wire) -> None:
        seen.append(asked)
        await wire.plain("200 OK", b'{"text":"x","meta_info":{"completion_tokens":2,"prompt_tokens":64}}')

    record_of(script, shape=RequestShape(route="generate", input_tokens=64, output_tokens=2, stream=False))
    (asked,) = seen
    assert (asked.method, asked.path, asked.headers["content-type"]) == ("POST", "/generate", "application/json")
    assert asked.json["input_ids"] == [1, 2, 3]
    assert "transfer-encoding" not in asked.headers


def test_an_answer_without_any_count_has_unknown_tokens_and_not_zero() -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.plain("200 OK", b'{"text":"x","meta_info":{}}')

    shape = RequestShape(route="generate", input_tokens=64, output_tokens=2, stream=False)
    row = record_of(script, shape=shape)
    assert (row["outcome"], row["output_tokens"], row["tokens_source"]) == ("ok", None, "none")


# O-S1 and O-S5 over a socket


@pytest.mark.parametrize(
    "writes",
    [FIVE_WRITES, (b"".join(FIVE_WRITES),), tuple(bytes([byte]) for byte in b"".join(FIVE_WRITES))],
    ids=["five writes", "one write", "a byte a write"],
)
def test_o_s1_an_event_is_not_a_network_read(writes: tuple[bytes, ...]) -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head()
        for write in writes:
            await wire.chunk(write)
            await asyncio.sleep(0.02 if len(writes) == 5 else 0)
        await wire.end()

    async def scene() -> None:
        async with FaultServer(script) as server:
            sent, row = await exchange(order(server.url, engine="openai", shape=COMPLETIONS))
        assert (row["outcome"], sent.answer.text) == ("ok", "a b ")
        assert (row["events"], len(row["chunk_ns"]), row["done_marker"]) == (3, 3, True)  # type: ignore[arg-type]
        assert (row["text_chars"], row["tokens_source"]) == (4, "estimated")
        assert_stamps_ordered(row)

    run(scene())


CONTENT = b'data: {"choices":[{"index":0,"text":"a"}]}\n\n'
ERROR = b'data: {"error":{"message":"engine stopped","type":"InternalServerError","param":null,"code":500}}\n\n'


@pytest.mark.parametrize(
    ("engine", "shape", "events", "error_class", "message", "partial"),
    [
        ("openai", COMPLETIONS, [CONTENT, CONTENT, ERROR, DONE], "engine_500", "engine stopped", 2),
        ("openai", COMPLETIONS, [ERROR, DONE], "engine_500", "engine stopped", 0),
        ("sglang", SHAPE, [b'data: {"error":"queue full"}\n\n', DONE], "engine_error", "queue full", 0),
    ],
)
def test_o_s5_an_error_event_in_a_200_fails_the_request(
    engine: str, shape: RequestShape, events: list[bytes], error_class: str, message: str, partial: int
) -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head()
        for event in events:
            await wire.chunk(event)
        await wire.end()

    row = record_of(script, engine=engine, shape=shape)
    assert (row["outcome"], row["error_class"], row["error_message"]) == ("engine_error", error_class, message)
    assert (row["output_tokens"], row["partial_output_tokens"], row["http_status"]) == (0, partial, 200)


# O-N2: limits


def test_o_n2_by_default_no_total_limit_and_an_idle_limit_of_its_own() -> None:
    async def scene() -> None:
        client = PlainClient(order("http://127.0.0.1:9"), AnchoredClock())
        timeout = client._sessions[None].timeout
        assert (timeout.total, timeout.sock_read, timeout.sock_connect, timeout.connect) == (None, 1800, 30, None)
        assert client._sessions[None].connector is not None
        assert client._sessions[None].connector.limit == 0
        await client.close()

    run(scene())


def test_o_n2_a_first_token_after_the_total_limit_is_a_timeout_that_names_it() -> None:
    """Keep-alive comments come all the time: they must not extend the total limit, and do extend the idle."""

    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head()
        while True:
            await wire.chunk(b": wait\n\n")
            await asyncio.sleep(0.03)

    row = record_of(script, RequestLimits(request_timeout_s=0.2, idle_timeout_s=5.0))
    assert (row["outcome"], row["error_class"]) == ("timeout", "timeout_total")
    assert "request_timeout_s: 0.2" in row["error_message"]
    assert row["end_ns"] - row["asked_ns"] >= 190_000_000  # the limit holds from before the connection
    assert (row["output_tokens"], row["partial_output_tokens"]) == (0, 0)


def test_o_n2_bytes_that_stay_away_are_an_idle_timeout() -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head()
        await wire.chunk(generate_event(1))
        await never()

    row = record_of(script, RequestLimits(idle_timeout_s=0.15))
    assert (row["outcome"], row["error_class"]) == ("timeout", "timeout_idle")
    assert "idle_timeout_s: 0.15" in row["error_message"]
    assert row["partial_output_tokens"] == 1


def test_o_n2_bytes_that_come_within_the_idle_limit_begin_it_anew() -> None:
    """By the loop's clock, which aiohttp's limits go by; the wire client's test has a clock of its own."""

    async def script(_asked: Asked, wire: Wire) -> None:
        loop, jumped_s = asyncio.get_running_loop(), 0.0
        real_time = loop.time
        loop.time = lambda: real_time() + jumped_s  # type: ignore[method-assign]
        await wire.head()
        for _ in range(4):
            await wire.chunk(b": wait\n\n")
            await asyncio.sleep(0.02)  # it is read
            jumped_s += 6.0
        await wire.chunk(generate_event(2, finish="length") + DONE)
        await wire.end()

    assert record_of(script, RequestLimits(idle_timeout_s=10))["outcome"] == "ok"


def test_headers_that_stay_away_run_into_the_idle_limit() -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-")
        await never()

    row = record_of(script, RequestLimits(idle_timeout_s=0.15))
    assert (row["outcome"], row["error_class"], row["http_status"]) == ("timeout", "timeout_idle", None)
    assert row["headers_ns"] is None


def test_a_host_that_takes_no_connection_runs_into_the_connect_limit() -> None:
    with full_backlog() as url:
        _, row = run(exchange(order(url, limits=RequestLimits(connect_timeout_s=0.2))))
    assert (row["outcome"], row["error_class"], row["connected_ns"]) == ("timeout", "timeout_connect", None)
    assert "connect_timeout_s: 0.2" in str(row["error_message"])


# Status codes


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        ("503 Service Unavailable", ()),
        ("429 Too Many Requests", ("Retry-After: 1",)),
        ("500 Internal Server Error", ()),
        ("404 Not Found", ()),
        ("302 Found", ("Location: /elsewhere",)),
        ("307 Temporary Redirect", ("Location: /elsewhere",)),
        ("204 No Content", ()),
        ("201 Created", ()),
    ],
)
def test_any_status_but_200_is_an_http_error_and_no_redirect_is_followed(
    status: str, headers: tuple[str, ...]
) -> None:
    body = b"" if status.startswith("204") else b"queue is full" + b"." * 10_000

    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.plain(status, body, *headers)

    row = record_of(script)
    code = int(status[:3])
    assert (row["outcome"], row["error_class"], row["http_status"]) == ("http_error", f"http_{code}", code)
    assert row["error_message"] == body[:500].decode()
    assert (row["output_tokens"], row["tries"], row["first_token_ns"]) == (0, 1, None)


def test_a_503_whose_body_never_ends_does_not_hold_the_slot() -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head("503 Service Unavailable")
        await wire.chunk(b"busy")
        await never()

    row = record_of(script, RequestLimits(idle_timeout_s=5))
    assert (row["outcome"], row["error_message"]) == ("http_error", "busy")


# Connections that break


def test_a_refused_connection() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        # bound and not listening: refused, and nobody else can be given the port meanwhile
        _, row = run(exchange(order(f"http://127.0.0.1:{free.getsockname()[1]}")))
    assert (row["outcome"], row["error_class"], row["tries"]) == ("connect_error", "connect_error", 1)
    assert (row["connected_ns"], row["sent_ns"], row["http_status"]) == (None, None, None)
    assert row["end_ns"] is not None


def test_a_host_without_a_name() -> None:
    _, row = run(exchange(order("http://raybench.invalid:1", limits=RequestLimits(connect_timeout_s=5))))
    assert (row["outcome"], row["error_class"]) == ("connect_error", "connect_error")


def break_off(how: str, *, in_chunk: bool = False) -> Script:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head()
        await wire.chunk(generate_event(1))
        if in_chunk:
            await wire.send(b"40\r\ndata: {")
        await asyncio.sleep(0.02)
        wire.break_off(how)

    return script


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("in_chunk", [False, True])
def test_a_connection_that_breaks_in_mid_stream(how: str, in_chunk: bool) -> None:
    row = record_of(break_off(how, in_chunk=in_chunk))
    assert row["outcome"] == "disconnected"
    assert row["error_class"] in ("broken_stream", "connection_reset")
    assert (row["output_tokens"], row["partial_output_tokens"], row["http_status"]) == (0, 1, 200)


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_connection_that_breaks_before_the_headers_is_not_tried_again_when_it_was_new(how: str) -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        wire.break_off(how)

    row = record_of(script)
    assert (row["outcome"], row["tries"], row["headers_ns"]) == ("disconnected", 1, None)


def test_a_body_that_ends_early_but_cleanly_is_no_success() -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head()
        await wire.chunk(generate_event(1))
        await wire.end()

    row = record_of(script)
    assert (row["outcome"], row["error_class"]) == ("bad_stream", "broken_stream")
    assert (row["output_tokens"], row["partial_output_tokens"]) == (0, 1)


GARBAGE = {
    "no http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "bytes": bytes(range(128, 256)) * 4,
    "a status that is none": b"HTTP/1.1 abc OK\r\n\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    "a bad length": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_something_that_is_not_http(data: bytes) -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.send(data)
        wire.close()

    row = record_of(script)
    assert row["outcome"] in ("bad_stream", "disconnected")
    assert row["output_tokens"] == 0


BROKEN_FRAMING = {
    "a chunk size that is none": ("Transfer-Encoding: chunked", b"zz\r\nhello\r\n"),
    "a chunk without its end": ("Transfer-Encoding: chunked", b"3\r\nabcdef\r\n"),
    "gzip that is none": ("Transfer-Encoding: chunked\r\nContent-Encoding: gzip", b"5\r\nhello\r\n0\r\n\r\n"),
    "a body shorter than its length": ("Content-Length: 1000", b"data: {"),
}


@pytest.mark.parametrize(("header", "body"), BROKEN_FRAMING.values(), ids=BROKEN_FRAMING.keys())
def test_a_200_whose_framing_is_broken(header: str, body: bytes) -> None:
    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.send(f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n".encode() + body)
        await asyncio.sleep(0.02)
        wire.close()

    row = record_of(script)
    assert row["outcome"] in ("bad_stream", "disconnected"), row
    assert row["output_tokens"] == 0


def test_a_request_that_is_cancelled_is_a_record() -> None:
    async def scene() -> None:
        opened = asyncio.Event()

        async def script(_asked: Asked, wire: Wire) -> None:
            await wire.head()
            await wire.chunk(generate_event(1))
            opened.set()
            await never()

        async with FaultServer(script) as server:
            one = order(server.url)
            client = make_client(one, AnchoredClock())
            sending = asyncio.ensure_future(send(client, one))
            await opened.wait()
            await asyncio.sleep(0.05)
            sending.cancel()
            _, row = await sending
            await client.close()
        assert (row["outcome"], row["error_class"], row["partial_output_tokens"]) == ("cancelled", "cancelled", 1)
        assert_stamps_ordered(row)

    run(scene())


# O-N3: large events


def test_o_n3_an_event_of_2_mib_depends_on_no_line_limit() -> None:
    requests, size = 64, 2 * 1024 * 1024

    async def script(_asked: Asked, wire: Wire) -> None:
        await wire.head()
        event = generate_event(1, "a" * size)
        for start in range(0, len(event), 256 * 1024):
            await wire.chunk(event[start : start + 256 * 1024])
        await wire.chunk(b'data: {"text":"","meta_info":{"completion_tokens":1,"prompt_tokens":64,')
        await wire.chunk(b'"finish_reason":{"type":"length","length":1}}}\n\n' + DONE)
        await wire.end()

    async def scene() -> None:
        async with FaultServer(script) as server:
            one = order(server.url, requests=requests)
            client = make_client(one, AnchoredClock())
            rows = [row for _, row in await asyncio.gather(*(send(client, one, n) for n in range(requests)))]
            await client.close()
        assert {(row["outcome"], row["output_tokens"], row["text_chars"]) for row in rows} == {("ok", 1, size)}
        assert server.arrivals == requests

    run(scene())


def test_o_n3_an_event_over_the_limit_fails_its_request_only() -> None:
    async def script(asked: Asked, wire: Wire) -> None:
        await wire.head()
        large = str(asked.json["rid"]).endswith("1")
        await wire.chunk(generate_event(1, "a" * (40_000 if large else 10)))
        await wire.chunk(generate_event(2, "b", finish="length") + DONE)
        await wire.end()

    async def scene() -> None:
        async with FaultServer(script) as server:
            one = order(server.url, requests=3, limits=RequestLimits(event_bytes_max=20_000))
            client = make_client(one, AnchoredClock())
            rows = [(await send(client, one, ticket))[1] for ticket in range(3)]
            await client.close()
        assert [(row["outcome"], row["error_class"]) for row in rows] == [
            ("ok", None),
            ("bad_stream", "event_too_large"),
            ("ok", None),
        ]

    run(scene())


# O-N4: stale connections


def closes_on_the_second(server_of: list[FaultServer]) -> Script:
    async def script(asked: Asked, wire: Wire) -> None:
        if asked.nth >= 2:
            wire.close()
        elif asked.method == "GET":
            await wire.plain("200 OK", b"{}", "Connection: keep-alive")
        else:
            await answer(server_of[0], wire)

    return script


def test_o_n4_a_second_try_takes_no_other_connection_of_the_pool() -> None:
    """Two kept connections, both closed by the server when they are used again."""

    async def scene() -> None:
        servers: list[FaultServer] = []
        async with FaultServer(closes_on_the_second(servers)) as server:
            servers.append(server)
            one = order(server.url, requests=4)
            client = make_client(one, AnchoredClock())
            first = await asyncio.gather(*(send(client, one, ticket) for ticket in range(2)))
            second = [await send(client, one, ticket) for ticket in (2, 3)]
            await client.close()
        rows = [row for _, row in (*first, *second)]
        assert [(row["outcome"], row["tries"]) for row in rows] == [("ok", 1)] * 2 + [("ok", 2)] * 2
        assert server.arrivals == 6
        for row in rows:
            assert_stamps_ordered(row)

    run(scene())


@pytest.mark.parametrize(
    "begun",
    [b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n:\r\n"],
    ids=["in the headers", "in the stream"],
)
def test_o_n4_nothing_is_sent_again_once_an_answer_has_begun(begun: bytes) -> None:
    async def scene() -> None:
        async def script(asked: Asked, wire: Wire) -> None:
            if asked.nth == 2:
                await wire.send(begun)
                await asyncio.sleep(0.02)
                wire.close()
            else:
                await answer(server, wire)

        server = FaultServer(script)
        async with server:
            one = order(server.url, requests=2)
            client = make_client(one, AnchoredClock())
            await send(client, one, 0)
            _, row = await send(client, one, 1)
            await client.close()
        assert (row["outcome"], row["error_class"], row["tries"]) == ("disconnected", "broken_stream", 1)
        assert server.arrivals == 2

    run(scene())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_o_n4_a_failed_second_try_is_the_last(how: str) -> None:
    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            if server.arrivals == 1:
                await answer(server, wire)
            else:
                wire.break_off(how)

        server = FaultServer(script)
        async with server:
            one = order(server.url, requests=2)
            client = make_client(one, AnchoredClock())
            await send(client, one, 0)
            _, row = await send(client, one, 1)
            await client.close()
        assert (row["outcome"], row["tries"], server.arrivals) == ("disconnected", 2, 3)

    run(scene())


def test_o_n4_a_second_try_is_timed_from_its_own_send() -> None:
    async def scene() -> None:
        closed_ns = 0

        async def script(asked: Asked, wire: Wire) -> None:
            nonlocal closed_ns
            if asked.nth == 2:
                await asyncio.sleep(0.02)
                closed_ns = clock.monotonic_ns()
                wire.close()
            else:
                await answer(server, wire)

        clock = AnchoredClock()
        server = FaultServer(script)
        async with server:
            one = order(server.url, requests=2)
            client = make_client(one, clock)
            await send(client, one, 0)
            _, row = await send(client, one, 1)
            await client.close()
        assert row["tries"] == 2
        assert row["asked_ns"] < closed_ns < row["connected_ns"]  # type: ignore[operator]
        assert_stamps_ordered(row)

    run(scene())


def test_o_n4_control_calls_are_never_sent_again_behind_our_back() -> None:
    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            wire.close()

        async with FaultServer(script) as server:
            control = ControlClient(Endpoint(server.url, "sglang"))
            get = await control.request("GET", "/metrics")
            post = await control.request("POST", "/flush_cache")
            await control.close()
        assert [(asked.method, asked.path) for asked in server.asked] == [
            ("GET", "/metrics"),
            ("POST", "/flush_cache"),
        ]
        for reply in (get, post):
            assert (reply.status, reply.ok) == (None, False)
            assert "ServerDisconnectedError" in (reply.error or "")

    run(scene())


def test_o_n4_control_calls_keep_no_connection() -> None:
    async def scene() -> None:
        servers: list[FaultServer] = []
        async with FaultServer(closes_on_the_second(servers)) as server:
            servers.append(server)
            control = ControlClient(Endpoint(server.url + "/", "sglang"))
            replies = [await control.request("GET", path) for path in ("/metrics", "/health", "/metrics")]
            await control.close()
        assert [reply.status for reply in replies] == [200, 200, 200]
        assert (server.arrivals, server.connections) == (3, 3)

    run(scene())


def test_a_control_call_without_answer_ends_at_its_limit() -> None:
    async def scene() -> None:
        async def script(_asked: Asked, _wire: Wire) -> None:
            await never()

        async with FaultServer(script) as server:
            control = ControlClient(Endpoint(server.url, "sglang"))
            reply = await control.request("GET", "/metrics", timeout_s=0.1)
            await control.close()
        assert (reply.status, reply.error) == (None, "no answer within 0.1 s")

    run(scene())


# The table of failures


def exceptions_of_aiohttp() -> list[type[BaseException]]:
    """What a request may raise by aiohttp's own account, websockets left out: raybench opens none."""
    found = {
        kind
        for module in (aiohttp, client_exceptions)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, aiohttp.ClientError)
    }
    return sorted(found - {aiohttp.ClientError}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", exceptions_of_aiohttp(), ids=lambda kind: kind.__name__)
def test_every_exception_of_aiohttp_is_in_the_table(kind: type[BaseException]) -> None:
    # Their own texts need arguments that only aiohttp can make.
    plain = type(kind.__name__, (kind,), {"__str__": lambda _error: "text", "message": "text"})
    failure = classify(plain.__new__(plain), RequestLimits())
    assert failure.outcome in get_args(Outcome)
    assert failure.error_class != "client_error", f"{kind.__name__} has no line in FAILURES"


@pytest.mark.parametrize(
    ("error", "outcome", "error_class"),
    [
        (TimeoutError(), "timeout", "timeout_total"),
        (aiohttp.ConnectionTimeoutError(), "timeout", "timeout_connect"),
        (aiohttp.SocketTimeoutError(), "timeout", "timeout_idle"),
        (aiohttp.ServerDisconnectedError(), "disconnected", "disconnected"),
        (aiohttp.ClientOSError(104, "reset"), "disconnected", "connection_reset"),
        (ConnectionResetError(), "disconnected", "connection_reset"),
        (aiohttp.ClientPayloadError(), "disconnected", "broken_stream"),
        (aiohttp.InvalidURL("x"), "bad_stream", "bad_http"),
        (aiohttp.ClientError("new in some later version"), "bad_stream", "client_error"),
    ],
)
def test_the_failure_of_an_exception(error: BaseException, outcome: str, error_class: str) -> None:
    failure = classify(error, RequestLimits())
    assert (failure.outcome, failure.error_class) == (outcome, error_class)
    assert failure.message.startswith(type(error).__name__)


def test_each_line_of_the_table_can_be_reached() -> None:
    lines = [(outcome, name) for _, outcome, name in FAILURES]
    for number, (kinds, outcome, name) in enumerate(FAILURES):
        reached = [kind for kind in kinds if not any(issubclass(kind, FAILURES[n][0]) for n in range(number))]
        assert reached == list(kinds), f"line {number} ({outcome}, {name}) is hidden by an earlier one: {lines}"
