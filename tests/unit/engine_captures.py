"""Replay of captured engine answers: HTTP framing removed, cut as it arrived or at will."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import orjson

from raybench.engines.contract import Answer, Decoder, Reply

CAPTURES = Path(__file__).parent.parent / "golden" / "captures"
SGLANG_23 = "sglang-0.5.23-cpu"
SGLANG_17 = "sglang-0.5.17-gpu"
SGLANG_9 = "sglang-0.5.9-cpu"
VLLM = "vllm-0.32.0-cpu"
LLAMACPP = "llamacpp-xllamacpp-2026.10.11549"
TRANSFORMERS = "transformers-5.24.0-serve"
EVENT_BYTES_MAX = 64 * 1024 * 1024

#: The writes of case O-S1, made by hand: three tokens and the end, cut anywhere.
FIVE_WRITES = (
    b"data:",
    b' {"choices":[{"index":0,"text":"a"}]}\n',
    b'\ndata:{"choices":[{"index":0,"text":"',
    b' b"}]}\n\ndata: {"choices":[{"index":0,"text":" "}]}\n\ndata: [DO',
    b"NE]\n\n",
)


@dataclass(frozen=True)
class Capture:
    """One answer: status, body, and the body as the socket reads cut it, with the seconds of each."""

    status: int
    body: bytes
    reads: list[tuple[float, bytes]]

    @property
    def reply(self) -> Reply:
        return Reply(self.status, self.body)


def capture(engine: str, name: str) -> Capture:
    raw = _read(CAPTURES / engine / f"{name}.resp")
    head, _, framed = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    chunked = b"transfer-encoding: chunked" in head.lower()
    strip = _Dechunker().feed if chunked else bytes
    times = _stored(CAPTURES / engine / f"{name}.times")
    reads: list[tuple[float, bytes]] = []
    if times is not None:
        start, skip = 0, len(raw) - len(framed)
        for line in times.decode().splitlines():
            seconds, size = line.split()
            end = start + int(size)
            reads.append((float(seconds), strip(raw[max(start, skip) : max(end, skip)])))
            start = end
        assert start == len(raw)
    else:
        reads.append((0.0, strip(framed)))
    return Capture(status, b"".join(data for _, data in reads), reads)


def raw_answer(engine: str, name: str) -> bytes:
    """An answer as it came from the socket: head, and body with its HTTP chunk framing."""
    return _read(CAPTURES / engine / f"{name}.resp")


def read_times(engine: str, name: str) -> list[float]:
    """When each socket read of an answer came, in seconds since its request was sent."""
    times = _read(CAPTURES / engine / f"{name}.times").decode()
    return [float(line.split()[0]) for line in times.splitlines()]


def server_log(engine: str, set_up: str) -> str:
    """The engine's own log of a set-up."""
    return _read(CAPTURES / engine / set_up / "server.log").decode()


def _read(path: Path) -> bytes:
    data = _stored(path)
    assert data is not None, f"no such capture: {path}"
    return data


def _stored(path: Path) -> bytes | None:
    """From a file, plain or gzipped, or from the archive of the rest; None if there is none."""
    if path.exists():
        return path.read_bytes()
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        return gzip.decompress(packed.read_bytes())
    return _rest().get(path.relative_to(CAPTURES).as_posix())


@cache
def _rest() -> dict[str, bytes]:
    """Name -> bytes of the captures that no test names."""
    with tarfile.open(CAPTURES / "rest.tar.xz") as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in files.items() if file is not None}


@dataclass(frozen=True)
class Recorded:
    """An exchange as the indexes of the captures list it. engine: the folder; request: `GET /path`.

    unix_start: when it was sent; seconds: how long it took.
    """

    engine: str
    name: str
    request: str
    unix_start: float
    seconds: float

    @property
    def path(self) -> str:
        return self.request.split(" ", 1)[1].split("?")[0]

    @property
    def method(self) -> str:
        return self.request.split(" ", 1)[0]


@cache
def everything_recorded() -> tuple[Recorded, ...]:
    """All exchanges of all folders."""
    indexes = {name: data for name, data in _rest().items() if name.endswith("/index.json")}
    return tuple(
        Recorded(
            folder.split("/")[0],
            "/".join([*folder.split("/")[1:], one["name"]]),
            one["request"],
            one["unix_start"],
            one["seconds"],
        )
        for folder, data in ((name.rpartition("/")[0], data) for name, data in sorted(indexes.items()))
        for one in orjson.loads(data)
    )


def answers_stored() -> set[tuple[str, str]]:
    """(engine folder, name) of all answers there are, from their file names alone."""
    loose = {path.relative_to(CAPTURES).as_posix() for path in CAPTURES.rglob("*.resp*")}
    names = {name.removesuffix(".gz") for name in (*loose, *_rest()) if ".resp" in name}
    return {(name.split("/")[0], name.split("/", 1)[1].removesuffix(".resp")) for name in names}


class _Dechunker:
    """Removes HTTP chunk framing from reads that may end anywhere in it."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        out = b""
        while b"\r\n" in self._buffer:
            size_text, _, rest = self._buffer.partition(b"\r\n")
            size = int(size_text, 16)
            if len(rest) < size + 2:
                break
            out += rest[:size]
            self._buffer = rest[size + 2 :]
        return out


def decode(decoder: Decoder, pieces: Iterable[tuple[int, bytes]], *, complete: bool = True) -> Answer:
    """Feed (stamp_ns, bytes) and finish."""
    for stamp_ns, data in pieces:
        decoder.feed(data, stamp_ns)
    return decoder.finish(complete=complete)


def as_read(captured: Capture) -> list[tuple[int, bytes]]:
    return [(round(seconds * 1e9), data) for seconds, data in captured.reads]


def without_stamps(answer: Answer) -> dict[str, object]:
    """All of an answer that must not depend on where reads begin and end."""
    facts = {name: getattr(answer, name) for name in answer.__slots__}
    facts["chunks"] = len(facts.pop("chunk_ns"))
    for stamp in ("first_event_ns", "first_token_ns", "last_token_ns"):
        facts[stamp] = facts[stamp] is not None
    return facts


@dataclass
class FakeHttp:
    """Control plane that serves canned replies by "METHOD /path"; any other path is unknown (404).

    A list of replies is used up one a call. `calls` keeps what was asked.
    """

    replies: Mapping[str, Reply | list[Reply]]
    calls: list[tuple[str, dict[str, str], object]] = field(default_factory=list)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: object = None,
        timeout_s: float = 10.0,
    ) -> Reply:
        self.calls.append((f"{method} {path}", dict(params or {}), json))
        reply = self.replies.get(f"{method} {path}", Reply(404, b'{"detail":"Not Found"}'))
        return reply.pop(0) if isinstance(reply, list) else reply

    @property
    def asked(self) -> list[str]:
        return [call for call, _, _ in self.calls]
