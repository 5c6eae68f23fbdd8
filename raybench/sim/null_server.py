"""`python -m raybench.sim.null_server`: an engine that computes nothing and knows when it wrote what.

The other end of `raybench roofline`, a process of its own on the client's host. It streams one pre-rendered
SSE event after another, paced on an absolute schedule, to any number of streams, and keeps the monotonic time of
every write: the same clock as that of the load workers beside it. Bare sockets, since it shares their cores.

    POST /null/pace    {"ttft_ms": 200, "gap_ms": 20}: of all streams from now on; forgets what was kept
    GET  /null/truth   per request id, the write stamps of its tokens; and the server's own CPU
    POST anything else a stream of `max_tokens` tokens in the words of /v1/completions

Prints one JSON line on stdout when it accepts connections: {"ready": true, "url": ..., "pid": ...}.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import socket
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import orjson
import psutil

from raybench.sim.process import BACKLOG, run

NS_PER_MS = 1_000_000
TICK_S = 0.001

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_RID = re.compile(rb'"rid": ?"([^"]+)"')
_TOKENS = re.compile(rb'"max_tokens": ?([0-9]+)')

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_ENVELOPE = '"id":"null","object":"text_completion","created":0,"model":"null"'


def _event(choices: str, usage: str = "null") -> bytes:
    return f'data: {{{_ENVELOPE},"choices":[{choices}],"usage":{usage}}}\n\n'.encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _choice(finish: str) -> str:
    return f'{{"index":0,"text":" token","logprobs":null,"finish_reason":{finish}}}'


TOKEN = _chunk(_event(_choice("null")))


def last_token(tokens: int) -> bytes:
    """The last token of a stream, and everything behind it."""
    usage = f'{{"prompt_tokens":0,"completion_tokens":{tokens},"total_tokens":{tokens}}}'
    events = _event(_choice('"length"')) + _event("", usage) + b"data: [DONE]\n\n"
    return _chunk(events) + b"0\r\n\r\n"


@dataclass(frozen=True)
class Pace:
    """Time from a request to its first token, and from token to token, in whole ms as of the schedule; 0 is 1."""

    ttft_ms: int = 0
    gap_ms: int = 1


class Stream:
    """One answer under way. writes: monotonic ns right before each token was handed to the socket."""

    __slots__ = ("left", "tokens", "transport", "writes")

    def __init__(self, transport: asyncio.Transport, tokens: int) -> None:
        self.transport = transport
        self.tokens = self.left = tokens
        self.writes = array("q")

    def write(self) -> bool:
        """The next token; True while there are more. Nothing to a client that has left."""
        if self.transport.is_closing():
            return False
        self.left -= 1
        self.writes.append(time.monotonic_ns())
        self.transport.write(TOKEN if self.left else last_token(self.tokens))
        return self.left > 0


@dataclass
class Usage:
    """CPU between the first and the last write: of this process, and of the whole host, in seconds."""

    begun: tuple[float, float, float, float] | None = None
    ended: tuple[float, float, float, float] | None = None

    @staticmethod
    def now() -> tuple[float, float, float, float]:
        """(monotonic, this process, host busy, host in all)."""
        host = psutil.cpu_times()
        whole = sum(host[:8])  # guest times, behind them, are in user and nice already
        return time.monotonic(), time.process_time(), whole - host.idle - getattr(host, "iowait", 0.0), whole

    def shares(self) -> dict[str, float | None]:
        """cpu_share: of one core. node_cpu_share: of all cores, by everything on the host."""
        if self.begun is None or self.ended is None or self.ended[0] <= self.begun[0]:
            return {"cpu_share": None, "node_cpu_share": None}
        wall, own, busy, whole = (end - begin for begin, end in zip(self.begun, self.ended, strict=True))
        return {"cpu_share": own / wall, "node_cpu_share": busy / whole if whole > 0 else None}


class Pacer:
    """All streams, by the tick (1 ms of the monotonic clock) at which their next token is due."""

    def __init__(self) -> None:
        self._due: defaultdict[int, list[Stream]] = defaultdict(list)
        self._tick = 0
        self._open = 0
        self._timer: asyncio.TimerHandle | None = None
        self.set_pace(Pace())

    def set_pace(self, pace: Pace) -> None:
        self._pace = pace
        self._kept: dict[str, Stream] = {}
        self._usage = Usage()

    def add(self, rid: str, stream: Stream) -> None:
        self._kept[rid] = stream
        now = time.monotonic_ns() // NS_PER_MS
        if self._timer is None:
            self._tick = now
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._turn)
        self._due[max(self._tick, now) + max(1, self._pace.ttft_ms)].append(stream)
        self._open += 1

    def truth(self) -> dict[str, object]:
        """Write stamps by request id, and CPU shares."""
        writes = {rid: stream.writes.tolist() for rid, stream in self._kept.items()}
        return {"writes": writes, **self._usage.shares()}

    def _turn(self) -> None:
        """Everything that is due. A late turn makes up for all ticks that it missed."""
        now = time.monotonic_ns() // NS_PER_MS
        while self._tick <= now:
            due = self._due.pop(self._tick, ())
            if due and self._usage.begun is None:
                self._usage.begun = Usage.now()
            later = self._due[self._tick + max(1, self._pace.gap_ms)] if due else []
            for stream in due:
                if stream.write():
                    later.append(stream)
                else:
                    self._open -= 1
            self._tick += 1
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._turn)
        else:
            self._timer = None
            self._due.clear()
            self._usage.ended = Usage.now()


class Connection(asyncio.Protocol):
    """One client connection: requests one after the other, never two at a time."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._transport: asyncio.Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._buffer, 0, end + 2)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) >= size:
            path = self._buffer.split(b" ", 2)[1]
            body, self._buffer = self._buffer[end + 4 : size], self._buffer[size:]
            self._answer(path, body)

    def _answer(self, path: bytes, body: bytes) -> None:
        assert self._transport is not None
        rid, tokens = _RID.search(body), _TOKENS.search(body)
        if path == b"/null/pace":
            self._pacer.set_pace(Pace(**orjson.loads(body)))
            self._reply("200 OK", b"{}")
        elif path == b"/null/truth":
            self._reply("200 OK", orjson.dumps(self._pacer.truth()))
        elif rid is None or tokens is None or not int(tokens[1]):
            self._reply("400 Bad Request", b'{"error":"a rid and max_tokens from 1 are needed"}')
        else:
            self._transport.write(_HEAD)
            self._pacer.add(rid[1].decode(), Stream(self._transport, int(tokens[1])))

    def _reply(self, status: str, body: bytes) -> None:
        assert self._transport is not None
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


@asynccontextmanager
async def serving(host: str) -> AsyncIterator[str]:
    """The null server on the running event loop while the block lasts; gives its URL."""
    listener = socket.create_server((host, 0), backlog=BACKLOG)
    pacer = Pacer()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(pacer), sock=listener, backlog=BACKLOG
    )
    gc.disable()  # a collection over thousands of streams would be a pause of all of them
    yield f"http://{host}:{listener.getsockname()[1]}"
    server.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="raybench.sim.null_server", description="A server that only writes.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--parent-pid", type=int, help="stop when this process is gone")
    options = parser.parse_args(arguments)
    run(serving(options.host), parent_pid=options.parent_pid)
    return 0


if __name__ == "__main__":
    sys.exit(main())
