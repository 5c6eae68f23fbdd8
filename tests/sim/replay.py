"""Sends the requests that a real engine was recorded with to a server here, byte for byte, in the recorded order.

What ran side by side does so again: a request is sent when those that were over before it are over, and those
whose answers had begun before it have begun. No pause of the recording is repeated.
"""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from answer_shapes import parse
from engine_captures import Recorded, everything_recorded, raw_answer, read_times

REQUESTS = Path(__file__).parents[1] / "golden" / "sim" / "requests.tar.xz"
#: No replay takes longer.
LIMIT_S = 300.0
#: The engine counts as busy for a moment after its last answer; this is longer.
SETTLE_S = 0.1


@dataclass(eq=False)
class Exchange:
    """One recorded request with its answer; times in unix seconds. begun_s: the first byte behind the head came.

    events: of a stream that its client closed, how many had come.
    """

    name: str
    request: bytes
    real: bytes
    start_s: float
    begun_s: float
    end_s: float
    events: int | None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def needs_idle(self) -> bool:
        """A flush that was done."""
        return b"/flush_cache" in self.request.split(b"\r\n")[0] and b" 200 OK\r\n" in self.real


def exchanges(folder: str) -> list[Exchange]:
    """All that was recorded in `engine/set-up`, in the order of its sending."""
    engine, _, set_up = folder.partition("/")
    found = [_exchange(folder, one) for one in everything_recorded() if _is_in(one, engine, set_up)]
    return sorted(found, key=lambda one: one.start_s)


def _is_in(one: Recorded, engine: str, set_up: str) -> bool:
    return one.engine == engine and one.name.rpartition("/")[0] == set_up


def _exchange(folder: str, one: Recorded) -> Exchange:
    real = raw_answer(one.engine, one.name)
    reads = read_times(one.engine, one.name)
    closed = parse(real).chunks is not None and not real.endswith(b"\r\n0\r\n\r\n")
    return Exchange(
        name=one.name.rpartition("/")[2],
        request=requests()[f"{folder}/{one.name.rpartition('/')[2]}.req"],
        real=real,
        start_s=one.unix_start,
        begun_s=one.unix_start + reads[min(1, len(reads) - 1)],
        end_s=one.unix_start + one.seconds,
        events=real.count(b"data: ") if closed else None,
    )


@cache
def requests() -> dict[str, bytes]:
    """Path -> bytes of every recorded request there is."""
    with tarfile.open(REQUESTS) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in files.items() if file is not None}


def like(request: bytes, number: int) -> bytes:
    """The same request for other tokens, of four digits each as most of them are."""
    head, _, body = request.partition(b"\r\n\r\n")
    fields = json.loads(body)
    fields["input_ids"] = [1000 + (at * 7 + number * 131) % 1000 for at in range(len(fields["input_ids"]))]
    body = json.dumps(fields).encode()
    return b"%b\r\n\r\n%b" % (re.sub(rb"(?<=Content-Length: )\d+", b"%d" % len(body), head), body)


async def replay(
    url: str, recorded: Sequence[Exchange], companions: dict[str, int], any_order: str
) -> dict[str, bytes]:
    """name -> the answer. companions: beside the request of this name, so many more like it. any_order: the names
    of those of which the server was free to let any wait or to refuse it: they are waited for together."""
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        sent: list[tuple[Exchange, asyncio.Task[bytes]]] = []
        for one in recorded:
            free = [earlier for earlier, _ in sent if re.fullmatch(any_order, earlier.name)]
            for earlier, task in sent:
                together = free if earlier in free else [earlier]
                if all(other.end_s <= one.start_s for other in together):
                    await task
                elif earlier is together[0] and earlier.begun_s <= one.start_s:
                    await earlier.begun.wait()
            if one.needs_idle:
                await asyncio.sleep(SETTLE_S)
            sent.append((one, group.create_task(_answer(url, one))))
            for number in range(companions.get(one.name, 0)):
                more = Exchange(one.name, like(one.request, number), b"", 0.0, 0.0, 0.0, None)
                group.create_task(_answer(url, more))
    return {one.name: task.result() for one, task in sent}


async def _answer(url: str, one: Exchange) -> bytes:
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(one.request)
        await writer.drain()
        answer = bytearray()
        while data := await reader.read(65_536):
            answer += data
            if not one.begun.is_set() and not answer.endswith(b"\r\n\r\n"):
                one.begun.set()
            if one.events is not None and answer.count(b"data: ") > one.events:
                return cut(bytes(answer), one.events)
        return bytes(answer)
    finally:
        one.begun.set()
        writer.close()


def cut(answer: bytes, events: int) -> bytes:
    """The answer up to the end of its n-th event."""
    at = 0
    for _ in range(events):
        at = answer.index(b"\n\n\r\n", at) + 4
    return answer[:at]
