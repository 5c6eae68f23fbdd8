"""The cheap client over real sockets, on both event loops: its connections, its one retry, its limits."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil
import pytest
import uvloop
from fault_server import DONE, Asked, FaultServer, Wire, full_backlog, generate_event
from rig import LIMIT_S, SHAPE, assert_stamps_ordered, order, send, until

from raybench.engines import ENGINES
from raybench.errors import ConfigError
from raybench.load import wire_client
from raybench.load.client import make_client
from raybench.load.http import auth_headers
from raybench.load.order import Endpoint, Order
from raybench.load.plain_client import PlainClient
from raybench.load.wire_client import OPEN_AT_ONCE, WireClient
from raybench.records.clock import AnchoredClock
from raybench.scenario.load import parse_scenario
from raybench.scenario.schema import RequestLimits

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture
def each_client() -> None:
    """Only the one client here; the rig's default."""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    new_loop = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_here(scene: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(asyncio.wait_for(scene, LIMIT_S))

    return run_here


def client_of(one: Order) -> WireClient:
    client = make_client(one, AnchoredClock())
    assert isinstance(client, WireClient)
    return client


def sockets_to(url: str) -> int:
    """Sockets of this process whose other end is the server."""
    port = urlsplit(url).port
    connections = psutil.Process().net_connections("tcp")
    return sum(bool(connection.raddr) and connection.raddr.port == port for connection in connections)


async def answer_all(_asked: Asked, wire: Wire) -> None:
    await wire.head()
    await wire.chunk(generate_event(1) + generate_event(2, finish="length") + DONE)
    await wire.end()


async def never() -> None:
    await asyncio.Event().wait()


def test_which_client_carries_an_order() -> None:
    async def scene() -> None:
        for url, kind in (("http://host:1", WireClient), ("https://host:1", PlainClient)):
            client = make_client(order(url), AnchoredClock())
            assert type(client) is kind
            await client.close()

    asyncio.run(scene())


# Connections


def test_connections_are_opened_before_the_first_request(run: Run[None]) -> None:
    async def scene() -> None:
        async with FaultServer(answer_all) as server:
            one = order(server.url, requests=10)
            client = client_of(one)
            await client.open(5)
            await until(lambda: server.connections == 5)
            assert server.arrivals == 0
            first = await asyncio.gather(*(send(client, one, ticket) for ticket in range(5)))
            second = await asyncio.gather(*(send(client, one, ticket) for ticket in range(5, 10)))
            await client.close()
        assert (server.connections, server.arrivals) == (5, 10)
        assert {asked.connection for asked in server.asked} == {1, 2, 3, 4, 5}
        for exchange, row in (*first, *second):
            assert (row["outcome"], row["tries"]) == ("ok", 1)
            assert_stamps_ordered(row)
            assert exchange.stamps.connect_ns is not None
            assert exchange.stamps.connect_ns > 0
            assert row["connect_ms"] == exchange.stamps.connect_ns / 1e6
        assert [exchange.stamps.reused for exchange, _ in (*first, *second)] == [False] * 5 + [True] * 5
        # The set-up of a connection is told with each of its requests, whenever it was.
        set_ups = [{exchange.stamps.connect_ns for exchange, _ in half} for half in (first, second)]
        assert set_ups[0] == set_ups[1]

    run(scene())


def test_a_request_that_finds_no_connection_opens_its_own(run: Run[None]) -> None:
    async def scene() -> None:
        async with FaultServer(answer_all) as server:
            one = order(server.url, requests=4)
            client = client_of(one)
            await client.open(1)
            await asyncio.gather(*(send(client, one, ticket) for ticket in range(4)))
            await client.close()
        assert (server.connections, server.arrivals) == (4, 4)

    run(scene())


def test_the_connection_that_was_used_last_is_used_next(run: Run[None]) -> None:
    async def scene() -> None:
        async with FaultServer(answer_all) as server:
            one = order(server.url, requests=4)
            client = client_of(one)
            await client.open(3)
            for ticket in range(4):
                await send(client, one, ticket)
            await client.close()
        assert server.connections == 3
        assert len({asked.connection for asked in server.asked}) == 1
        assert [asked.nth for asked in server.asked] == [1, 2, 3, 4]

    run(scene())


def test_o_n1_256_requests_are_open_at_once_and_so_they_were_before(run: Run[None]) -> None:
    async def scene() -> None:
        full = asyncio.Event()

        async def script(asked: Asked, wire: Wire) -> None:
            if server.in_flight == 256:
                full.set()
            await full.wait()
            await answer_all(asked, wire)

        server = FaultServer(script)
        async with server:
            one = order(server.url, requests=256)
            client = client_of(one)
            await client.open(256)
            await until(lambda: server.connections == 256)
            rows = [row for _, row in await asyncio.gather(*(send(client, one, n) for n in range(256)))]
            assert sockets_to(server.url) == 256
            await client.close()
            assert sockets_to(server.url) == 0
        assert (server.peak, server.connections, server.arrivals) == (256, 256, 256)
        assert {(row["outcome"], row["tries"]) for row in rows} == {("ok", 1)}
        assert max(row["sent_ns"] for row in rows) < min(row["headers_ns"] for row in rows)  # type: ignore[operator, type-var]

    run(scene())


class ClosesUnused:
    """A server that closes its first `number` connections without having seen a request on them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.server = FaultServer(answer_all)
        self.closed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed < self._number:
            self.closed += 1
            writer.close()
        else:
            await self.server._serve(reader, writer)


def test_idle_connections_that_the_server_closed_are_not_used(run: Run[None]) -> None:
    async def scene() -> None:
        closes = ClosesUnused(3)
        async with closes.server, await asyncio.start_server(closes.serve, "127.0.0.1", 0) as front:
            url = f"http://127.0.0.1:{front.sockets[0].getsockname()[1]}"
            one = order(url, requests=2)
            client = client_of(one)
            await client.open(3)
            await until(lambda: all(wire.closed for wire in client._open))
            rows = [(await send(client, one, ticket))[1] for ticket in range(2)]
            assert sockets_to(url) == 1
            await client.close()
            assert sockets_to(url) == 0
        assert [(row["outcome"], row["tries"]) for row in rows] == [("ok", 1)] * 2
        assert (closes.closed, closes.server.arrivals) == (3, 2)

    run(scene())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_connection_that_breaks_under_its_first_request_is_not_tried_again(run: Run[None], how: str) -> None:
    """Opened just before or not: it was not idle."""

    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            wire.break_off(how)

        async with FaultServer(script) as server:
            one = order(server.url, requests=4)
            client = client_of(one)
            await client.open(2)
            rows = [(await send(client, one, ticket))[1] for ticket in range(4)]
            assert sockets_to(server.url) == 0
            await client.close()
        error_class = "disconnected" if how == "close" else "connection_reset"
        assert [(row["outcome"], row["error_class"], row["tries"]) for row in rows] == [
            ("disconnected", error_class, 1)
        ] * 4
        assert server.arrivals == 4

    run(scene())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_o_n4_a_connection_that_idled_since_it_was_opened_is_tried_again_once_on_a_new_one(
    run: Run[None], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open loop opens some seconds ahead, and servers close what idles for so long."""
    monkeypatch.setattr("raybench.load.wire_client.IDLE_S", 0.0)

    async def scene() -> None:
        async def script(asked: Asked, wire: Wire) -> None:
            if asked.connection <= 2:
                wire.break_off(how)
            else:
                await answer_all(asked, wire)

        async with FaultServer(script) as server:
            one = order(server.url, requests=2)
            client = client_of(one)
            await client.open(2)
            await until(lambda: server.connections == 2)
            rows = [row for _, row in await asyncio.gather(*(send(client, one, ticket) for ticket in range(2)))]
            await client.close()
        assert [(row["outcome"], row["tries"]) for row in rows] == [("ok", 2)] * 2
        assert (server.arrivals, server.connections) == (4, 4)

    run(scene())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_o_n4_a_used_connection_that_breaks_is_tried_again_once_on_a_new_one(run: Run[None], how: str) -> None:
    async def scene() -> None:
        async def script(asked: Asked, wire: Wire) -> None:
            if asked.nth == 2:
                wire.break_off(how)
            else:
                await answer_all(asked, wire)

        async with FaultServer(script) as server:
            one = order(server.url, requests=4)
            client = client_of(one)
            await client.open(2)
            first = await asyncio.gather(*(send(client, one, ticket) for ticket in range(2)))
            second = await asyncio.gather(*(send(client, one, ticket) for ticket in range(2, 4)))
            await client.close()
        rows = [row for _, row in (*first, *second)]
        assert [(row["outcome"], row["tries"]) for row in rows] == [("ok", 1)] * 2 + [("ok", 2)] * 2
        assert (server.arrivals, server.connections) == (6, 4)
        for row in rows:
            assert_stamps_ordered(row)

    run(scene())


def test_a_connection_that_the_server_will_close_is_not_kept(run: Run[None]) -> None:
    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            await wire.head("200 OK", "Connection: close")
            await wire.chunk(generate_event(2, finish="length") + DONE)
            await wire.end()
            wire.close()

        async with FaultServer(script) as server:
            one = order(server.url, requests=5)
            client = client_of(one)
            rows = [(await send(client, one, ticket))[1] for ticket in range(5)]
            assert len(client._open) == 0
            await client.close()
        assert [(row["outcome"], row["tries"]) for row in rows] == [("ok", 1)] * 5
        assert (server.connections, server.arrivals) == (5, 5)

    run(scene())


def test_a_refusal_that_came_whole_leaves_its_connection_and_another_does_not(run: Run[None]) -> None:
    async def scene() -> None:
        async def script(asked: Asked, wire: Wire) -> None:
            if asked.nth == 1:
                await wire.plain("503 Busy", b"busy")
            elif asked.nth == 2:
                await wire.plain("204 No Content", b"")
            else:
                await wire.send(b"HTTP/1.1 429 Slow Down\r\nContent-Length: 9\r\n\r\nslow")

        async with FaultServer(script) as server:
            one = order(server.url, requests=4)
            client = client_of(one)
            rows = [(await send(client, one, ticket))[1] for ticket in range(4)]
            await client.close()
        assert [row["error_class"] for row in rows] == ["http_503", "http_204", "http_429", "http_503"]
        assert [row["error_message"] for row in rows] == ["busy", "", "slow", "busy"]
        assert [asked.connection for asked in server.asked] == [1, 1, 1, 2]

    run(scene())


def test_a_refusal_whose_body_comes_by_and_by_does_not_hold_the_slot(run: Run[None]) -> None:
    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            await wire.head("503 Service Unavailable")
            await asyncio.sleep(0.05)
            await wire.chunk(b"busy")
            await never()

        async with FaultServer(script) as server:
            one = order(server.url)
            client = client_of(one)
            _, row = await send(client, one)
            await client.close()
        assert (row["outcome"], row["error_class"], row["error_message"]) == ("http_error", "http_503", "busy")

    run(scene())


# Opening ahead that fails


def test_a_server_that_is_not_there_fails_the_requests_and_not_the_opening(run: Run[None]) -> None:
    async def scene() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))  # not listening: refused, and nobody else is given the port meanwhile
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
            one = order(url, requests=2)
            client = client_of(one)
            await client.open(2)
            rows = [(await send(client, one, ticket))[1] for ticket in range(2)]
            assert sockets_to(url) == 0
            await client.close()
        assert [(row["outcome"], row["error_class"], row["tries"]) for row in rows] == [
            ("connect_error", "connect_error", 1)
        ] * 2

    run(scene())


def test_a_host_that_takes_no_connection_is_waited_for_once(
    run: Run[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other connections are not tried after those that were begun together."""
    begun = 0
    connect = WireClient._connect

    async def counting(client: WireClient) -> Any:
        nonlocal begun
        begun += 1
        return await connect(client)

    monkeypatch.setattr(WireClient, "_connect", counting)

    async def scene() -> None:
        with full_backlog() as url:
            one = order(url, limits=RequestLimits(connect_timeout_s=0.2))
            client = client_of(one)
            await client.open(1000)
            assert begun == OPEN_AT_ONCE
            _, row = await send(client, one)
            assert (row["outcome"], row["error_class"], row["connected_ns"]) == (
                "timeout",
                "timeout_connect",
                None,
            )
            assert "connect_timeout_s: 0.2" in str(row["error_message"])
            await client.close()

    run(scene())


@pytest.mark.parametrize("host", ["raybench.invalid", "a..b", "x" * 70])
def test_a_name_that_no_host_has_is_a_connect_error(run: Run[None], host: str) -> None:
    async def scene() -> None:
        one = order(f"http://{host}:1", limits=RequestLimits(connect_timeout_s=5))
        client = client_of(one)
        await client.open(1)
        _, row = await send(client, one)
        await client.close()
        assert (row["outcome"], row["error_class"], row["tries"]) == ("connect_error", "connect_error", 1)

    run(scene())


# Addresses and headers


async def head_of(url_of: Callable[[int], str], host: str, **endpoint: Any) -> str:
    """The head of the one request that reaches a server at `host`."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    async with await asyncio.start_server(serve, host, 0) as server:
        one = order("http://unused:1")
        url = url_of(server.sockets[0].getsockname()[1])
        one = Order(**{**vars(one), "endpoint": Endpoint(url, "sglang", **endpoint)})
        client = client_of(one)
        _, row = await send(client, one)
        await client.close()
    assert row["error_class"] == "http_503", row
    (head,) = heads
    return head.decode()


def lines_of(head: str) -> dict[str, str]:
    """The header lines by lower-case name, each of which must be there once."""
    _, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    names = [line.partition(":")[0].lower() for line in lines]
    assert len(set(names)) == len(names)
    return {name: line.partition(": ")[2] for name, line in zip(names, lines, strict=True)}


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_a_host_may_be_an_ipv6_address(run: Run[str]) -> None:
    head = run(head_of(lambda port: f"http://[::1]:{port}", "::1"))
    assert lines_of(head)["host"].startswith("[::1]:")


def test_a_host_may_be_a_name(run: Run[str]) -> None:
    head = run(head_of(lambda port: f"http://localhost:{port}/", "127.0.0.1"))
    assert lines_of(head)["host"].startswith("localhost:")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "/generate"),
        ("/", "/generate"),
        ("/proxy/sglang-1", "/proxy/sglang-1/generate"),
        ("/proxy/", "/proxy/generate"),
        ("/a%20b", "/a%20b/generate"),
        ("/模型", "/%E6%A8%A1%E5%9E%8B/generate"),
        ('/a"b', "/a%22b/generate"),
    ],
)
def test_the_path_of_the_url_comes_before_the_route(run: Run[str], path: str, expected: str) -> None:
    head = run(head_of(lambda port: f"http://127.0.0.1:{port}{path}", "127.0.0.1"))
    assert head.split("\r\n")[0] == f"POST {expected} HTTP/1.1"


def test_headers_of_the_endpoint_replace_our_own(run: Run[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_KEY", "sk-1")
    headers = {"host": "engine.example", "content-type": "application/json; x", "X-Team": "a"}
    head = run(
        head_of(lambda port: f"http://127.0.0.1:{port}", "127.0.0.1", headers=headers, api_key_env="BENCH_KEY")
    )
    lines = lines_of(head)
    assert (lines["host"], lines["content-type"]) == ("engine.example", "application/json; x")
    assert (lines["x-team"], lines["authorization"]) == ("a", "Bearer sk-1")
    assert lines["content-length"].isdigit()


SCENARIO = """
name: small
arms: {{mine: {{url: "http://host:30000", headers: {{{headers}}}}}}}
workloads:
  - {{name: w, input_tokens: 16, output_tokens: 4, concurrency: [1]}}
corpus: {{synthetic: {{tokens: 4096}}}}
"""


@pytest.mark.parametrize(
    ("headers", "part"),
    [
        (r'"X-A": "a\r\nX-Evil: b"', "no line end"),
        (r'"X-A": "a\nX-Evil: b"', "no line end"),
        (r'"X-A": "a\0"', "printable ASCII"),
        ('"X-A": "ä"', "printable ASCII"),
        (r'"X-A\r\nX-Evil": "b"', "not a header's name"),
        ('"X A": "b"', "not a header's name"),
        ('"X-A:": "b"', "not a header's name"),
        ('"": "b"', "not a header's name"),
        ('"Content-Length": "5"', "made for each request"),
        ('"transfer-encoding": "chunked"', "made for each request"),
    ],
)
def test_headers_that_would_break_a_request_are_refused_in_the_scenario(headers: str, part: str) -> None:
    good = parse_scenario(SCENARIO.format(headers='"X-A": "a b;c=d", "X-Empty": ""'), "test")
    assert good.arms["mine"].headers == {"X-A": "a b;c=d", "X-Empty": ""}
    with pytest.raises(ConfigError) as refused:
        parse_scenario(SCENARIO.format(headers=headers), "test")
    (problem,) = refused.value.problems
    assert problem.path == "arms.mine.headers"
    assert part in problem.message


@pytest.mark.parametrize("key", ["sk-1\n", "sk-1\r\nX-Evil: b", "sk-\0", "sk-ä"])
def test_a_key_that_would_break_a_request_is_refused_and_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The operating system takes no NUL in a variable, but a test does.
    monkeypatch.setattr("os.environ", {"BENCH_KEY": key})
    with pytest.raises(ConfigError) as refused:
        auth_headers({}, "BENCH_KEY")
    assert "BENCH_KEY" in str(refused.value)
    assert "sk-" not in str(refused.value)


# Limits


class FakeClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return self.now_ns


async def looks(times: int) -> None:
    """Let the watchdog look that often, which it does every millisecond."""
    for _ in range(times):
        await asyncio.sleep(0.003)


IN_STREAM = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\n: a\n\n\r\n")


@pytest.mark.parametrize(
    ("limits", "limit_s", "named"),
    [
        (RequestLimits(idle_timeout_s=10, request_timeout_s=None), 10, ("timeout_idle", "idle_timeout_s: 10")),
        (RequestLimits(idle_timeout_s=None, request_timeout_s=60), 60, ("timeout_total", "request_timeout_s: 60")),
        (RequestLimits(idle_timeout_s=90, request_timeout_s=60), 60, ("timeout_total", "request_timeout_s: 60")),
    ],
)
@pytest.mark.parametrize(
    "sent", [(), (b"HTTP/1.1 2",), IN_STREAM], ids=["nothing", "in the head", "in the stream"]
)
def test_o_n2_a_limit_is_kept_to_the_nanosecond_and_named(
    run: Run[None],
    monkeypatch: pytest.MonkeyPatch,
    limits: RequestLimits,
    limit_s: int,
    named: tuple[str, str],
    sent: tuple[bytes, ...],
) -> None:
    monkeypatch.setattr(wire_client, "WATCH_S", 0.001)

    async def scene() -> None:
        silent = asyncio.Event()

        async def script(_asked: Asked, wire: Wire) -> None:
            for data in sent:
                await wire.send(data)
            silent.set()
            await never()

        async with FaultServer(script) as server:
            clock = FakeClock()
            one = order(server.url, limits=limits)
            client = WireClient(one, clock)
            sending = asyncio.ensure_future(send(client, one))
            await silent.wait()
            await looks(5)
            clock.now_ns += limit_s * 10**9 - 1
            await looks(5)
            assert not sending.done()
            clock.now_ns += 1
            _, row = await sending
            assert sockets_to(server.url) == 0
            await client.close()
        assert (row["outcome"], row["error_class"], row["tries"]) == ("timeout", named[0], 1)
        assert named[1] in str(row["error_message"])
        assert row["end_ns"] - row["sent_ns"] == limit_s * 10**9  # type: ignore[operator]

    run(scene())


def test_o_n2_every_byte_begins_the_idle_limit_anew(run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_client, "WATCH_S", 0.001)

    async def scene() -> None:
        go_on: asyncio.Queue[bytes] = asyncio.Queue()

        async def script(_asked: Asked, wire: Wire) -> None:
            while True:
                await wire.send(await go_on.get())

        async with FaultServer(script) as server:
            clock = FakeClock()
            one = order(server.url, limits=RequestLimits(idle_timeout_s=10))
            client = WireClient(one, clock)
            sending = asyncio.ensure_future(send(client, one))
            await until(lambda: server.arrivals == 1)
            event = generate_event(2, finish="length") + DONE
            end = b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event)
            for data in (*IN_STREAM, *[IN_STREAM[1]] * 3, b"5", b"\r\n", b": a\n\n\r\n", end):
                clock.now_ns += 9 * 10**9
                await looks(2)
                go_on.put_nowait(data)
                await looks(4)
            _, row = await sending
            await client.close()
        assert row["outcome"] == "ok"
        assert row["end_ns"] - row["sent_ns"] == 9 * 9 * 10**9  # type: ignore[operator]

    run(scene())


def test_a_stall_of_our_own_is_no_silence_of_the_server(run: Run[None]) -> None:
    """The answer lies in the kernel when the loop wakes up, later than the limit."""

    async def scene() -> None:
        async def script(_asked: Asked, wire: Wire) -> None:
            await wire.head()
            for count in range(1, 4):
                await wire.chunk(generate_event(count))
                time.sleep(0.2)  # noqa: ASYNC251
                await asyncio.sleep(0)
            await wire.chunk(generate_event(4, finish="length") + DONE)
            await wire.end()

        async with FaultServer(script) as server:
            one = order(server.url, limits=RequestLimits(idle_timeout_s=0.1))
            client = client_of(one)
            _, row = await send(client, one)
            await client.close()
        assert (row["outcome"], row["output_tokens"]) == ("ok", 4)

    run(scene())


def test_without_any_limit_nothing_is_ever_stopped(run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_client, "WATCH_S", 0.001)

    async def scene() -> None:
        go_on = asyncio.Event()

        async def script(asked: Asked, wire: Wire) -> None:
            await go_on.wait()
            await answer_all(asked, wire)

        async with FaultServer(script) as server:
            clock = FakeClock()
            one = order(server.url, limits=RequestLimits(idle_timeout_s=None, request_timeout_s=None))
            client = WireClient(one, clock)
            sending = asyncio.ensure_future(send(client, one))
            await until(lambda: server.arrivals == 1)
            clock.now_ns += 10**15
            await looks(5)
            go_on.set()
            _, row = await sending
            await client.close()
        assert row["outcome"] == "ok"

    run(scene())


# Sending


def test_sent_is_when_the_kernel_took_the_last_byte(run: Run[None]) -> None:
    """The server reads nothing of a request that is larger than all buffers, for a while."""

    async def scene() -> None:
        clock = AnchoredClock()
        read_ns: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.1)
            read_ns.append(clock.monotonic_ns())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await reader.readexactly(length)
            event = generate_event(2, finish="length") + DONE
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(event), event))

        async with await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**16) as server:
            one = order(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            client = WireClient(one, clock)
            decoder = ENGINES["sglang"].decoder(SHAPE, event_bytes_max=2**20)
            exchange = await client.send("/generate", b" " * 40_000_000, decoder)
            await client.close()
        stamps = exchange.stamps
        assert exchange.failure is None
        assert stamps.connected_ns is not None
        assert stamps.sent_ns is not None
        assert stamps.connected_ns < read_ns[0] < stamps.sent_ns <= stamps.end_ns

    run(scene())


# Giving up


@pytest.mark.parametrize(
    "where", ["connecting", "before the answer", "in the head", "in the stream", "to the end"]
)
def test_a_request_that_is_given_up_closes_its_connection(run: Run[None], where: str) -> None:
    async def scene() -> None:
        open_ = asyncio.Event()
        heads = {
            "in the head": b"HTTP/1.1 200 OK\r\n",
            "to the end": b"HTTP/1.1 200 OK\r\n\r\n" + generate_event(1),
        }

        async def script(_asked: Asked, wire: Wire) -> None:
            if where in heads:
                await wire.send(heads[where])
            elif where == "in the stream":
                await wire.head()
                await wire.chunk(generate_event(1))
            open_.set()
            await never()

        async with FaultServer(script) as server:
            one = order(server.url)
            client = client_of(one)
            sending = asyncio.ensure_future(send(client, one))
            if where == "connecting":
                await asyncio.sleep(0)
            else:
                await open_.wait()
                await asyncio.sleep(0.05)
            sending.cancel()
            _, row = await sending
            await asyncio.sleep(0)
            assert sockets_to(server.url) == 0
            await client.close()
        assert (row["outcome"], row["error_class"], row["tries"]) == ("cancelled", "cancelled", 1)
        assert row["partial_output_tokens"] == int(where in ("in the stream", "to the end"))
        assert_stamps_ordered(row)

    run(scene())


def test_an_opening_that_is_given_up_leaves_no_socket(run: Run[None]) -> None:
    async def scene() -> None:
        async with FaultServer(answer_all) as server:
            client = client_of(order(server.url))
            opening = asyncio.ensure_future(client.open(200))
            await asyncio.sleep(0.001)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await client.close()
            assert sockets_to(server.url) == 0

    run(scene())


@pytest.mark.parametrize("requests", [0, 3])
def test_close_leaves_no_socket_and_no_task(run: Run[None], requests: int) -> None:
    async def scene() -> None:
        async with FaultServer(answer_all) as server:
            one = order(server.url, requests=3)
            client = client_of(one)
            await client.open(5)
            for ticket in range(requests):
                await send(client, one, ticket)
            before = sockets_to(server.url)
            await client.close()
            assert (before, sockets_to(server.url)) == (5, 0)
            names = [str(task.get_coro()) for task in asyncio.all_tasks()]
            assert not [name for name in names if "WireClient" in name]

    run(scene())


def test_a_client_that_was_never_used_closes() -> None:
    async def scene() -> None:
        await client_of(order("http://127.0.0.1:9")).close()

    asyncio.run(scene())
