"""One HTTP/1.1 connection that costs as little as Python allows and stamps where bytes arrive.

Runs in a load worker, under `load/wire_client.py`. Not a general HTTP client: it sends one prepared
request at a time over plain TCP, and reads a response with a length, in chunks, or up to the
connection's end. No task wakes up before the response has ended: `data_received` stamps, strips the
framing and feeds the decoder. TLS, proxies and compression go through `load/plain_client.py`.

Source of the framing: RFC 9112, sections 6 and 7. Whatever does not fit is a WireError, never a guess.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import sys
import termios
from collections.abc import Callable
from typing import Protocol, cast

#: A response head larger than this is refused, and so are trailers.
HEAD_BYTES_MAX = 64 * 1024
#: Longest line of a chunk's size, extensions included.
SIZE_LINE_MAX = 1024

_HEX_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_DECIMAL_SIZE = re.compile(rb"[0-9]{1,18}")


class WireError(Exception):
    """The peer does not speak HTTP/1.1 as this module understands it."""


class ServerClosed(ConnectionResetError):
    """The server ended the connection in an orderly way before the response was complete."""


class Body(Protocol):
    """Where the bytes of a response body go (an engine's decoder)."""

    def feed(self, data: bytes, stamp_ns: int) -> None: ...


class Response:
    """One response under way, and its stamps. error_body: with a status other than 200, its first piece."""

    __slots__ = ("body", "close", "complete", "done", "error_body", "headers_ns", "last_ns", "sent_ns", "status")

    def __init__(self, body: Body, done: asyncio.Future[None]) -> None:
        self.body = body
        self.done = done
        self.sent_ns: int | None = None
        self.headers_ns: int | None = None
        self.last_ns: int | None = None
        self.status: int | None = None
        self.complete = False
        self.close = False
        self.error_body = b""


#: How the body of the response under way is framed.
_IDLE, _HEAD, _CHUNKS, _LENGTH, _UNTIL_CLOSE = range(5)


class Wire(asyncio.Protocol):
    """A connection. `request` sends; the response's future ends with the response.

    closed: it carries no more requests. connect_ns: how long its set-up took, free_since_ns: since when it has
    waited for a request; both are kept here by who opened it.
    """

    __slots__ = (
        "_at_chunk",
        "_buffer",
        "_framing",
        "_left",
        "_now",
        "_response",
        "_transport",
        "closed",
        "connect_ns",
        "free_since_ns",
        "used",
    )

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now = now_ns
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._framing = _IDLE
        self._buffer = b""
        self._left = 0
        self._at_chunk = False  # a chunk of a good response begins with the next byte
        self.closed = False
        self.connect_ns = 0
        self.free_since_ns = 0
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have this interface without this base class.
        self._transport = cast(asyncio.Transport, transport)
        # Told as soon as anything waits in the process, so that "sent" means the kernel has it all.
        self._transport.set_write_buffer_limits(high=0)

    def request(self, head: bytes, payload: bytes, response: Response) -> None:
        """Send one request. `response` gets `sent_ns`: when the kernel was given the last of it.

        Where it took all at once, that is when the call began: it wakes the receiver, who may take our core before
        the call returns, and a stamp behind it would then make the answer look sooner than it was (by 140 ms, seen
        on a busy host).
        """
        assert self._framing == _IDLE and self._transport is not None
        self._response, self._framing = response, _HEAD
        self.used = True
        begin_ns = self._now()
        self._transport.write(head + payload)
        if response.sent_ns is None and self._transport.get_write_buffer_size() == 0:
            response.sent_ns = begin_ns

    def resume_writing(self) -> None:
        if self._response is not None and self._response.sent_ns is None:
            self._response.sent_ns = self._now()

    def unread_bytes(self) -> int:
        """Bytes that have come and that nobody has read yet; 0 for a closed connection."""
        if self.closed or self._transport is None:
            return 0
        handle = self._transport.get_extra_info("socket").fileno()
        return int.from_bytes(fcntl.ioctl(handle, termios.FIONREAD, bytes(4)), sys.byteorder)

    def data_received(self, data: bytes) -> None:
        stamp_ns = self._now()
        response = self._response
        if response is None:
            self.abort()  # bytes that nobody asked for: this connection is not to be trusted
            return
        response.last_ns = stamp_ns
        if self._at_chunk:
            # What engines send: one read, one whole chunk.
            end = data.find(b"\r\n")
            size = len(data) - end - 4
            if size > 0 and data.startswith(b"%x\r\n" % size) and data.endswith(b"\r\n"):
                response.body.feed(data[end + 2 : -2], stamp_ns)
                return
        try:
            self._read(response, data, stamp_ns)
        except WireError as error:
            self._fail(error)
        if response.error_body and self._response is response:
            # The start of a refusal says enough: a body that never ends must not hold the slot.
            self._rest()
            self.abort()
            if not response.done.done():
                response.done.set_result(None)

    def eof_received(self) -> bool:
        self.closed = True
        if self._response is not None and self._framing == _UNTIL_CLOSE:
            self._end(self._response)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._response is not None:
            self._fail(error or ServerClosed("the server closed the connection"))

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
            rest = self._read_head(response, data, stamp_ns)
            if rest is None:
                return
            data = rest
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
        else:
            self._give(response, data, stamp_ns)

    def _read_head(self, response: Response, data: bytes, stamp_ns: int) -> bytes | None:
        """Take the head, and interim ones before it, off `data`; None as long as it is not all there."""
        at, status = 0, 100
        while 100 <= status < 200:
            begin, end = at, data.find(b"\r\n\r\n", at)
            # An end that is not there may have begun in the last three bytes.
            if (end if end >= 0 else len(data) - 3) - begin > HEAD_BYTES_MAX:
                raise WireError(f"a response head of more than {HEAD_BYTES_MAX} bytes")
            if end < 0:
                self._buffer = data[begin:]
                return None
            status, at = _status(data[begin:end]), end + 4
        response.status, response.headers_ns = status, stamp_ns
        self._begin_body(response, data[begin:end])
        return data[at:]

    def _begin_body(self, response: Response, head: bytes) -> None:
        version, fields = _fields(head)
        encoding = fields.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            raise WireError(f"a compressed response ({encoding.decode('latin-1')}) that was not asked for")
        response.close = b"close" in fields.get(b"connection", b"") or version == b"http/1.0"
        transfer, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
        if response.status in (204, 304):
            self._framing, self._left = _LENGTH, 0
        elif transfer is not None:
            if transfer != b"chunked":
                raise WireError(f"transfer-encoding {transfer.decode('latin-1')!r}")
            self._framing, self._left = _CHUNKS, 0
        elif length is not None:
            if not _DECIMAL_SIZE.fullmatch(length):
                raise WireError(f"content-length {length[:40].decode('latin-1')!r}")
            self._framing, self._left = _LENGTH, int(length)
        else:
            self._framing, response.close = _UNTIL_CLOSE, True

    def _read_chunks(self, response: Response, data: bytes, stamp_ns: int) -> None:
        """Chunks of one read; their contents are given on as one piece, with the stamp of the read."""
        pieces: list[bytes] = []
        try:
            ended = self._split_chunks(data, pieces)
        finally:
            # What came before an error came.
            self._give(response, pieces[0] if len(pieces) == 1 else b"".join(pieces), stamp_ns)
        self._at_chunk = response.status == 200 and not self._left and not self._buffer
        if ended:
            self._end(response)

    def _split_chunks(self, data: bytes, pieces: list[bytes]) -> bool:
        """Add what chunks hold to `pieces`; True when the last one, without content, has come.

        `_left` > 0: bytes still to come of a chunk's content; -2, -1: of the line end behind it.
        """
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
            if (end if end >= 0 else size) - at > SIZE_LINE_MAX:
                raise WireError("a chunk size without an end")
            if end < 0:
                self._buffer = data[at:]
                return False
            self._left = _chunk_size(data[at:end])
            if not self._left:
                return self._at_end(data, at, end)
            at = end + 1
        return False

    def _at_end(self, data: bytes, at: int, line_end: int) -> bool:
        """Is all that follows the last chunk's size at `at` there: trailers, and an empty line?"""
        tail = data.find(b"\r\n\r\n", line_end - 1)
        if (tail if tail >= 0 else len(data) - 3) - at > HEAD_BYTES_MAX:
            raise WireError(f"trailers of more than {HEAD_BYTES_MAX} bytes")
        if tail < 0:
            self._buffer = data[at:]
            return False
        if tail + 4 != len(data):
            raise WireError("bytes behind the last chunk")
        return True

    def _give(self, response: Response, piece: bytes, stamp_ns: int) -> None:
        if not piece:
            return
        if response.status == 200:
            response.body.feed(piece, stamp_ns)
        else:
            response.error_body = piece

    def _end(self, response: Response) -> None:
        response.complete = True
        self._rest()
        if response.close:
            self.close()
        if not response.done.done():
            response.done.set_result(None)

    def _rest(self) -> None:
        """No response is under way."""
        self._response, self._framing, self._at_chunk = None, _IDLE, False
        self._buffer = b""

    def _fail(self, error: Exception) -> None:
        response = self._response
        self._rest()
        self.abort()
        if response is not None and not response.done.done():
            response.done.set_exception(error)


def _status(head: bytes) -> int:
    line = head[:80].partition(b"\r\n")[0]
    if not (line.startswith(b"HTTP/1.") and line[8:9] == b" " and line[9:12].isdigit() and line[12:13] in b" "):
        raise WireError(f"not a status line: {line.decode('latin-1')!r}")
    return int(line[9:12])


def _fields(head: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """The version, and the fields by name, all in lower case; those of one name make one list."""
    first, *lines = head.lower().split(b"\r\n")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.strip(), value.strip()
        fields[name] = fields[name] + b", " + value if name in fields else value
    return first[:8], fields


def _chunk_size(line: bytes) -> int:
    """Of the line up to its LF. Spaces before an extension, or without one, are old but common."""
    digits = line.removesuffix(b"\r").partition(b";")[0].rstrip(b" \t")
    if not (line.endswith(b"\r") and _HEX_SIZE.fullmatch(digits)):
        raise WireError(f"not a chunk size: {line[:40].decode('latin-1')!r}")
    return int(digits, 16)
