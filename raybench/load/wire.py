"""One HTTP/1.1 connection that costs as little as Python allows and stamps where bytes arrive.

Runs in a load worker, under `load/wire_client.py`. Not a general HTTP client: it sends one prepared
request at a time over plain TCP, and reads a response with a length, in chunks, or up to the
connection's end. No task wakes up before the response has ended: `data_received` stamps, strips the
framing and feeds the decoder. TLS, proxies and compression go through `load/plain_client.py`.

Source of the framing: RFC 9112, sections 6 and 7. Whatever does not fit is a WireError, never a guess.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

#: A response head larger than this is refused.
HEAD_BYTES_MAX = 64 * 1024
#: Longest line of a chunk's size, extensions included.
SIZE_LINE_MAX = 1024


class WireError(Exception):
    """The peer does not speak HTTP/1.1 as this module understands it."""


class Body(Protocol):
    """Where the bytes of a response body go (an engine's decoder)."""

    def feed(self, data: bytes, stamp_ns: int) -> None: ...


class Response:
    """One response under way, and its stamps. `error_body` holds what came with a status other than 200."""

    __slots__ = ("body", "close", "complete", "done", "error_body", "head_ns", "last_ns", "sent_ns", "status")

    def __init__(self, body: Body, done: asyncio.Future[None]) -> None:
        self.body = body
        self.done = done
        self.sent_ns: int | None = None
        self.head_ns: int | None = None
        self.last_ns: int | None = None
        self.status: int | None = None
        self.complete = False
        self.close = False
        self.error_body = bytearray()


#: How the body of the response under way is framed.
_IDLE, _HEAD, _CHUNKS, _LENGTH, _UNTIL_CLOSE = range(5)


class Wire(asyncio.Protocol):
    """A connection. `request` sends; the response's future ends with the response."""

    __slots__ = ("_buffer", "_framing", "_left", "_now", "_response", "_transport", "closed", "used")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now = now_ns
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._framing = _IDLE
        self._buffer = b""
        self._left = 0
        self.closed = False
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have this interface without this base class.
        self._transport = cast(asyncio.Transport, transport)
        # Told as soon as anything waits in the process, so that "sent" means the kernel has it all.
        self._transport.set_write_buffer_limits(high=0)

    def request(self, head: bytes, payload: bytes, response: Response) -> None:
        """Send one request. `response` gets `sent_ns` when the kernel has taken all of it."""
        assert self._framing == _IDLE and self._transport is not None
        self._response, self._framing = response, _HEAD
        self.used = True
        self._transport.write(head + payload)
        if response.sent_ns is None and self._transport.get_write_buffer_size() == 0:
            response.sent_ns = self._now()

    def resume_writing(self) -> None:
        if self._response is not None and self._response.sent_ns is None:
            self._response.sent_ns = self._now()

    def data_received(self, data: bytes) -> None:
        stamp_ns = self._now()
        response = self._response
        if response is None:
            self.abort()  # bytes that nobody asked for: this connection is not to be trusted
            return
        response.last_ns = stamp_ns
        if self._framing == _CHUNKS and not self._left and not self._buffer:
            # What engines send: one read, one whole chunk.
            end = data.find(b"\r\n", 0, 18)
            try:
                if end > 0 and (size := int(data[:end], 16)) and end + size + 4 == len(data):
                    response.body.feed(data[end + 2 : -2], stamp_ns)
                    return
            except ValueError:
                pass
        try:
            self._read(response, data, stamp_ns)
        except WireError as error:
            self._fail(error)
        if response.error_body and self._response is response:
            # The start of a refusal says enough: a body that never ends must not hold the slot.
            self._response, self._framing = None, _IDLE
            self.abort()
            if not response.done.done():
                response.done.set_result(None)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        response = self._response
        if response is None:
            return
        if self._framing == _UNTIL_CLOSE and error is None:
            self._end(response)
        else:
            self._fail(error or ConnectionResetError("the server closed the connection"))

    def abort(self) -> None:
        """Close at once; what is under way is lost."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def _read(self, response: Response, data: bytes, stamp_ns: int) -> None:
        """Any read, however it is cut: head, chunks, length."""
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        if self._framing == _HEAD:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > HEAD_BYTES_MAX:
                    raise WireError(f"a response head of more than {HEAD_BYTES_MAX} bytes")
                self._buffer = data
                return None
            head, data = data[:end], data[end + 4 :]
            status = _status(head)
            if 100 <= status < 200:
                return self._read(response, data, stamp_ns) if data else None
            response.status, response.head_ns = status, stamp_ns
            self._begin_body(response, head)
        if self._framing == _CHUNKS:
            self._read_chunks(response, data, stamp_ns)
        elif self._framing == _LENGTH:
            piece, rest = data[: self._left], data[self._left :]
            self._give(response, piece, stamp_ns)
            self._left -= len(piece)
            if rest:
                raise WireError("more bytes than the response's content-length")
            if not self._left:
                self._end(response)
        elif self._framing == _UNTIL_CLOSE:
            self._give(response, data, stamp_ns)
        return None

    def _begin_body(self, response: Response, head: bytes) -> None:
        lines = head.lower().split(b"\r\n")
        fields = {name.strip(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
        encoding = fields.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            raise WireError(f"a compressed response ({encoding.decode('latin-1')}) that was not asked for")
        response.close = b"close" in fields.get(b"connection", b"") or lines[0].startswith(b"http/1.0")
        if fields.get(b"transfer-encoding", b"").endswith(b"chunked"):
            self._framing, self._left = _CHUNKS, 0
        elif (length := fields.get(b"content-length")) is not None:
            if not length.isdigit():
                raise WireError(f"content-length {length.decode('latin-1')!r}")
            self._framing, self._left = _LENGTH, int(length)
        else:
            self._framing, response.close = _UNTIL_CLOSE, True

    def _read_chunks(self, response: Response, data: bytes, stamp_ns: int) -> None:
        """Chunks of one read; their contents are given on as one piece, with the stamp of the read.

        `_left` > 0: bytes still to come of a chunk's content; -2, -1: of the line end behind it.
        """
        pieces: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            if self._left > 0:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._left = -2
                continue
            if self._left < 0:
                if data[at] != b"\r\n"[self._left + 2]:
                    raise WireError("a chunk without its line end")
                at += 1
                self._left += 1
                continue
            end = data.find(b"\n", at)
            if end < 0:
                if size - at > SIZE_LINE_MAX:
                    raise WireError("a chunk size without an end")
                self._buffer = data[at:]
                break
            length = _chunk_size(data[at:end])
            if not length:
                tail = data.find(b"\r\n\r\n", end - 1)  # the empty line behind the trailers
                if tail < 0:
                    self._buffer = data[at:]
                    break
                self._give(response, b"".join(pieces), stamp_ns)
                if tail + 4 != size:
                    raise WireError("bytes behind the last chunk")
                self._end(response)
                return
            at, self._left = end + 1, length
        if pieces:
            self._give(response, pieces[0] if len(pieces) == 1 else b"".join(pieces), stamp_ns)

    def _give(self, response: Response, piece: bytes, stamp_ns: int) -> None:
        if not piece:
            return
        if response.status == 200:
            response.body.feed(piece, stamp_ns)
        elif len(response.error_body) < HEAD_BYTES_MAX:
            response.error_body += piece

    def _end(self, response: Response) -> None:
        response.complete = True
        self._response, self._framing = None, _IDLE
        if response.close:
            self.close()
        if not response.done.done():
            response.done.set_result(None)

    def _fail(self, error: Exception) -> None:
        response, self._response, self._framing = self._response, None, _IDLE
        self.abort()
        if response is not None and not response.done.done():
            response.done.set_exception(error)


def _status(head: bytes) -> int:
    if not (head.startswith(b"HTTP/1.") and head[8:9] == b" " and head[9:12].isdigit()):
        raise WireError(f"not a status line: {head[:80].decode('latin-1')!r}")
    return int(head[9:12])


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    try:
        return int(digits, 16)
    except ValueError:
        raise WireError(f"not a chunk size: {digits[:40].decode('latin-1')!r}") from None
