"""The cheap client: plain HTTP/1.1 over our own connections, opened before the start. Runs in a load worker.

One task wake-up a request, none a token; stamps are taken where bytes arrive (`wire.py`). Timeouts
are kept by one watchdog for all requests, since a timer that is set anew at every read costs more than
the read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from raybench.engines.contract import Decoder
from raybench.load.exchange import ERROR_TEXT_MAX, LIMIT_OF, Exchange, Failure, Stamps, Try, send_with_retry
from raybench.load.http import auth_headers
from raybench.load.order import Order
from raybench.load.routes import Route, Routes, connected_socket, require_own
from raybench.load.wire import Response, ServerClosed, Wire, WireError
from raybench.records.clock import Clock

#: Connections that are opened at a time: a listen queue holds 128 or more.
OPEN_AT_ONCE = 64
#: Servers close a connection that idles (uvicorn after 5 s), also one that was opened ahead and never used.
IDLE_S = 1.0
#: Connections whose receive queues are looked at in one look: about 50 us.
UNREAD_SAMPLE = 32
#: How often the watchdog looks, and the longest share of a limit by which it may be late.
WATCH_S, WATCH_SHARE = 0.25, 0.1


class WireClient:
    """`load.client.Client` for one order. All its connections are its own and end with it."""

    name = "wire"

    def __init__(self, order: Order, clock: Clock) -> None:
        self._limits = order.load.request
        self._now = clock.monotonic_ns
        endpoint = order.endpoint
        sources = require_own(order.load.source_addresses)
        self._routes = Routes(sources, [endpoint.url, *endpoint.load_urls], order.first_route)
        given = auth_headers(endpoint.headers, endpoint.api_key_env)
        self._targets = {route.url: _Target.of(route.url, given) for route in self._routes.all}
        self._idle: list[Wire] = []
        self._open: dict[Wire, Route] = {}
        self._to_look_at: deque[Wire] = deque()
        self._live: dict[Response, tuple[Wire, Stamps]] = {}
        self._watchdog: asyncio.Task[None] | None = None

    async def open(self, count: int) -> None:
        """Open connections ahead of the start, so that their set-up is no part of a TTFT.

        Those that cannot be opened now are tried again by the requests that need them, and fail there.
        """
        self._watch_limits()
        for first in range(0, count, OPEN_AT_ONCE):
            some = range(first, min(count, first + OPEN_AT_ONCE))
            opened = await asyncio.gather(*(self._connect() for _ in some), return_exceptions=True)
            self._idle += [result for result in opened if isinstance(result, Wire)]
            failed = [result for result in opened if isinstance(result, BaseException)]
            for failure in failed:
                if not isinstance(failure, _LimitReached | OSError):
                    raise failure
            if failed:
                return  # the next ones would wait as long for as little

    async def close(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            await asyncio.gather(self._watchdog, return_exceptions=True)
        for wire in self._open:
            wire.abort()
        await asyncio.sleep(0)  # in which the loop closes the sockets

    async def send(self, path: str, body: bytes, decoder: Decoder) -> Exchange:
        """One request, to its end."""
        self._watch_limits()
        asked_ns = self._now()
        return await send_with_retry(lambda fresh: self._try(path, body, decoder, asked_ns, fresh), decoder)

    def unread(self) -> list[int]:
        """By turns over all requests under way, UNREAD_SAMPLE at a time."""
        if len(self._to_look_at) < UNREAD_SAMPLE:
            self._to_look_at = deque(wire for wire, _ in self._live.values())
        count = min(UNREAD_SAMPLE, len(self._to_look_at))
        return [self._to_look_at.popleft().unread_bytes() for _ in range(count)]

    async def _try(self, path: str, body: bytes, decoder: Decoder, asked_ns: int, fresh: bool) -> Try:
        stamps = Stamps(asked_ns)
        response = Response(decoder, asyncio.get_running_loop().create_future())
        failure: Failure | None = None
        wire: Wire | None = None
        try:
            wire = await self._take(fresh)
            stamps.connected_ns, stamps.connect_ns = self._now(), wire.connect_ns
            stamps.reused = wire.used or stamps.connected_ns - wire.free_since_ns >= IDLE_S * 1e9
            self._live[response] = (wire, stamps)
            wire.request(self._targets[self._open[wire].url].head(path, len(body)), body, response)
            await response.done
            if response.status != 200:
                text = response.error_body[:ERROR_TEXT_MAX].decode("utf-8", "replace")
                failure = Failure("http_error", f"http_{response.status}", text)
        except asyncio.CancelledError:
            failure = Failure("cancelled", "cancelled", "the attempt was given up")
        except WireError as error:
            failure = Failure("bad_stream", "bad_http", str(error)[:ERROR_TEXT_MAX])
        except _LimitReached as limit:
            failure = limit.failure
        except OSError as error:
            failure = _classify(error, wire, response)
        self._live.pop(response, None)
        stamps.sent_ns, stamps.headers_ns = response.sent_ns, response.headers_ns
        stamps.end_ns = response.last_ns if failure is None and response.last_ns is not None else self._now()
        if wire is not None:
            self._give_back(wire, failure)
        return Try(stamps, response.status, failure, response.complete, silent=response.last_ns is None)

    async def _take(self, fresh: bool) -> Wire:
        while self._idle and not fresh:
            wire = self._idle.pop()
            if not wire.closed:
                return wire
            self._forget(wire)
        return await self._connect()

    async def _connect(self) -> Wire:
        begin_ns = self._now()
        timeout_s = self._limits.connect_timeout_s
        route = self._routes.take()
        wire: Wire | None = None
        try:
            async with asyncio.timeout(timeout_s) as limit:
                wire = await self._connect_over(route)
        except TimeoutError:
            if not limit.expired():
                raise  # the kernel's own, on its way to a host that does not answer
            raise _LimitReached("timeout_connect", timeout_s) from None
        except UnicodeError as error:
            raise OSError(f"{self._targets[route.url].host!r} is no name of a host: {error}") from None
        finally:
            if wire is None:
                self._routes.give_back(route)
        self._open[wire] = route
        wire.free_since_ns = self._now()
        wire.connect_ns = wire.free_since_ns - begin_ns
        return wire

    async def _connect_over(self, route: Route) -> Wire:
        loop, target = asyncio.get_running_loop(), self._targets[route.url]
        if route.source is None:
            _, wire = await loop.create_connection(lambda: Wire(self._now), target.host, target.port)
            return wire
        sock = await connected_socket(route.source, target.host, target.port)
        _, wire = await loop.create_connection(lambda: Wire(self._now), sock=sock)
        return wire

    def _forget(self, wire: Wire) -> None:
        """A closed connection; one is told of once by its request and may be found closed again."""
        route = self._open.pop(wire, None)
        if route is not None:
            self._routes.give_back(route)

    def _give_back(self, wire: Wire, failure: Failure | None) -> None:
        if failure is not None and failure.outcome != "http_error":
            wire.abort()
        if wire.closed:
            self._forget(wire)
        else:
            self._idle.append(wire)

    def _watch_limits(self) -> None:
        """Begin to keep the time limits of the order, if it has any."""
        if self._watchdog is None:
            set_limits = (self._limits.idle_timeout_s, self._limits.request_timeout_s)
            pauses_s = [limit * WATCH_SHARE for limit in set_limits if limit is not None]
            self._watchdog = asyncio.ensure_future(self._watch(min([WATCH_S, *pauses_s])))

    async def _watch(self, pause_s: float) -> None:
        limits = self._limits
        idle_ns = None if limits.idle_timeout_s is None else int(limits.idle_timeout_s * 1e9)
        total_ns = None if limits.request_timeout_s is None else int(limits.request_timeout_s * 1e9)
        while idle_ns is not None or total_ns is not None:
            await asyncio.sleep(pause_s)
            now_ns = self._now()
            silent: list[tuple[Response, int | None]] = []
            for response, (_, stamps) in self._live.items():
                begin_ns = stamps.connected_ns or stamps.asked_ns
                quiet_ns = now_ns - (response.last_ns or response.sent_ns or begin_ns)
                if total_ns is not None and now_ns - begin_ns >= total_ns:
                    _stop(response, _LimitReached("timeout_total", limits.request_timeout_s))
                elif idle_ns is not None and quiet_ns >= idle_ns:
                    silent.append((response, response.last_ns))
            if silent:
                # After a stall of ours their bytes may lie in the kernel: two turns of the loop read them.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            for response, last_ns in silent:
                if response.last_ns == last_ns:
                    _stop(response, _LimitReached("timeout_idle", limits.idle_timeout_s))


class _Target:
    """One address of the engine: where to connect, and the heads of requests to it."""

    def __init__(self, host: str, port: int, prefix: str, headers: str) -> None:
        self.host = host
        self.port = port
        self._prefix = prefix
        self._headers = headers
        self._heads: dict[str, bytes] = {}

    @classmethod
    def of(cls, text: str, given: Mapping[str, str]) -> _Target:
        """given: headers that win over our own."""
        url = urlsplit(text)
        assert url.scheme == "http" and url.hostname is not None, f"{text} is not plain HTTP"
        names = {name.lower() for name in given}
        own = {"Host": url.netloc, "Content-Type": "application/json", "Accept": "*/*"}
        headers = {name: value for name, value in own.items() if name.lower() not in names} | dict(given)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return cls(url.hostname, url.port or 80, quote(url.path.rstrip("/"), safe="/%:@!$&'()*+,;=~"), lines)

    def head(self, path: str, length: int) -> bytes:
        head = self._heads.get(path)
        if head is None:
            head = f"POST {self._prefix}{path} HTTP/1.1\r\n{self._headers}Content-Length: ".encode()
            self._heads[path] = head
        return b"%b%d\r\n\r\n" % (head, length)


class _LimitReached(Exception):
    """A time limit of the order; carries the failure that it makes of the request."""

    def __init__(self, error_class: str, limit_s: float | None) -> None:
        text = f"limit {LIMIT_OF[error_class]}: {limit_s} s"
        super().__init__(text)
        self.failure = Failure("timeout", error_class, text)


def _stop(response: Response, reason: _LimitReached) -> None:
    if not response.done.done():
        response.done.set_exception(reason)


def _classify(error: Exception, wire: Wire | None, response: Response) -> Failure:
    text = f"{type(error).__name__}: {error}".removesuffix(": ")[:ERROR_TEXT_MAX]
    if wire is None:
        return Failure("connect_error", "connect_error", text)
    if response.last_ns is None:
        error_class = "disconnected" if isinstance(error, ServerClosed) else "connection_reset"
        return Failure("disconnected", error_class, text)
    return Failure("disconnected", "broken_stream", text)
