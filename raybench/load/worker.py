"""A load worker: keeps its slots in flight until no ticket is left, and streams out records.

A plain class that runs on one event loop; `cluster/fleet.py` wraps it into a Ray actor, a test steps
it directly. The worker decides nothing: slots, tickets and the start come from the coordinator.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from raybench.corpus.tokens import Rendered
from raybench.engines import ENGINES
from raybench.engines.contract import BodyTemplate, Engine
from raybench.load.client import Client, make_client
from raybench.load.exchange import Exchange, record
from raybench.load.leases import Recall, Returned
from raybench.load.open_loop import OpenLoop
from raybench.load.order import Order, WorkerSummary
from raybench.load.pacer import Sends
from raybench.load.supply import TicketSupply
from raybench.records.clock import Clock, ClockAnchor, ClockOffset
from raybench.records.schema import REQUESTS, WORKER
from raybench.records.stream import ArrowEncoder, part_metadata

#: Kind of the part with the worker's own health, beside `requests`.
HEALTH = "health"
#: How often finished records leave the worker; a crash loses at most this much (design 6).
FLUSH_S = 0.5
#: Records that are encoded at a time: a millisecond's work, for which no stream is read.
BATCH_ROWS = 64
#: Outcomes after which the engine may still work on the request.
GIVEN_UP = frozenset({"timeout", "cancelled", "disconnected", "bad_stream"})
#: Pause between the steps of the start ramp: the resolution of the loop's timers.
RAMP_STEP_S = 0.001


class Desk(Protocol):
    """The coordinator as a worker sees it."""

    async def lease(
        self, worker: str, point_id: str, attempt: int, phase: str, free_slots: int, settled: int
    ) -> list[int]:
        """Tickets to send now or next, at least one while any is unsent if there are free slots.

        settled: how many tickets of this worker are sent or have an idle slot (`TicketQueue.settled`).
        """

    async def append(self, worker: str, point_id: str, attempt: int, phase: str, kind: str, data: bytes) -> None:
        """Store a piece of this worker's part of that kind; returns when it is in the run directory."""

    async def heartbeat(self, worker: str, in_flight: int, completed: int, output_tokens: int) -> None:
        """A sign of life with numbers for the progress display."""


class Health(Protocol):
    """Measures this process while it works (`monitors.host.WorkerHealth`)."""

    async def watch(self, unread: Callable[[], list[int]]) -> None:
        """Until cancelled. unread: looks into the receive queues (`load.client.Client.unread`)."""

    def started(self, late_ns: int) -> None:
        """A request was begun so long after it was due: by the start ramp, or by an open loop's schedule."""

    def row(
        self, *, point_id: str, attempt: int, in_flight: int, completed: int, output_tokens_seen: int
    ) -> dict[str, object]:
        """One row of records.schema.WORKER: since the last row."""


class LoadWorker:
    """One process's share of the load.

    clock: anchored (`records.clock.AnchoredClock`), so that no step of the wall clock moves a stamp.
    prompts: what bodies are cut from, by kind (`ids`, `text`); memory-mapped, shared by all workers
    of a node.
    """

    def __init__(
        self, name: str, host: str, prompts: dict[str, Rendered], clock: Clock, make_health: Callable[[], Health]
    ) -> None:
        self.name = name
        self._make_health = make_health
        self._host = host
        self._prompts = prompts
        self._clock = clock
        self._armed: _Armed | None = None
        self._shift: _Shift | None = None
        self._run: asyncio.Task[WorkerSummary] | None = None

    def clock_reading(self) -> int:
        """This host's anchored wall clock, for the coordinator's offset measurement."""
        return self._clock.unix_ns()

    async def arm(self, order: Order) -> None:
        """What needs no tickets: session and template. The first bodies are made between lease and start."""
        await self._disarm()
        engine = ENGINES[order.endpoint.engine]
        template = engine.template(order.shape)
        rendered = None if order.prompts else self._prompts[template.prompt]
        self._armed = _Armed(order, engine, template, rendered, make_client(order, self._clock))

    async def run(self, desk: Desk, start_unix_ns: int, offset: ClockOffset) -> WorkerSummary:
        """Carry out the armed order from `start_unix_ns` (the coordinator's clock) on."""
        if self._armed is None:
            raise AssertionError("run before arm")
        armed, self._armed = self._armed, None
        shift = _Shift(self.name, self._host, armed, desk, self._clock, offset, self._make_health())
        self._shift = shift
        self._run = asyncio.ensure_future(shift.work(start_unix_ns + offset.offset_ns))
        try:
            return await self._run
        except asyncio.CancelledError:
            return shift.summary(cancelled=True)
        finally:
            self._run = self._shift = None
            await armed.client.close()

    async def recall(self, point_id: str, attempt: int, phase: str, recall: Recall) -> Returned | None:
        """Give back tickets that no slot waits for; None when that order is not under way here."""
        shift = self._shift
        return (
            None
            if shift is None or not shift.is_for(point_id, attempt, phase)
            else await shift.tickets.recall(recall)
        )

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
    """An order with everything prepared that does not depend on the start."""

    def __init__(
        self, order: Order, engine: Engine, template: BodyTemplate, prompts: Rendered | None, client: Client
    ) -> None:
        self.order = order
        self.engine = engine
        self.template = template
        self.prompts = prompts
        self.client = client
        self._bodies: dict[int, bytes] = {}
        self._templates = {order.shape.output_tokens: template}

    def prepare(self, tickets: Iterable[int]) -> None:
        """Make the bodies of these tickets before they are asked for."""
        self._bodies |= {ticket: self._make(ticket) for ticket in tickets}

    def body(self, ticket: int) -> bytes:
        ready = self._bodies.pop(ticket, None)
        return ready if ready is not None else self._make(ticket)

    def _make(self, ticket: int) -> bytes:
        start, shape = int(self.order.windows[ticket]), self.order.shape_of(ticket)
        prompt, rid = self.order.prompt_of(ticket), self.order.rid(ticket)
        if prompt is not None:
            own = self.engine.template(shape)
            return own.render(rid, prompt.as_messages if own.prompt == "messages" else prompt.body)
        assert self.prompts is not None, "without a prompt set, text comes from a corpus"
        template = self._templates.get(shape.output_tokens)
        if template is None:
            template = self._templates[shape.output_tokens] = self.engine.template(shape)
        return template.render(rid, self.prompts.slice(start, start + shape.input_tokens))


class _Shift:
    """One order being carried out: slots, the ticket queue, the outgoing records."""

    def __init__(
        self,
        name: str,
        host: str,
        armed: _Armed,
        desk: Desk,
        clock: Clock,
        offset: ClockOffset,
        health: Health,
    ) -> None:
        order = armed.order
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
        self._rows_written = 0
        self._output_tokens = 0
        self._given_up: list[str] = []
        self._in_flight = 0
        labels = {"worker": name, "phase": order.phase, "client": armed.client.name, **offset.to_metadata()}
        self._anchor = ClockAnchor.now(clock, host)
        self._encoder = ArrowEncoder(REQUESTS, part_metadata("requests", self._anchor, **labels))
        self._health = health
        self._health_encoder = ArrowEncoder(WORKER, part_metadata("worker", self._anchor, **labels))

    async def work(self, start_unix_ns: int) -> WorkerSummary:
        await self._ship(self._encoder.start())
        await self._ship(self._health_encoder.start(), HEALTH)
        stop = asyncio.Event()
        flusher = asyncio.ensure_future(self._flush_until(stop))
        watch = asyncio.ensure_future(self._health.watch(self._armed.client.unread))
        try:
            with no_garbage_collection():
                cancelled = await self._send_all(start_unix_ns, flusher)
        finally:
            await self.tickets.close()
            await _end([watch])
            stop.set()
            await flusher
        await self._ship(self._encoder.close())
        await self._ship(self._health_encoder.close(), HEALTH)
        return self.summary(cancelled=cancelled)

    async def _send_all(self, start_unix_ns: int, flusher: asyncio.Task[None]) -> bool:
        """Lease, prepare, wait for the start, keep all slots in flight; True when we were cancelled."""
        if self._order.sends is not None:
            return await self._send_on_schedule(self._order.sends, start_unix_ns, flusher)
        try:
            await self.tickets.first()
            first = self.tickets.next_ones(self._order.slots)
            self._armed.prepare(first)
            if first:
                await self._armed.client.open(len(first))
            await self._wait_until(start_unix_ns)
        except asyncio.CancelledError:
            return True
        starter = asyncio.ensure_future(self._start_slots(start_unix_ns))
        return await _wait_for(starter, self._slots, flusher)

    async def _send_on_schedule(self, sends: Sends, start_unix_ns: int, flusher: asyncio.Task[None]) -> bool:
        """An open loop instead of slots; True when we were cancelled."""
        loop = OpenLoop(sends, self._clock, self._armed.prepare, self._exchange, self._health.started)
        try:
            loop.prepare()
            await self._armed.client.open(loop.connections)
            await self._wait_until(start_unix_ns)
        except asyncio.CancelledError:
            return True
        # By the anchor: a stall between two reads of the clock here would shift the whole schedule.
        start_ns = self._anchor.monotonic_ns + start_unix_ns - self._anchor.unix_ns
        return await _wait_for(asyncio.ensure_future(loop.run(start_ns)), [], flusher)

    async def _start_slots(self, start_unix_ns: int) -> None:
        """Start the slots at the order's rate, then wait for all of them.

        A burst of thousands of starts keeps the loop from reading for as long as it lasts, and the first
        answers would be stamped late. A worker that is ready late begins its ramp then, and does not catch up.
        """
        per_ms = self._order.starts_per_ms
        begin_ns = max(start_unix_ns, self._clock.unix_ns())
        while len(self._slots) < self._order.slots:
            since_ns = self._clock.unix_ns() - begin_ns
            due = int(since_ns / 1e6 * per_ms) + per_ms
            for number in range(len(self._slots), min(due, self._order.slots)):
                self._health.started(since_ns - number * 1_000_000 // per_ms)
                self._slots.append(asyncio.ensure_future(self._slot()))
            await asyncio.sleep(RAMP_STEP_S)
        await asyncio.gather(*self._slots)

    def is_for(self, point_id: str, attempt: int, phase: str) -> bool:
        return (point_id, attempt, phase) == (self._order.point_id, self._order.attempt, self._order.phase)

    def summary(self, *, cancelled: bool) -> WorkerSummary:
        given_up = tuple(self._given_up)
        return WorkerSummary(self._name, self._sent, self._received, self._rows_written, cancelled, given_up)

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
        body = self._armed.body(ticket)
        decoder = self._armed.engine.decoder(
            self._order.shape_of(ticket),
            event_bytes_max=self._order.limits.event_bytes_max,
            skim=not self._order.prompts,  # its answers are kept
        )
        self._sent += 1
        self._in_flight += 1
        exchange = await self._armed.client.send(self._armed.template.path, body, decoder)
        self._in_flight -= 1
        self._received += 1
        self._output_tokens += exchange.answer.output_tokens or 0
        self._rows.append(record(self._order, self._name, ticket, exchange, scheduled_ns))
        if exchange.failure is not None and exchange.failure.outcome in GIVEN_UP:
            self._given_up.append(self._order.rid(ticket))
        return exchange

    async def _lease(self, free_slots: int, settled: int) -> list[int]:
        order = self._order
        where = (order.point_id, order.attempt, order.phase)
        return await self._desk.lease(self._name, *where, free_slots, settled)

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
            await self._ship(b"".join(batches))
            self._rows_written += len(rows)
        order = self._order
        health = self._health.row(
            point_id=order.point_id,
            attempt=order.attempt,
            in_flight=self._in_flight,
            completed=self._received,
            output_tokens_seen=self._output_tokens,
        )
        await self._ship(self._health_encoder.encode([health]), HEALTH)

    async def _ship(self, data: bytes, kind: str = "requests") -> None:
        order = self._order
        await self._desk.append(self._name, order.point_id, order.attempt, order.phase, kind, data)


async def _wait_for(
    starter: asyncio.Task[None], slots: list[asyncio.Task[None]], flusher: asyncio.Task[None]
) -> bool:
    """Wait for all slots; when we are cancelled, cancel them, let them make their records, say True.

    A slot that raises is a bug of ours, and records that cannot be stored are worth no load: in both
    cases the other slots are ended and the exception goes up.
    """
    cancelled = False
    try:
        await asyncio.wait({starter, flusher}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        cancelled = True
    await _end([starter])  # no further slot is started
    await _end(slots)
    for task in (*slots, starter, flusher):
        if task.done() and not task.cancelled():
            task.result()
    return cancelled


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
