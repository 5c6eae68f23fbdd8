"""A raw HTTP server on loopback whose every byte a test decides, and who counts what arrives.

A script is a coroutine `(asked, wire) -> None` that answers one request. It may write anything, at any
time, or close the connection. Nothing here knows aiohttp or raybench.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType


@dataclass(frozen=True)
class Asked:
    """One request. connection: which one brought it, from the address `peer`; nth: 1 for its first request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    nth: int
    peer: str

    @property
    def json(self) -> dict[str, object]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


class Wire:
    """The way back to the client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.closed = False

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: str = "200 OK", *headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def plain(self, status: str, body: bytes, *headers: str) -> None:
        """A whole answer of known length."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def close(self) -> None:
        self.closed = True
        self._writer.close()

    def reset(self) -> None:
        """End the connection by RST instead of FIN."""
        self.closed = True
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def break_off(self, how: str) -> None:
        """how: close or reset."""
        {"close": self.close, "reset": self.reset}[how]()


Script = Callable[[Asked, Wire], Awaitable[None]]


@dataclass
class FaultServer:
    """`async with FaultServer(script) as server:`; `server.url` reaches it."""

    script: Script
    arrivals: int = 0
    in_flight: int = 0
    peak: int = 0
    connections: int = 0
    asked: list[Asked] = field(default_factory=list)

    async def __aenter__(self) -> FaultServer:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024, limit=2**24)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def done(self) -> None:
        """A script may say that its request is over before the last byte leaves, so that no client can
        answer it with the next one first; otherwise its return says so."""
        self.in_flight -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection, nth = self.connections, 0
        peer = str(writer.get_extra_info("peername")[0])
        wire = Wire(writer)
        try:
            while not wire.closed and (asked := await _read(reader, connection, nth + 1, peer)) is not None:
                nth += 1
                self.arrivals += 1
                self.asked.append(asked)
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                before = self.in_flight
                await self.script(asked, wire)
                assert before > 0
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()


@contextmanager
def full_backlog() -> Iterator[str]:
    """The URL of a host that takes no connection: its kernel neither accepts nor refuses."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}"


async def _read(reader: asyncio.StreamReader, connection: int, nth: int, peer: str) -> Asked | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode().rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body, connection, nth, peer)


def generate_event(tokens: int, text: str = "x", *, finish: str | None = None, prompt: int = 64) -> bytes:
    """One event of SGLang's /generate: cumulative text, `tokens` so far."""
    meta: dict[str, object] = {"prompt_tokens": prompt, "completion_tokens": tokens, "cached_tokens": 0}
    meta["finish_reason"] = None if finish is None else {"type": finish, "length": tokens}
    return b"data: " + json.dumps({"text": text * tokens, "meta_info": meta}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


async def answer(server: FaultServer, wire: Wire, *, tokens: int = 2, prompt: int = 64) -> None:
    """A whole good answer of `tokens` tokens; the request counts as over just before its last bytes."""
    await wire.head()
    for count in range(1, tokens):
        await wire.chunk(generate_event(count, prompt=prompt))
    server.done()
    await wire.chunk(generate_event(tokens, finish="length", prompt=prompt) + DONE)
    await wire.end()
