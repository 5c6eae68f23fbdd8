"""The client for whatever plain HTTP/1.1 is not: TLS, proxies. Runs in a load worker.

The plain way over aiohttp's public interface: aiohttp does connections, TLS, request writing and
HTTP framing; trace hooks stamp when a connection was obtained and when the body was handed to the
socket; each read is stamped before it is decoded. A failed request is a record, never an exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import aiohttp

from raybench.engines.contract import Decoder
from raybench.load.exchange import ERROR_TEXT_MAX, LIMIT_OF, Exchange, Failure, Stamps, Try, send_with_retry
from raybench.load.http import auth_headers, tls_context
from raybench.load.order import Order
from raybench.load.routes import Routes, bound_socket, require_own
from raybench.records.clock import Clock
from raybench.records.schema import Outcome
from raybench.scenario.schema import RequestLimits

#: What aiohttp may hold unread of one answer before it stops reading from the socket.
READ_BYTES_MAX = 1024 * 1024


#: (exceptions, outcome, error_class): the first line that fits an exception names its failure.
FAILURES: tuple[tuple[tuple[type[BaseException], ...], Outcome, str], ...] = (
    ((aiohttp.ConnectionTimeoutError,), "timeout", "timeout_connect"),
    ((aiohttp.ServerTimeoutError,), "timeout", "timeout_idle"),
    ((TimeoutError,), "timeout", "timeout_total"),
    ((aiohttp.ClientConnectorError, aiohttp.ServerFingerprintMismatch), "connect_error", "connect_error"),
    ((aiohttp.ServerConnectionError,), "disconnected", "disconnected"),
    ((aiohttp.ClientPayloadError,), "disconnected", "broken_stream"),
    ((aiohttp.ClientResponseError, aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError), "bad_stream", "bad_http"),
    ((aiohttp.RedirectClientError,), "bad_stream", "bad_http"),
    ((aiohttp.ClientConnectionError, aiohttp.UploadAbortedError, OSError), "disconnected", "connection_reset"),
)


def classify(error: BaseException, limits: RequestLimits) -> Failure:
    """What aiohttp or the socket raised for a request, as a Failure; a timeout names its limit."""
    if isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str):
        # aiohttp puts what it has read of the headers where its text stands otherwise.
        return Failure("disconnected", "broken_stream", "the connection was closed inside the response's headers")
    fitting = ((outcome, name) for kinds, outcome, name in FAILURES if isinstance(error, kinds))
    outcome, error_class = next(fitting, ("bad_stream", "client_error"))
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    if error_class in LIMIT_OF:
        name = LIMIT_OF[error_class]
        text = f"{text} (limit {name}: {getattr(limits, name)})"
    return Failure(outcome, error_class, text[:ERROR_TEXT_MAX])


class PlainClient:
    """`load.client.Client` of one worker for one order. Fresh connections for each order (case O-N4)."""

    name = "plain"

    def __init__(self, order: Order, clock: Clock) -> None:
        self._order = order
        self._clock = clock
        endpoint = order.endpoint
        limits = order.load.request
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(self._on_created)
        trace.on_connection_reuseconn.append(self._on_reused)
        trace.on_request_chunk_sent.append(self._on_sent)
        tls = tls_context(endpoint.tls)

        def session(source: str | None, *, keep_connections: bool) -> aiohttp.ClientSession:
            make_socket = None if source is None else (lambda _address: bound_socket(source))
            return aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, ssl=tls, force_close=not keep_connections, socket_factory=make_socket
                ),
                headers=auth_headers(endpoint.headers, endpoint.api_key_env)
                | {"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(
                    total=limits.request_timeout_s,
                    sock_connect=limits.connect_timeout_s,
                    sock_read=limits.idle_timeout_s,
                ),
                trace_configs=[trace],
                read_bufsize=READ_BYTES_MAX,
                trust_env=False,
            )

        sources = require_own(order.load.source_addresses)
        self._routes = Routes(sources, [endpoint.url, *endpoint.load_urls], order.first_route)
        used = {route.source for route in self._routes.all}
        self._sessions = {source: session(source, keep_connections=True) for source in used}
        # The pool may hold more connections that the server has closed, so a second try takes none of it.
        self._fresh = {source: session(source, keep_connections=False) for source in used}

    async def open(self, count: int) -> None:
        """Nothing: aiohttp opens a connection when a request needs it."""

    async def close(self) -> None:
        for session in (*self._sessions.values(), *self._fresh.values()):
            await session.close()

    def unread(self) -> list[int]:
        """Not known: aiohttp keeps its sockets to itself."""
        return []

    async def send(self, path: str, body: bytes, decoder: Decoder) -> Exchange:
        """One request, to its end."""
        asked_ns = self._clock.monotonic_ns()
        route = self._routes.take()

        def send(fresh: bool) -> Awaitable[Try]:
            session = (self._fresh if fresh else self._sessions)[route.source]
            return self._try(session, route.url + path, body, decoder, asked_ns)

        exchange = await send_with_retry(send, decoder)
        self._routes.give_back(route)
        return exchange

    async def _try(
        self, session: aiohttp.ClientSession, url: str, body: bytes, decoder: Decoder, asked_ns: int
    ) -> Try:
        clock = self._clock
        stamps = Stamps(asked_ns)
        status: int | None = None
        failure: Failure | None = None
        complete = False
        try:
            async with session.post(
                url,
                data=body,
                allow_redirects=False,
                trace_request_ctx=stamps,
            ) as response:
                stamps.headers_ns = clock.monotonic_ns()
                status = response.status
                if status == 200:
                    async for data in response.content.iter_any():
                        decoder.feed(data, clock.monotonic_ns())
                    complete = True
                else:
                    text = (await response.content.read(ERROR_TEXT_MAX)).decode("utf-8", "replace")
                    failure = Failure("http_error", f"http_{status}", text)
        except asyncio.CancelledError:
            failure = Failure("cancelled", "cancelled", "the attempt was given up")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            failure = classify(error, self._order.load.request)
        stamps.end_ns = clock.monotonic_ns()
        broken = failure is not None and failure.error_class == "broken_stream"
        return Try(stamps, status, failure, complete, silent=stamps.headers_ns is None and not broken)

    async def _on_created(self, _session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.connected_ns = self._clock.monotonic_ns()

    async def _on_reused(self, _session: Any, context: Any, _params: Any) -> None:
        context.trace_request_ctx.connected_ns = self._clock.monotonic_ns()
        context.trace_request_ctx.reused = True

    async def _on_sent(self, _session: Any, context: Any, _params: Any) -> None:
        # Called right before the last piece of the body is written to the transport.
        context.trace_request_ctx.sent_ns = self._clock.monotonic_ns()
