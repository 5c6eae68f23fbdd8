"""Single requests and control calls to a real engine through raybench's own client, without Ray."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from real_engines import Server, Tally, difference, reconciliation, recorded

from raybench.corpus.rendered import render_ids
from raybench.corpus.tokens import load_corpus
from raybench.engines import ENGINES
from raybench.engines.contract import Answer, Decoder, Engine, Http, RequestShape
from raybench.load.client import make_client
from raybench.load.exchange import record
from raybench.load.http import ControlClient
from raybench.load.order import Endpoint, Order
from raybench.records.clock import SystemClock
from raybench.records.schema import REQUESTS
from raybench.scenario.schema import Corpus, Load, SyntheticCorpus

Row = dict[str, Any]


class Start(Protocol):
    """Gives the running server of an engine, started with these options beside the usual ones."""

    def __call__(self, engine: str, *options: str) -> Server: ...


#: Tokens of context that the servers are started with: what does not fit is soon reached.
CONTEXT = 4096
VOCABULARY = 2048
LIMIT_S = 120.0
SETTLE_LOOKS = 50
POLL_S = 0.1


class Hand:
    """Sends requests to one engine. Each `seed` is a text of its own; the same seed is the same text again."""

    def __init__(self, server: Server, control: Http) -> None:
        self.engine: Engine = ENGINES[server.engine]
        self.control = control
        self.first_bytes = asyncio.Event()  # of any answer
        self._endpoint = Endpoint(server.url, server.engine)

    async def ask(self, shape: RequestShape, seed: int, count: int = 1) -> list[Row]:
        """`count` requests at once, each with its own part of the text; their records."""
        order = self._order(shape, seed, count)
        template = self.engine.template(shape)
        tokens = count * shape.input_tokens
        corpus = load_corpus(
            Corpus(synthetic=SyntheticCorpus(tokens=tokens, vocabulary=VOCABULARY, seed=seed)), base=Path()
        )
        rendered = render_ids(corpus.ids) if template.prompt == "ids" else corpus.text
        client = make_client(order, SystemClock())

        async def one(ticket: int) -> Row:
            start = int(order.windows[ticket])
            body = template.render(order.rid(ticket), rendered.slice(start, start + shape.input_tokens))
            inner = self.engine.decoder(shape, event_bytes_max=order.load.request.event_bytes_max, skim=True)
            decoder = _Announcing(inner, self.first_bytes)
            return record(order, "hand", ticket, await client.send(template.path, body, decoder))

        tasks = [asyncio.ensure_future(one(ticket)) for ticket in range(count)]
        try:
            return await asyncio.gather(*tasks)
        except asyncio.CancelledError:  # as in a worker: connections are closed, and each has its record
            return [await task for task in tasks]
        finally:
            await client.close()

    def rid(self, shape: RequestShape, seed: int) -> str:
        """What the first request of `ask` is called."""
        return self._order(shape, seed, 1).rid(0)

    async def flush(self) -> None:
        """Until the engine says that it did it: right after a stream's end it may not be idle yet."""

        async def flushed() -> bool:
            return (await self.engine.flush(self.control, timeout_s=10)).accepted

        await until(flushed)

    async def idle(self) -> bool:
        state = await self.engine.queue(self.control)
        assert state is not None
        return state.idle

    def _order(self, shape: RequestShape, seed: int, count: int) -> Order:
        windows = np.arange(count, dtype=np.int64) * shape.input_tokens
        prefix = f"rb-hand-{seed:05d}"
        return Order("tiny/hand/c1", 1, "load", self._endpoint, shape, Load(), count, windows, prefix)


class _Announcing:
    """A decoder that tells when the first bytes come."""

    def __init__(self, decoder: Decoder, first_bytes: asyncio.Event) -> None:
        self._decoder = decoder
        self._first_bytes = first_bytes

    def feed(self, data: bytes, stamp_ns: int) -> None:
        self._first_bytes.set()
        self._decoder.feed(data, stamp_ns)

    def finish(self, *, complete: bool) -> Answer:
        return self._decoder.finish(complete=complete)


@asynccontextmanager
async def hand(server: Server) -> AsyncIterator[Hand]:
    """All of the block is over within LIMIT_S; requests that are not end as cancelled."""
    control = ControlClient(Endpoint(server.url, server.engine))
    try:
        async with asyncio.timeout(LIMIT_S):
            yield Hand(server, control)
    finally:
        await control.close()


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    while not await look():
        await asyncio.sleep(POLL_S)


def table(rows: list[Row]) -> pa.Table:
    """Records as the checks read them."""
    return pa.Table.from_pylist(rows, schema=REQUESTS)


def counted_alike(server: Server, before: Tally, rows: list[Row]) -> bool:
    """Whether the server's counters came to what the records say: some move a moment after the last byte."""
    records = recorded(table(rows))

    for _ in range(SETTLE_LOOKS):
        counted = server.tally().since(before)
        if not difference(counted, records):
            return True
        time.sleep(POLL_S)
    print(reconciliation(server.engine, counted, records))
    return False
