"""The procedure of a point: one attempt, step by step, each step journalled.

Runs in the coordinator, one object an arm. Order matters and is asserted by a test: alive, idle,
prewarm with other text, idle, flush, counters, load, nothing left inside, counters. After requests that were given
up, ghosts are ended. What was seen and what was recorded is judged in `checks.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Literal

from raybench.analysis.server_log import LogSpan
from raybench.engines.contract import QueueState
from raybench.engines.histogram import Histogram
from raybench.errors import TargetError
from raybench.load.order import Order, rid_of
from raybench.protocol.attempts import Attempt, Windows
from raybench.protocol.context import RunContext
from raybench.protocol.fleet import TARGET_HOST, FleetResult, LogReading
from raybench.protocol.progress import Progress
from raybench.protocol.sending import Sent, send
from raybench.protocol.target import ServerView, Target
from raybench.records.clock import ClockOffset

Phase = Literal["prewarm", "load"]

#: Refused flushes that the journal quotes.
REFUSALS_KEPT = 20


@dataclass(frozen=True)
class Observed:
    """What the steps saw, beside the records in the part files.

    link_changes: how often a network link went down or came up under the load, by worker or `target host`; those
    of which it is not known are left out.
    """

    before: ServerView
    after: ServerView
    load: FleetResult
    flush_reply: str | None
    idle_known: bool
    leased: int
    left_inside: QueueState | None
    log_flush: LogSpan | None
    log_load: LogSpan | None
    log_reason: str | None
    link_changes: Mapping[str, int]


class Procedure:
    """The steps of an attempt against one target."""

    def __init__(self, context: RunContext, target: Target, log: LogReading, progress: Progress) -> None:
        self._target = target
        self._fleet = context.fleet
        self._host = context.host
        self._desk = context.desk
        self._journal = context.journal
        self._guards = context.scenario.guards
        self._load = context.scenario.load
        self._run_token = context.run_id[-8:]
        self._log = log
        self._progress = progress

    async def carry_out(self, attempt: Attempt) -> Observed:
        """All steps of one attempt. Raises TargetError when a step cannot be done within its limit."""
        guards, target = self._guards, self._target
        async with self._step(attempt, "alive"):
            await target.wait_alive(guards.alive_timeout_s)
        idle_known = await self._idle(attempt)
        if len(attempt.prewarm_windows):
            async with self._step(attempt, "prewarm") as detail:
                warmed = await self._send(attempt, "prewarm", attempt.prewarm_windows)
                detail |= {"sent": warmed.requests, "lost": dict(warmed.result.lost)}
            await self._end_ghosts(attempt, "prewarm", warmed.result)
            idle_known = await self._idle(attempt) and idle_known
        log_before_flush = await self._log_mark()
        flush_reply = await self._flush(attempt) if attempt.flush else None
        async with self._step(attempt, "counters_before") as detail:
            before = await target.view()
            detail |= _told(before, await target.latencies())
            log_before = detail["log_position"] = await self._log_mark()
            await self._host.watch_links()
        async with self._step(attempt, "load") as detail:
            sent = await self._send(attempt, "load", attempt.windows)
            result = sent.result
            detail |= {"start_unix_ns": result.start_unix_ns, "end_unix_ns": result.end_unix_ns}
            detail |= {"sent": sent.requests, "lost": dict(result.lost)}
            links = detail["link_changes"] = await self._link_changes(result)
        self._journal.append("load_started", **attempt.where, unix_ns=result.start_unix_ns)
        self._journal.append("load_ended", **attempt.where, unix_ns=result.end_unix_ns)
        async with self._step(attempt, "counters_after") as detail:
            left_inside = await self._left_inside(result)
            after = await target.view_after(before, sent.requests, guards.counters_settle_s)
            detail |= _told(after, await target.latencies())
            log_after = detail["log_position"] = await self._log_mark()
        await self._end_ghosts(attempt, "load", result)
        return Observed(
            before=before,
            after=after,
            load=result,
            flush_reply=flush_reply,
            idle_known=idle_known,
            leased=sent.leased,
            left_inside=left_inside,
            log_flush=self._log_span(log_before_flush, log_before),
            log_load=self._log_span(log_before, log_after),
            log_reason=self._log.reason if self._log.part is None else "the target's host did not answer",
            link_changes=links,
        )

    async def _flush(self, attempt: Attempt) -> str:
        async with self._step(attempt, "flush") as detail:
            refusals: list[str] = []
            reply = await self._target.flush(self._guards, refusals.append)
            detail |= {"reply": reply, "refusals": refusals[:REFUSALS_KEPT]}
        return reply

    async def _left_inside(self, result: FleetResult) -> QueueState | None:
        """What the engine still has when all that is ours has ended.

        A gauge may lag far behind: 20 s on an SGLang with a cache on its host. It is waited for before the
        counters are read, so that a request of somebody else's that ends meanwhile shows in them. What we gave up
        is not waited for: it is ended as a ghost.
        """
        if result.lost or any(summary.given_up for summary in result.summaries):
            return await self._target.inside()
        return await self._target.left_inside(self._guards.idle_timeout_s)

    async def _link_changes(self, result: FleetResult) -> dict[str, int]:
        told = {summary.worker: summary.link_changes for summary in result.summaries}
        told[TARGET_HOST] = await self._host.link_changes()
        return {name: changes for name, changes in told.items() if changes is not None}

    async def _log_mark(self) -> int | None:
        return None if self._log.part is None else await self._host.log_position()

    def _log_span(self, begin: int | None, end: int | None) -> LogSpan | None:
        if self._log.part is None or begin is None or end is None:
            return None
        return LogSpan(self._log.part, begin, end)

    async def _end_ghosts(self, attempt: Attempt, phase: Phase, result: FleetResult) -> None:
        """See that what we gave up does not go on in the engine; what a lost worker had is unknown: all of it."""
        rids = [rid for summary in result.summaries for rid in summary.given_up]
        if result.lost:
            count = len(attempt.windows if phase == "load" else attempt.prewarm_windows)
            rids = [rid_of(self._rid_prefix(attempt, phase), ticket) for ticket in range(count)]
        if not rids:
            return
        async with self._step(attempt, "ghosts") as detail:
            detail["given_up"] = len(rids)
            detail["aborted"] = await self._target.end_ghosts(rids, self._guards.ghost_grace_s)

    def _rid_prefix(self, attempt: Attempt, phase: Phase) -> str:
        return f"rb-{self._run_token}-{attempt.serial:05d}-{phase[0]}"

    async def _idle(self, attempt: Attempt) -> bool:
        guards = self._guards
        async with self._step(attempt, "idle") as detail:
            known = await self._target.wait_idle(guards.idle_timeout_s, guards.idle_stable_s)
            detail["source"] = "engine" if known else "unknown"
        return known

    async def _send(self, attempt: Attempt, phase: Phase, windows: Windows) -> Sent:
        """Spread the windows over the workers and let them run; the same concurrency cap in any phase.

        The prewarm of an open loop has no schedule: it is sent at once.
        """
        schedule = attempt.schedule if phase == "load" else None
        concurrency = 0 if schedule is not None else min(attempt.point.concurrency or len(windows), len(windows))
        order = Order(
            point_id=attempt.point.point_id,
            attempt=attempt.number,
            phase=phase,
            endpoint=self._target.endpoint,
            shape=attempt.shape,
            load=self._load,
            slots=concurrency,
            windows=windows,
            rid_prefix=self._rid_prefix(attempt, phase),
            prompts=attempt.prompts,
        )
        offsets = await self._fleet.offsets()
        await self._note_clocks(attempt, phase, "start", offsets)
        lead_s = self._guards.start_lead_s
        sent = await send(order, self._fleet.workers, schedule, self._fleet, self._desk, offsets, lead_s)
        # Measured again: clocks drift, and the merge interpolates between the two.
        await self._note_clocks(attempt, phase, "end", await self._fleet.offsets())
        return sent

    async def _note_clocks(
        self, attempt: Attempt, phase: str, when: str, workers: Mapping[str, ClockOffset]
    ) -> None:
        """Journal every clock of the run, those of the workers as measured a moment ago."""
        where = {**attempt.where, "phase": phase, "when": when}
        for worker, offset in workers.items():
            self._journal.append("clock", **where, worker=worker, **asdict(offset))
        for name, offset in (await self._host.clocks()).items():
            self._journal.append("clock", **where, clock=name, **asdict(offset))

    @asynccontextmanager
    async def _step(self, attempt: Attempt, name: str) -> AsyncIterator[dict[str, object]]:
        """Journal a step with its duration and what it found; a failed one with the engine's word."""
        detail: dict[str, object] = {}
        where = {**attempt.where, "step": name}
        self._progress.step(attempt.point, attempt.number, name)
        clock = self._target.clock
        begin_ns = clock.monotonic_ns()
        try:
            yield detail
        except TargetError as error:
            seconds = (clock.monotonic_ns() - begin_ns) / 1e9
            self._journal.append("step", **where, status="failed", seconds=seconds, error=str(error))
            raise
        seconds = (clock.monotonic_ns() - begin_ns) / 1e9
        self._journal.append("step", **where, status="done", seconds=seconds, **detail)


def _told(view: ServerView, latencies: Mapping[str, Histogram]) -> dict[str, object]:
    """What the engine says of itself, as plain JSON."""
    return {
        "instance": view.instance,
        "counters": None if view.counters is None else vars(view.counters),
        "latencies": {name: vars(histogram) for name, histogram in latencies.items()},
    }
