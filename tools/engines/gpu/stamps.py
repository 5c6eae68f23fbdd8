#!/usr/bin/env python3
"""Where a first token spends its time: bursts of requests to an SGLang on this host, by the stamps of both sides.

    stamps.py URL STREAMS... > rows.csv        e.g. stamps.py http://127.0.0.1:18010 64 128 256

With --enable-metrics SGLang tells in its last event when it took the request up, handed it to its scheduler,
wrote the first event and was done, in unix time: on one host the client's wall clock. Nothing of raybench is in
use here; sockets are read as they come and parsed afterwards. One row a request on stdout, P50 / P99 / highest on
stderr.

    taken_up      from the request's bytes in the kernel to the server's clock (`request_received_ts`)
    head          from the same to the answer's head, as read here
    handed_over   from there on: the server's clock to the scheduler's queue
    to_first      the scheduler's queue to the first event, as written
    first_read    the first event as written to our reading of it
    last_read     the last token as the server's clock has it (`request_finished_ts`) to our reading of it
"""

from __future__ import annotations

import asyncio
import csv
import gc
import json
import random
import sys
import time
from urllib.parse import urlsplit

INPUT_TOKENS, OUTPUT_TOKENS, VOCABULARY = 256, 64, 2048
ROUNDS = 3
STAGES = ("taken_up", "head", "handed_over", "to_first", "first_read", "last_read")


class Stream(asyncio.Protocol):
    """One connection; each read with its stamp."""

    def __init__(self) -> None:
        self.reads: list[tuple[float, bytes]] = []
        self.sent = 0.0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: bytes) -> None:
        self.sent = time.time()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.reads.append((time.time(), data))
        if data.endswith(b"0\r\n\r\n"):
            self._transport.close()
            self.ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionError("the server closed the connection"))

    def row(self) -> dict[str, float]:
        """The stages in ms. Raises KeyError if the server does not tell its stamps."""
        answer = b"".join(data for _, data in self.reads)
        events = [line[6:] for line in answer.split(b"\n") if line.startswith(b"data: {")]
        told = json.loads(events[-1])["meta_info"]
        received, written = told["request_received_ts"], told["response_sent_to_client_ts"]
        handed_over = told["api_server_dispatch_finish_ts"]
        first = next(at for at, data in self.reads if b"data: {" in data)
        last = next(at for at, data in reversed(self.reads) if b"data: {" in data)
        stages = (
            received - self.sent,
            self.reads[0][0] - self.sent,
            handed_over - received,
            written - handed_over,
            first - written,
            last - told["request_finished_ts"],
        )
        return {name: stage * 1000 for name, stage in zip(STAGES, stages, strict=True)}


def request(url: str, choice: random.Random) -> bytes:
    ids = [choice.randrange(VOCABULARY) for _ in range(INPUT_TOKENS)]
    sampling = {"max_new_tokens": OUTPUT_TOKENS, "temperature": 0.0, "ignore_eos": True}
    body = json.dumps({"input_ids": ids, "sampling_params": sampling, "stream": True}).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def burst(url: str, streams: int) -> list[dict[str, float]]:
    """That many at once, over connections that stand already."""
    choice = random.Random()
    requests = [request(url, choice) for _ in range(streams)]
    loop, place = asyncio.get_running_loop(), urlsplit(url)
    opened = [(await loop.create_connection(Stream, place.hostname, place.port))[1] for _ in requests]
    await asyncio.sleep(0.5)
    for stream, data in zip(opened, requests, strict=True):
        stream.send(data)
    await asyncio.gather(*(stream.ended for stream in opened))
    return [stream.row() for stream in opened]


def nearest_rank(values: list[float], percent: int) -> float:
    return sorted(values)[-(-percent * len(values) // 100) - 1]


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    url, levels = sys.argv[1], [int(level) for level in sys.argv[2:]]
    gc.disable()  # a collection of ours must not look like one of theirs
    out = csv.DictWriter(sys.stdout, ["streams", "round", *STAGES])
    out.writeheader()
    print(f"{'streams':>8}  " + "".join(f"{name + ' ms':>24}" for name in STAGES), file=sys.stderr)
    for streams in levels:
        rows = []
        for number in range(ROUNDS):
            burst_rows = asyncio.run(burst(url, streams))
            out.writerows({"streams": streams, "round": number, **row} for row in burst_rows)
            rows += burst_rows
        cells = []
        for name in STAGES:
            values = [row[name] for row in rows]
            told = (nearest_rank(values, 50), nearest_rank(values, 99), max(values))
            cells.append(" / ".join(f"{value:.1f}" for value in told))
        print(f"{streams:>8}  " + "".join(f"{cell:>24}" for cell in cells), file=sys.stderr)


if __name__ == "__main__":
    main()
