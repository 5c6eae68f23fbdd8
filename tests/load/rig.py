"""Load workers with an in-process desk over a run directory: the load room without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from raybench.corpus.rendered import Rendered, render_ids
from raybench.corpus.synthetic import synthetic_ids
from raybench.engines import ENGINES
from raybench.engines.contract import RequestShape
from raybench.load.client import Client, make_client
from raybench.load.exchange import Exchange, record
from raybench.load.health import WorkerHealth
from raybench.load.leases import Returned, split_slots
from raybench.load.order import Endpoint, Order, WorkerSummary
from raybench.load.worker import LoadWorker
from raybench.protocol.desk import OrderDesk
from raybench.records.clock import AnchoredClock, ClockOffset
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.records.stream import Part, read_part
from raybench.scenario.schema import Load, RequestLimits, SyntheticCorpus

T = TypeVar("T")
POINT = "arm/load/c1"
#: The client that orders ask for: every test here runs with each of them.
CLIENT = "wire"
#: Whether decoders may skim; the worker always lets them.
SKIM = False
INPUT_TOKENS = 64
SHAPE = RequestShape(route="generate", input_tokens=INPUT_TOKENS, output_tokens=2)
#: Every test that talks to a server ends within this, or fails.
LIMIT_S = 300.0


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT_S))


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that is bound to happen; the limit of the test ends a wait in vain."""
    while not true():
        await asyncio.sleep(0.001)


def prompts(tokens: int = 64 * 1024) -> dict[str, Rendered]:
    return {"ids": render_ids(synthetic_ids(SyntheticCorpus(tokens=tokens)))}


def order(
    url: str,
    *,
    requests: int = 1,
    slots: int = 1,
    shape: RequestShape = SHAPE,
    limits: RequestLimits | None = None,
    engine: str = "sglang",
    point_id: str = POINT,
    attempt: int = 1,
) -> Order:
    """An order for the client under test (`CLIENT`, set by the fixture `each_client`)."""
    return Order(
        point_id=point_id,
        attempt=attempt,
        phase="load",
        endpoint=Endpoint(url, engine),
        shape=shape,
        load=Load(request=limits or RequestLimits(), client="plain" if CLIENT == "plain" else "auto"),
        slots=slots,
        windows=np.arange(requests, dtype=np.int64) * 64,
        rid_prefix="rb-test-00001-l",
    )


async def exchange(one: Order) -> tuple[Exchange, dict[str, object]]:
    """One request over a client of its own, and its record."""
    client = make_client(one, AnchoredClock())
    try:
        return await send(client, one)
    finally:
        await client.close()


async def send(client: Client, one: Order, ticket: int = 0) -> tuple[Exchange, dict[str, object]]:
    engine = ENGINES[one.endpoint.engine]
    template = engine.template(one.shape)
    decoder = engine.decoder(one.shape, event_bytes_max=one.load.request.event_bytes_max, skim=SKIM)
    sent = await client.send(template.path, template.render(one.rid(ticket), b"1,2,3"), decoder)
    return sent, record(one, "w000", ticket, sent)


@dataclass
class Fleet:
    """Some workers, their desk, and the run directory that they fill."""

    path: Path
    workers: int
    clock: AnchoredClock = field(default_factory=lambda: AnchoredClock(host="host"))

    def __post_init__(self) -> None:
        self.run = RunDirectory(self.path / "run")
        self.run.create()
        self.files = PartFiles(self.run.path)
        self.desk = OrderDesk(self.run, self.files, self.clock)
        text = prompts()
        self.names = [f"w{number:03d}" for number in range(self.workers)]
        self.members = {name: self._worker(name, text) for name in self.names}

    def _worker(self, name: str, text: dict[str, Rendered]) -> LoadWorker:
        return LoadWorker(name, text, self.clock, lambda: WorkerHealth(name, self.clock))

    async def carry_out(self, whole: Order, concurrency: int) -> list[WorkerSummary]:
        """`whole` spread over the workers; `slots` and the like are set here."""
        slots = dict(zip(self.names, split_slots(concurrency, self.workers), strict=True))
        self.desk.open(whole.key, len(whole.windows), slots, self.recall)
        try:
            befores = accumulate(slots.values(), initial=0)
            for (name, share), before in zip(slots.items(), befores, strict=False):
                await self.members[name].arm(replace(whole, slots=share, first_route=before))
            start = self.clock.unix_ns()
            runs = [worker.run(self.desk, start, ClockOffset(0, 0)) for worker in self.members.values()]
            return list(await asyncio.gather(*runs))
        finally:
            self.desk.close()

    async def recall(self, worker: str, *what: Any) -> Returned | None:
        """`protocol.fleet.LoadFleet.recall`."""
        return await self.members[worker].recall(*what)

    def part(self, worker: str, attempt: int = 1, point_id: str = POINT) -> Part:
        return read_part(self.run.part(point_id, attempt, worker))

    def rows(self, attempt: int = 1, point_id: str = POINT) -> list[dict[str, Any]]:
        """The records of all workers, by ticket."""
        parts = [self.part(name, attempt, point_id) for name in self.names]
        rows = [row for part in parts for row in part.table.to_pylist()]
        return sorted(rows, key=lambda row: int(row["ticket"]))


STAMPS = (
    "asked_ns",
    "connected_ns",
    "sent_ns",
    "headers_ns",
    "first_event_ns",
    "first_token_ns",
    "last_token_ns",
    "end_ns",
)


def assert_stamps_ordered(row: dict[str, Any]) -> None:
    """The stamps that a record has come in the order in which things happen."""
    stamps = [row[name] for name in STAMPS if row[name] is not None]
    assert stamps == sorted(stamps), {name: row[name] for name in STAMPS}
