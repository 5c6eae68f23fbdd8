"""A load worker: keeps its slots in flight until no ticket is left, and streams out records.

A plain class that runs on one event loop; `cluster/fleet.py` wraps it into a Ray actor, a test steps
it directly. The worker decides nothing: slots, tickets and the start come from the coordinator.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

from raybench.corpus.rendered import Rendered
from raybench.engines import ENGINES
from raybench.engines.contract import Decoder
from raybench.load.client import make_client
from raybench.load.exchange import Exchange, record
from raybench.load.health import WorkerHealth
from raybench.load.leases import Recall, Returned
from raybench.load.open_loop import OpenLoop
from raybench.load.order import Order, OrderKey, WorkerSummary
from raybench.load.supply import TicketSupply
from raybench.records.clock import AnchoredClock, Clock, ClockOffset
from raybench.records.schema import REQUESTS, WORKER, Outcome
from raybench.records.stream import ArrowEncoder, part_metadata

#: How often finished records leave the worker; a crash loses at most this much.
FLUSH_S = 0.5
#: Records that are encoded at a time: a millisecond's work, for which no stream is read.
BATCH_ROWS = 64
#: Outcomes after which the engine may still work on the request.
GIVEN_UP: frozenset[Outcome] = frozenset({"timeout", "cancelled", "disconnected", "bad_stream"})
#: Pause between the steps of the start ramp: the resolution of the loop's timers.
RAMP_STEP_S = 0.001


class Desk(Protocol):
    """The coordinator as a worker sees it."""

    async def lease(self, worker: str, key: OrderKey, free_slots: int, settled: int) -> list[int]:
        """Tickets to send now or next, at least one while any is unsent if there are free slots.

        settled: how many tickets of this worker are sent or have an idle slot (`TicketQueue.settled`).
        """

    async def append(self, worker: str, key: OrderKey, kind: str, data: bytes) -> None:
        """Store a piece of this worker's part of that schema; returns when it is in the run directory."""

    async def heartbeat(self, worker: str, in_flight: int, completed: int, output_tokens: int) -> None:
        """A sign of life with numbers for the progress display."""


class LoadWorker:
    """One process's share of the load.

    rendered: what bodies are cut from, by kind (`ids`, `text`); memory-mapped, shared by all workers
    of a node. clock: anchored, so that no step of the wall clock moves a stamp. make_health: called at the start
    of each order.
    """

    def __init__(
        self,
        name: str,
        rendered: dict[str, Rendered],
        clock: AnchoredClock,
        make_health: Callable[[], WorkerHealth],
    ) -> None:
        self.name = name
        self._make_health = make_health
        self._rendered = rendered
        self._clock = clock
        self._armed: _Armed | None = None
        self._shift: _Shift | None = None
        self._run: asyncio.Task[WorkerSummary] | None = None

    async def arm(self, order: Order) -> None:
        """What needs no tickets: session and template. The first bodies are made between lease and start."""
        await self._disarm()
        self._armed = _Armed(order, self._rendered, self._clock)

    async def run(self, desk: Desk, start_unix_ns: int, offset: ClockOffset) -> WorkerSummary:
        """Carry out the armed order from `start_unix_ns` (the coordinator's clock) on."""
        assert self._armed is not None, "run before arm"
        armed, self._armed = self._armed, None
        shift = _Shift(self.name, armed, desk, self._clock, offset, self._make_health())
        self._shift = shift
        self._run = asyncio.ensure_future(shift.work(start_unix_ns + offset.offset_ns))
        try:
            return await self._run
        except asyncio.CancelledError:
            return shift.summary()
        finally:
            self._run = self._shift = None
            await armed.client.close()

    async def recall(self, key: OrderKey, recall: Recall) -> Returned | None:
        """Give back tickets that no slot waits for; None when that order is not under way here."""
        shift = self._shift
        if shift is None or shift.key != key:
            return None
        return await shift.tickets.recall(recall)

    async def cancel(self) -> None:
        """Give the order up: open requests are closed (engines abort on disconnect) and recorded."""
        if self._run is not None:
            self._run.cancel()
        await self._disarm()

    async def _disarm(self) -> None:
        armed, self._armed = self._armed, None
        if armed is not None:
            await armed.client.close()


class _Armed:
    """An order with everything prepared that does not depend on the start. rendered: as in `LoadWorker`."""

    def __init__(self, order: Order, rendered: Mapping[str, Rendered], clock: Clock) -> None:
        self.order = order
        self._engine = ENGINES[order.endpoint.engine]
        template = self._engine.template(order.shape)
        self.path = template.path
        self._templates = {order.shape.output_tokens: template}
        self._rendered = None if order.prompts else rendered[template.prompt]
        self._bodies: dict[int, bytes] = {}
        self.client = make_client(order, clock)

    def prepare(self, tickets: Iterable[int]) -> None:
        """Make the bodies of these tickets before they are asked for."""
        self._bodies |= {ticket: self._make(ticket) for ticket in tickets}

    def body(self, ticket: int) -> bytes:
        ready = self._bodies.pop(ticket, None)
        return ready if ready is not None else self._make(ticket)

    def decoder(self, ticket: int) -> Decoder:
        """A reader of this ticket's answer, in full where it is kept: that of a prompt."""
        limit = self.order.load.request.event_bytes_max
        shape, skim = self.order.shape_of(ticket), not self.order.prompts
        return self._engine.decoder(shape, event_bytes_max=limit, skim=skim)

    def _make(self, ticket: int) -> bytes:
        rid, shape, prompt = self.order.rid(ticket), self.order.shape_of(ticket), self.order.prompt_of(ticket)
        if prompt is not None:
            template = self._engine.template(shape)
            return template.render(rid, prompt.as_messages if template.prompt == "messages" else prompt.body)
        assert self._rendered is not None, "without a prompt set, text comes from a corpus"
        if shape.output_tokens not in self._templates:
            self._templates[shape.output_tokens] = self._engine.template(shape)
        template, start = self._templates[shape.output_tokens], int(self.order.windows[ticket])
        return template.render(rid, self._rendered.slice(start, start + shape.input_tokens))


class _Shift:
    """One order being carried out: slots, the ticket queue, the outgoing records."""

    def __init__(
        self,
        name: str,
        armed: _Armed,
        desk: Desk,
        clock: AnchoredClock,
        offset: ClockOffset,
        health: WorkerHealth,
    ) -> None:
        order = armed.order
        self.key = order.key
        self._name = name
        self._armed = armed
        self._order = order
        self._desk = desk
        self._clock = clock
        self.tickets = TicketSupply(order.slots, self._lease)
        self._slots: list[asyncio.Task[None]] = []
        self._rows: list[dict[str, object]] = []
        self._sent = 0
        self._received = 0
        self._output_tokens = 0
        self._given_up: list[str] = []
        self._in_flight = 0
        labels = {"worker": name, "phase": order.phase, "client": armed.client.name, **offset.to_metadata()}
        anchor = clock.reading().anchor  # of the moment at which the parts are begun
        self._encoder = ArrowEncoder(REQUESTS, part_metadata("requests", anchor, **labels))
        self._health = health
        self._health_encoder = ArrowEncoder(WORKER, part_metadata("worker", anchor, **labels))

    async def work(self, start_unix_ns: int) -> WorkerSummary:
        await self._ship("requests", self._encoder.start())
        await self._ship("worker", self._health_encoder.start())
        stop = asyncio.Event()
        flusher = asyncio.ensure_future(self._flush_until(stop))
        watch = asyncio.ensure_future(self._health.watch(self._armed.client.unread))
        try:
            with no_garbage_collection():
                await self._send_all(start_unix_ns, flusher)
        finally:
            await self.tickets.close()
            await _end([watch])
            stop.set()
            await flusher
        await self._ship("requests", self._encoder.close())
        await self._ship("worker", self._health_encoder.close())
        return self.summary()

    async def _send_all(self, start_unix_ns: int, flusher: asyncio.Task[None]) -> None:
        """Prepare, wait for the start, send. Returns when it is cancelled, too."""
        sends, armed, anchor = self._order.sends, self._armed, self._clock.anchor
        try:
            if sends is None:
                await self.tickets.first()
                first = self.tickets.next_ones(self._order.slots)
                armed.prepare(first)
                await armed.client.open(len(first))
                send = partial(self._start_slots, start_unix_ns)
            else:
                loop = OpenLoop(sends, self._clock, armed.prepare, self._exchange, self._health.started)
                loop.prepare()
                await armed.client.open(loop.connections)
                # By the anchor: a stall between two reads of the clock here would shift the whole schedule.
                send = partial(loop.run, anchor.monotonic_ns + start_unix_ns - anchor.unix_ns)
            await self._wait_until(start_unix_ns)
        except asyncio.CancelledError:
            return
        await _wait_for(asyncio.ensure_future(send()), self._slots, flusher)

    async def _start_slots(self, start_unix_ns: int) -> None:
        """Start the slots at the order's rate, then wait for all of them.

        A burst of thousands of starts keeps the loop from reading for as long as it lasts, and the first
        answers would be stamped late. A worker that is ready late begins its ramp then, and does not catch up.
        """
        per_ms = self._order.load.starts_per_ms
        begin_ns = max(start_unix_ns, self._clock.unix_ns())
        while len(self._slots) < self._order.slots:
            since_ns = self._clock.unix_ns() - begin_ns
            due = int(since_ns / 1e6 * per_ms) + per_ms
            for number in range(len(self._slots), min(due, self._order.slots)):
                self._health.started(since_ns - number * 1_000_000 // per_ms)
                self._slots.append(asyncio.ensure_future(self._slot()))
            await asyncio.sleep(RAMP_STEP_S)
        await asyncio.gather(*self._slots)

    def summary(self) -> WorkerSummary:
        return WorkerSummary(self._name, self._sent, tuple(self._given_up))

    async def _wait_until(self, start_unix_ns: int) -> None:
        while (left_ns := start_unix_ns - self._clock.unix_ns()) > 0:
            await asyncio.sleep(left_ns / 1e9 if left_ns > 2_000_000 else 0)

    async def _slot(self) -> None:
        """One unit of concurrency: send, wait for the end, send the next."""
        while (ticket := await self.tickets.take()) is not None:
            exchange = await self._exchange(ticket)
            self.tickets.slot_ended()
            if exchange.failure is not None and exchange.failure.outcome == "cancelled":
                return

    async def _exchange(self, ticket: int, scheduled_ns: int | None = None) -> Exchange:
        """One request from its body to its record."""
        armed = self._armed
        body, decoder = armed.body(ticket), armed.decoder(ticket)
        self._sent += 1
        self._in_flight += 1
        exchange = await armed.client.send(armed.path, body, decoder)
        self._in_flight -= 1
        self._received += 1
        self._output_tokens += exchange.answer.output_tokens or 0
        self._rows.append(record(self._order, self._name, ticket, exchange, scheduled_ns))
        if exchange.failure is not None and exchange.failure.outcome in GIVEN_UP:
            self._given_up.append(self._order.rid(ticket))
        return exchange

    async def _lease(self, free_slots: int, settled: int) -> list[int]:
        return await self._desk.lease(self._name, self.key, free_slots, settled)

    async def _flush_until(self, stop: asyncio.Event) -> None:
        """Every FLUSH_S, and once more at the end: after `stop`, whatever was under way when it came."""
        stopped = False
        while not stopped:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), FLUSH_S)
            stopped = stop.is_set()
            await self._flush()
            await self._desk.heartbeat(self._name, self._in_flight, self._received, self._output_tokens)

    async def _flush(self) -> None:
        rows, self._rows = self._rows, []
        batches = []
        for first in range(0, len(rows), BATCH_ROWS):
            batches.append(self._encoder.encode(rows[first : first + BATCH_ROWS]))
            await asyncio.sleep(0)  # reads come first
        if batches:
            await self._ship("requests", b"".join(batches))
        health = self._health.row(
            point_id=self.key.point_id,
            attempt=self.key.attempt,
            in_flight=self._in_flight,
            completed=self._received,
            output_tokens_seen=self._output_tokens,
        )
        await self._ship("worker", self._health_encoder.encode([health]))

    async def _ship(self, kind: str, data: bytes) -> None:
        await self._desk.append(self._name, self.key, kind, data)


async def _wait_for(
    starter: asyncio.Task[None], slots: list[asyncio.Task[None]], flusher: asyncio.Task[None]
) -> None:
    """Wait for all slots; when we are cancelled, cancel them and let them make their records.

    A slot that raises is a bug of ours, and records that cannot be stored are worth no load: in both
    cases the other slots are ended and the exception goes up.
    """
    with suppress(asyncio.CancelledError):
        await asyncio.wait({starter, flusher}, return_when=asyncio.FIRST_COMPLETED)
    await _end([starter])  # no further slot is started
    await _end(slots)
    for task in (*slots, starter, flusher):
        if task.done() and not task.cancelled():
            task.result()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A collection over tens of thousands of live objects would show up as TTFT."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
