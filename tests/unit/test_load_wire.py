"""One connection of the cheap client, byte by byte: no socket, a transport that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.load.wire import HEAD_BYTES_MAX, SIZE_LINE_MAX, Response, Wire, WireError

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"data: one\n\n"


@dataclass
class FakeTransport(asyncio.Transport):
    """Takes what is written, all at once or `room` bytes of it; remembers how it was ended."""

    room: int | None = None
    written: bytearray = field(default_factory=bytearray)
    waiting: int = 0
    high: int | None = None
    ended: str | None = None

    def write(self, data: Any) -> None:
        self.written += data
        self.waiting = 0 if self.room is None else max(0, len(data) - self.room)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def abort(self) -> None:
        self.ended = "abort"

    def close(self) -> None:
        self.ended = self.ended or "close"


@dataclass
class Body:
    """A decoder that keeps what it is fed."""

    feeds: list[tuple[bytes, int]] = field(default_factory=list)

    def feed(self, data: bytes, stamp_ns: int) -> None:
        self.feeds.append((data, stamp_ns))

    @property
    def data(self) -> bytes:
        return b"".join(data for data, _ in self.feeds)


class Scene:
    """One wire, and the request under way on it. The clock counts its readings."""

    def __init__(self, *, room: int | None = None) -> None:
        self.ticks: Iterator[int] = count(1)
        self.wire = Wire(lambda: next(self.ticks))
        self.transport = FakeTransport(room)
        self.wire.connection_made(self.transport)
        self.request()

    def request(self) -> None:
        self.body = Body()
        self.response = Response(self.body, asyncio.get_running_loop().create_future())
        self.wire.request(b"POST / HTTP/1.1\r\n\r\n", b"{}", self.response)

    def read(self, *reads: bytes) -> Scene:
        for data in reads:
            self.wire.data_received(data)
        return self

    def end(self, error: Exception | None = None) -> Scene:
        """The server's FIN, or an error of the socket."""
        if error is None:
            assert self.wire.eof_received() is False
        self.wire.connection_lost(error)
        return self

    @property
    def error(self) -> BaseException | None:
        assert self.response.done.done()
        return self.response.done.exception()

    def assert_whole(self, body: bytes, *, status: int = 200) -> None:
        assert self.error is None
        assert (self.response.status, self.response.complete) == (status, True)
        assert (self.body.data if status == 200 else self.response.error_body) == body

    def assert_bad(self, text: str) -> None:
        assert isinstance(self.error, WireError)
        assert text in str(self.error)
        assert (self.response.complete, self.wire.closed, self.transport.ended) == (False, True, "abort")


def play(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def chunk(data: bytes, size: str = "x", extension: bytes = b"") -> bytes:
    return format(len(data), size).encode() + extension + b"\r\n" + data + b"\r\n"


def cut(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    ends = sorted({0, len(data), *cuts})
    return [data[a:b] for a, b in pairwise(ends)]


# Any response, however it is cut


@dataclass(frozen=True)
class Sent:
    """What a server sends, and what a client must make of it."""

    data: bytes
    status: int
    body: bytes
    until_close: bool
    keeps_open: bool


BODIES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from([EVENT, b"\r\n\r\n", b"0\r\n\r\n", b"5\r\n", b"\r\n", b"x" * 300]), max_size=5).map(
        b"".join
    ),
)
HEADERS = st.lists(
    st.sampled_from(
        [
            b"Content-Type: text/event-stream; charset=utf-8",
            b"server:uvicorn",
            b"X-Empty:",
            b"X-Colons: a:b: c",
            b"CONTENT-ENCODING:  identity ",
            b"x-long: " + b"y" * 500,
            b"Set-Cookie: a=b\r\nSet-Cookie: c=d",
        ]
    ),
    max_size=4,
    unique=True,
)
INTERIM = st.sampled_from(
    [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"]
)


@st.composite
def responses(draw: st.DrawFn) -> Sent:
    body = draw(BODIES)
    status = draw(st.sampled_from([200, 200, 200, 503]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.0"]))
    headers = draw(HEADERS)
    connection = draw(st.sampled_from([b"", b"Connection: keep-alive", b"Connection: Close", b"connection:close"]))
    headers += [connection] if connection else []
    framing = draw(st.sampled_from(["chunked", "length", "close"]))
    if framing == "chunked":
        headers.append(draw(st.sampled_from([b"Transfer-Encoding: chunked", b"transfer-encoding:  Chunked "])))
        cuts = draw(st.lists(st.integers(0, len(body)), max_size=6))
        size = draw(st.sampled_from(["x", "x", "X", "04x"]))
        extension = draw(st.sampled_from([b"", b"", b";a=b", b' ; name="x;y"', b" "]))
        framed = b"".join(chunk(piece, size, extension) for piece in cut(body, cuts))
        trailers = draw(st.sampled_from([b"", b"", b"X-Sum: 1\r\n", b"a: b\r\nc: d\r\n"]))
        framed += draw(st.sampled_from([b"0", b"000", b"0;last"])) + b"\r\n" + trailers + b"\r\n"
    else:
        framed = body
        headers += [b"Content-Length: %d" % len(body)] if framing == "length" else []
    reason = draw(st.sampled_from([b" OK", b" ", b""]))
    head = b"\r\n".join([b"HTTP/%b %d%b" % (version, status, reason), *draw(st.permutations(headers))])
    return Sent(
        draw(INTERIM) + draw(INTERIM) + head + b"\r\n\r\n" + framed,
        status,
        body,
        until_close=framing == "close",
        keeps_open=framing != "close" and version == b"1.1" and b"lose" not in connection,
    )


@given(responses(), st.lists(st.integers(0, 2000), max_size=12), st.booleans())
def test_any_response_cut_anywhere_gives_its_body_in_order(sent: Sent, cuts: list[int], every_byte: bool) -> None:
    async def scene() -> None:
        one = Scene()
        assert one.response.sent_ns == 1
        reads = cut(sent.data, range(len(sent.data)) if every_byte else (at % (len(sent.data) + 1) for at in cuts))
        for number, data in enumerate(reads, 2):
            if one.response.done.done() and sent.status != 200:
                return  # a refusal is not read to its end
            fed = len(one.body.feeds)
            one.read(data)
            assert one.response.last_ns == number
            # One feed a read at most, with the stamp of the read.
            assert [stamp for _, stamp in one.body.feeds[fed:]] in ([], [number])
            assert one.response.headers_ns is None or one.response.headers_ns <= number
        if sent.until_close and not one.response.done.done():
            one.end()
        if sent.status == 200:
            one.assert_whole(sent.body)
        else:
            assert (one.error, one.response.status, one.body.feeds) == (None, sent.status, [])
            assert sent.body.startswith(one.response.error_body)
            assert bool(one.response.error_body) == bool(sent.body)
        if one.response.complete:
            assert one.wire.closed is not sent.keeps_open

    play(scene())


@given(responses(), st.integers(0, 10_000), st.booleans())
def test_a_response_that_ends_early_is_never_whole(sent: Sent, at: int, reset: bool) -> None:
    async def scene() -> None:
        end = at % max(1, len(sent.data))
        one = Scene().read(*[sent.data[:end]] if end else [])
        if one.response.done.done():
            return  # the start of a refusal
        one.end(ConnectionResetError(104, "reset") if reset else None)
        if sent.until_close and one.response.status is not None and not reset:
            assert one.error is None
        else:
            assert isinstance(one.error, ConnectionResetError)
            assert one.response.complete is False
        if sent.status == 200:
            assert sent.body.startswith(one.body.data)

    play(scene())


@given(responses().filter(lambda sent: sent.keeps_open and sent.status == 200), responses())
def test_the_next_request_on_a_kept_connection_is_answered_as_well(first: Sent, second: Sent) -> None:
    async def scene() -> None:
        one = Scene().read(first.data)
        one.assert_whole(first.body)
        assert (one.wire.closed, one.transport.ended) == (False, None)
        one.request()
        assert one.transport.written.count(b"POST") == 2
        one.read(*cut(second.data, range(0, len(second.data), 7)))
        if second.until_close and not one.response.done.done():
            one.end()
        if second.status == 200:
            one.assert_whole(second.body)
        assert one.response.status == second.status

    play(scene())


# The short way for whole chunks


def test_a_read_that_is_one_chunk_is_given_on_as_it_is() -> None:
    async def scene() -> None:
        one = Scene().read(CHUNKED, chunk(EVENT), chunk(b"x" * 70_000), chunk(b"a") + chunk(b"b"), chunk(b"c"))
        assert one.body.feeds == [(EVENT, 3), (b"x" * 70_000, 4), (b"ab", 5), (b"c", 6)]
        one.read(b"0\r\n\r\n").assert_whole(EVENT + b"x" * 70_000 + b"abc")
        assert one.wire.closed is False

    play(scene())


@pytest.mark.parametrize(
    "data",
    [
        b"-1\r\nX",
        b"-1\r\nX\r\n",
        b"-2\r\n\r\n",
        b"-5\r\n\r\n\r\n",
        b"+3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b"1_0\r\n" + b"x" * 16 + b"\r\n",
        b" 3\r\nabc\r\n",
        b"3g\r\nabc\r\n",
        b"\r\nabc\r\n",
        b";a=b\r\nabc\r\n",
        b"\n",
        b"3\nabc\r\n",
        b"\xb2\r\nab\r\n",
        b"f" * 17 + b"\r\n",
    ],
)
@pytest.mark.parametrize("way", ["with the head", "alone", "in bytes"])
def test_a_chunk_size_that_is_none_is_refused_however_it_is_cut(data: bytes, way: str) -> None:
    async def scene() -> None:
        if way == "with the head":
            one = Scene().read(CHUNKED + data)
        else:
            one = Scene().read(CHUNKED, chunk(EVENT))
            for piece in [data] if way == "alone" else cut(data, range(len(data))):
                if not one.response.done.done():
                    one.read(piece)
        one.assert_bad("chunk size")

    play(scene())


@pytest.mark.parametrize(
    "data", [b"3\r\nabcXY", b"3\r\nabc\n\n", b"3\r\nabc\rX", b"3\r\nabcdef\r\n", b"3\r\nabc0\r\n\r\n"]
)
@pytest.mark.parametrize("in_bytes", [False, True])
def test_a_chunk_without_its_line_end_is_refused_but_what_it_held_counts(data: bytes, in_bytes: bool) -> None:
    async def scene() -> None:
        one = Scene().read(CHUNKED, chunk(EVENT))
        for piece in cut(data, range(len(data)) if in_bytes else []):
            if not one.response.done.done():
                one.read(piece)
        one.assert_bad("a chunk without its line end")
        assert one.body.data == EVENT + b"abc"

    play(scene())


def test_a_size_line_without_an_end_is_refused() -> None:
    async def scene() -> None:
        line = b"3;" + b"x" * SIZE_LINE_MAX
        Scene().read(CHUNKED, line).assert_bad("a chunk size without an end")
        Scene().read(CHUNKED + line + b"\r\nabc\r\n").assert_bad("a chunk size without an end")
        one = Scene().read(CHUNKED)
        for at in range(0, len(line), 100):
            if not one.response.done.done():
                one.read(line[at : at + 100])
        one.assert_bad("a chunk size without an end")

    play(scene())


def test_trailers_without_an_end_are_refused() -> None:
    async def scene() -> None:
        one = Scene().read(CHUNKED, b"0\r\n")
        for _ in range(HEAD_BYTES_MAX // 4096 + 1):
            if not one.response.done.done():
                one.read(b"x: " + b"y" * 4091 + b"\r\n")
        one.assert_bad("trailers of more than")
        Scene().read(CHUNKED + b"0\r\nx: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n").assert_bad(
            "trailers of more than"
        )

    play(scene())


# Heads


@pytest.mark.parametrize(
    "line",
    [
        b"SSH-2.0-OpenSSH_9.6",
        b"HTTP/2 200 OK",
        b"http/1.1 200 OK",
        b"HTTP/1.1200 OK",
        b"HTTP/1.1 abc OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 \xb2\xb2\xb2 OK",
        b"HTTP/1.1  200 OK",
        b"",
        b"\r\nHTTP/1.1 200 OK",
    ],
)
@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_status_line_that_is_none_is_refused(line: bytes, before: bytes) -> None:
    async def scene() -> None:
        Scene().read(before + line + b"\r\nContent-Length: 0\r\n\r\n").assert_bad("not a status line")

    play(scene())


@pytest.mark.parametrize("pieces", [1, 20])
@pytest.mark.parametrize("ended", [b"", b"\r\n\r\n"])
def test_a_head_over_the_limit_is_refused(pieces: int, ended: bytes) -> None:
    async def scene() -> None:
        data = OK + b"X: " + b"y" * (HEAD_BYTES_MAX + 10) + ended
        one = Scene()
        for piece in cut(data, range(0, len(data), len(data) // pieces)):
            if not one.response.done.done():
                one.read(piece)
        one.assert_bad("a response head of more than")

    play(scene())


@pytest.mark.parametrize("excess", [0, 1])
@pytest.mark.parametrize("last_bytes", [0, 1, 2, 3, 4])
def test_a_head_at_the_limit_passes_however_its_end_is_cut(excess: int, last_bytes: int) -> None:
    async def scene() -> None:
        start = OK + b"Content-Length: 0\r\nX: "
        data = start + b"y" * (HEAD_BYTES_MAX - len(start) + excess) + b"\r\n\r\n"
        one = Scene()
        for piece in cut(data, [len(data) - last_bytes]):
            if not one.response.done.done():
                one.read(piece)
        if excess:
            one.assert_bad("a response head of more than")
        else:
            one.assert_whole(b"")

    play(scene())


def test_interim_heads_in_any_number_are_passed_over() -> None:
    async def scene() -> None:
        data = b"HTTP/1.1 102 Processing\r\n\r\n" * 5000
        one = Scene().read(data + OK + b"Content-Length: 2\r\n\r\nok")
        one.assert_whole(b"ok")
        assert (one.response.status, one.response.headers_ns) == (200, 2)
        one = Scene().read(data)
        assert (one.response.done.done(), one.response.status, one.response.headers_ns) == (False, None, None)

    play(scene())


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_a_status_that_has_no_body_ends_with_its_head(status: bytes) -> None:
    async def scene() -> None:
        for header in (b"", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n"):
            one = Scene().read(b"HTTP/1.1 " + status + b"\r\n" + header + b"\r\n")
            one.assert_whole(b"", status=int(status[:3]))
            assert one.wire.closed is False

    play(scene())


@pytest.mark.parametrize(
    "value", [b"many", b"-1", b"+5", b"5, 6", b"5.0", b"0x5", b"", b"1_0", b"\xb2", b"9" * 19, b"9" * 5000]
)
def test_a_content_length_that_is_none_is_refused(value: bytes) -> None:
    async def scene() -> None:
        Scene().read(OK + b"Content-Length: " + value + b"\r\n\r\nabcde").assert_bad("content-length")

    play(scene())


def test_two_lengths_are_refused() -> None:
    async def scene() -> None:
        Scene().read(OK + b"Content-Length: 5\r\ncontent-length: 6\r\n\r\nabcde").assert_bad("content-length")

    play(scene())


@pytest.mark.parametrize("value", [b"gzip, chunked", b"gzip", b"identity", b"chunked, chunked", b"xchunked"])
def test_a_transfer_coding_that_is_not_chunked_alone_is_refused(value: bytes) -> None:
    async def scene() -> None:
        Scene().read(OK + b"Transfer-Encoding: " + value + b"\r\n\r\n").assert_bad("transfer-encoding")

    play(scene())


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"zstd", b"identity, gzip"])
def test_a_compressed_response_is_refused_by_name(coding: bytes) -> None:
    async def scene() -> None:
        data = OK + b"Content-Encoding: " + coding + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"\x1f\x8b")
        one = Scene().read(data)
        one.assert_bad(f"a compressed response ({coding.decode()})")
        assert one.body.feeds == []

    play(scene())


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n"])
def test_a_connection_that_the_server_will_close_carries_no_more(head: bytes) -> None:
    async def scene() -> None:
        one = Scene().read(head + b"Content-Length: 2\r\n\r\nok")
        one.assert_whole(b"ok")
        assert (one.wire.closed, one.transport.ended) == (True, "close")
        one.end()
        one.assert_whole(b"ok")

    play(scene())


# Bytes that nobody asked for


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (OK + b"Content-Length: 2\r\n\r\nokX", "more bytes than the response's content-length"),
        (OK + b"Content-Length: 0\r\n\r\nX", "more bytes than the response's content-length"),
        (CHUNKED + chunk(b"ok") + b"0\r\n\r\nX", "bytes behind the last chunk"),
        (CHUNKED + chunk(b"ok") + b"0\r\na: b\r\n\r\n0\r\n\r\n", "bytes behind the last chunk"),
    ],
)
def test_bytes_in_the_read_that_ends_a_response_spoil_it(data: bytes, text: str) -> None:
    async def scene() -> None:
        one = Scene().read(data)
        one.assert_bad(text)
        assert one.body.data in (b"ok", b"")

    play(scene())


def test_bytes_after_a_response_end_its_connection() -> None:
    async def scene() -> None:
        one = Scene().read(OK + b"Content-Length: 2\r\n\r\nok", b"X")
        one.assert_whole(b"ok")
        assert (one.wire.closed, one.transport.ended) == (True, "abort")

    play(scene())


def test_bytes_before_any_request_end_the_connection() -> None:
    wire, transport = Wire(lambda: 1), FakeTransport()
    wire.connection_made(transport)
    wire.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert (wire.closed, wire.used, transport.ended) == (True, False, "abort")


# The end of a connection

STATES = {
    "nothing": (),
    "in the head": (b"HTTP/1.1 2",),
    "after an interim head": (b"HTTP/1.1 100 Continue\r\n\r\n",),
    "after the head": (CHUNKED,),
    "in a chunk size": (CHUNKED, b"1"),
    "in a chunk": (CHUNKED, b"5\r\nab"),
    "in a chunk's line end": (CHUNKED, b"2\r\nab\r"),
    "between chunks": (CHUNKED, chunk(b"ab")),
    "in the last chunk": (CHUNKED, chunk(b"ab") + b"0\r\n"),
    "in the trailers": (CHUNKED, chunk(b"ab") + b"0\r\nx: y\r\n"),
    "in a length": (OK + b"Content-Length: 5\r\n\r\nab",),
    "in the head of a refusal": (b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\n",),
}


@pytest.mark.parametrize("reads", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize(
    "error", [None, ConnectionResetError(104, "reset by peer"), TimeoutError(110, "timed out")]
)
def test_a_connection_that_ends_in_any_state_fails_its_response(
    reads: tuple[bytes, ...], error: Exception | None
) -> None:
    async def scene() -> None:
        one = Scene().read(*reads).end(error)
        assert (one.response.complete, one.wire.closed) == (False, True)
        if error is not None:
            assert one.error is error
        else:
            assert isinstance(one.error, ConnectionResetError)
            assert str(one.error) == "the server closed the connection"
        assert (one.response.last_ns is None) == (reads == ())

    play(scene())


def test_a_body_until_the_end_ends_with_fin_and_with_nothing_else() -> None:
    async def scene() -> None:
        one = Scene().read(OK + b"\r\n", EVENT, EVENT).end()
        one.assert_whole(EVENT * 2)
        assert one.body.feeds == [(EVENT, 3), (EVENT, 4)]
        one = Scene().read(OK + b"\r\n", EVENT).end(ConnectionResetError(104, "reset"))
        assert (isinstance(one.error, ConnectionResetError), one.response.complete) == (True, False)
        # Given up by us: the socket says nothing, and the body is not whole.
        one = Scene().read(OK + b"\r\n", EVENT)
        one.wire.abort()
        one.wire.connection_lost(None)
        assert (isinstance(one.error, ConnectionResetError), one.response.complete) == (True, False)

    play(scene())


def test_a_fin_on_an_idle_connection_is_known_before_its_loss() -> None:
    async def scene() -> None:
        one = Scene().read(OK + b"Content-Length: 2\r\n\r\nok")
        assert one.wire.closed is False
        assert one.wire.eof_received() is False
        assert one.wire.closed is True
        one.wire.connection_lost(None)
        one.assert_whole(b"ok")

    play(scene())


def test_a_response_that_was_given_up_stays_so() -> None:
    """A cancelled or timed out request: what still comes changes nothing and raises nothing."""

    async def scene() -> None:
        for late in ((chunk(EVENT), b"0\r\n\r\n"), (b"zz\r\n",), ()):
            one = Scene().read(CHUNKED, chunk(EVENT))
            one.response.done.cancel()
            one.read(*late)
            one.wire.abort()
            one.wire.connection_lost(None)
            assert one.response.done.cancelled()

    play(scene())


# Refusals


@pytest.mark.parametrize("status", [b"503 Busy", b"404 Not Found", b"302 Found", b"201 Created", b"400 Bad"])
def test_a_body_of_another_status_goes_beside_the_decoder(status: bytes) -> None:
    async def scene() -> None:
        head = b"HTTP/1.1 " + status + b"\r\n"
        one = Scene().read(head + b"Content-Length: 4\r\n\r\nbusy")
        one.assert_whole(b"busy", status=int(status[:3]))
        assert (one.body.feeds, one.wire.closed) == ([], False)
        one = Scene().read(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"busy") + b"0\r\n\r\n")
        one.assert_whole(b"busy", status=int(status[:3]))
        assert (one.body.feeds, one.wire.closed) == ([], False)

    play(scene())


@pytest.mark.parametrize(
    ("header", "first", "body"),
    [
        (b"Transfer-Encoding: chunked\r\n", chunk(b"busy"), b"busy"),
        (b"Transfer-Encoding: chunked\r\n", b"5\r\nbu", b"bu"),
        (b"Content-Length: 100\r\n", b"busy", b"busy"),
        (b"", b"busy", b"busy"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_refusal_is_over_with_the_first_bytes_of_its_body(
    header: bytes, first: bytes, body: bytes, together: bool
) -> None:
    async def scene() -> None:
        head = b"HTTP/1.1 503 Busy\r\n" + header + b"\r\n"
        one = Scene().read(*[head + first] if together else [head, first])
        assert (one.error, one.response.status, one.response.error_body) == (None, 503, body)
        assert (one.body.feeds, one.wire.closed, one.transport.ended) == ([], True, "abort")

    play(scene())


# Sending


def test_sent_is_when_the_kernel_has_it_all() -> None:
    async def scene() -> None:
        one = Scene()
        assert (one.response.sent_ns, one.transport.high) == (1, 0)
        assert bytes(one.transport.written) == b"POST / HTTP/1.1\r\n\r\n{}"
        assert one.wire.used is True

        slow = Scene(room=5)
        before = slow.response.sent_ns
        next(slow.ticks)
        slow.wire.resume_writing()
        slow.wire.resume_writing()
        slow.read(OK + b"Content-Length: 0\r\n\r\n")
        slow.wire.resume_writing()
        assert (before, slow.response.sent_ns, slow.response.last_ns) == (None, 3, 4)

    play(scene())


def test_time_that_passes_inside_the_call_that_sends_does_not_shorten_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The receiver woken by the call may take the core: the answer can be there before the call returns."""

    async def scene() -> None:
        one = Scene().read(OK + b"Content-Length: 0\r\n\r\n")
        began = next(one.ticks)

        def write(data: Any) -> None:
            for _ in range(100):
                next(one.ticks)

        monkeypatch.setattr(one.transport, "write", write)
        one.request()
        assert one.response.sent_ns == began + 1

    play(scene())


def test_a_server_that_answers_before_it_has_read_all_leaves_the_send_unknown() -> None:
    async def scene() -> None:
        one = Scene(room=5).read(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
        one.assert_whole(b"big", status=413)
        one.wire.resume_writing()
        assert one.response.sent_ns is None

    play(scene())


def test_a_connection_has_one_request_at_a_time() -> None:
    async def scene() -> None:
        one = Scene()
        with pytest.raises(AssertionError):
            one.request()

    play(scene())
