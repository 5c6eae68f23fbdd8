"""One arm's serving engine as the procedure sees it: control calls with their waits and limits.

Runs in the coordinator. Every wait has a limit and ends in a TargetError that names the step and the
engine's last word. No call here generates a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeVar

from raybench.engines.contract import Counters, Engine, Facts, Http, QueueState
from raybench.engines.histogram import Histogram
from raybench.errors import TargetError
from raybench.load.order import Endpoint
from raybench.records.clock import Clock
from raybench.scenario.schema import Arm, Guards

Sleep = Callable[[float], Awaitable[object]]
T = TypeVar("T")

#: Pause between two looks at the engine while waiting for it.
POLL_S = 0.2
#: The least that an engine is given for a flush, when the limit is near.
FLUSH_WAIT_S_MIN = 1.0
#: Requests aborted at a time.
ABORTS_AT_ONCE = 64


@dataclass(frozen=True)
class ServerView:
    """The engine before or after the load: who it is, and its counters (None = it has none)."""

    instance: str | None
    counters: Counters | None


@dataclass
class Target:
    """An engine under test. `controls` are the control clients of all its server URLs, at least one:
    behind a router each worker is flushed and asked by itself."""

    arm_name: str
    arm: Arm
    engine: Engine
    endpoint: Endpoint
    controls: Sequence[Http]
    clock: Clock
    sleep: Sleep
    _with_queue_numbers: set[int] = field(default_factory=set)

    async def wait_alive(self, timeout_s: float) -> None:
        """Until the passive probe answers on every URL."""
        for http in self.controls:

            async def look(http: Http = http) -> str | None:
                reply = await self.engine.alive(http)
                return None if reply.ok else reply.summary

            await self._until(look, "alive", timeout_s, POLL_S)

    async def wait_idle(self, timeout_s: float, stable_s: float) -> bool:
        """Until running = queued = 0 on every URL for `stable_s`; False when the engine cannot tell.

        An engine that could tell before and now does not is busy, not one that cannot.
        """
        idle_since_ns: int | None = None
        known = False

        async def look() -> str | None:
            nonlocal idle_since_ns, known
            known, busy = True, []
            for index, http in enumerate(self.controls):
                state = await self.engine.queue(http)
                if state is not None:
                    self._with_queue_numbers.add(index)
                if state is None and index in self._with_queue_numbers:
                    busy.append("no answer about its queue")
                elif state is None:
                    known = False
                elif not state.idle:
                    busy.append(f"running {state.running}, queued {state.queued}")
            if busy:
                idle_since_ns = None
                return "; ".join(busy)
            now = self.clock.monotonic_ns()
            idle_since_ns = now if idle_since_ns is None else idle_since_ns
            stable = not known or now - idle_since_ns >= stable_s * 1e9
            return None if stable else f"idle, not yet for {stable_s:g} s"

        await self._until(look, "idle", timeout_s, POLL_S)
        return known

    async def flush(self, guards: Guards, refused: Callable[[str], None] = lambda word: None) -> str:
        """Empty the prefix cache on every URL; the engine's last word. One flush at a time.

        A refusal (`refused` is told of each) means wait and try again until the limit; an engine without a
        flush is an error, since `guards.flush` asked for one.
        """
        last = ""
        for http in self.controls:
            end_ns = self.clock.monotonic_ns() + int(guards.flush_timeout_s * 1e9)

            async def look(http: Http = http, end_ns: int = end_ns) -> str | None:
                nonlocal last
                left_s = max((end_ns - self.clock.monotonic_ns()) / 1e9, FLUSH_WAIT_S_MIN)
                result = await self.engine.flush(http, timeout_s=left_s, storage=guards.flush_storage)
                last = f"{result.reply.summary} {result.note}".rstrip()
                if result.unsupported:
                    raise TargetError(
                        "flush",
                        f"{self.arm_name} has no cache flush to offer ({last}); enable it on the server, or write"
                        " `guards: {flush: false}` and rely on fresh text and the hit check",
                    )
                if result.accepted:
                    return None
                refused(last)
                return last

            await self._until(look, "flush", guards.flush_timeout_s, guards.flush_retry_s)
        return last

    async def inside(self) -> QueueState | None:
        """Requests in the engine now, over all URLs; None when it cannot tell."""
        states = [await self.engine.queue(http) for http in self.controls]
        known = [state for state in states if state is not None]
        if len(known) < len(states):
            return None
        return QueueState(sum(state.running for state in known), sum(state.queued for state in known))

    async def left_inside(self, settle_s: float) -> QueueState | None:
        """`inside`, once it is nothing or `settle_s` are over: gauges may lag behind the last answer."""
        return await self._settled(self.inside, lambda state: state is None or state.idle, settle_s)

    async def end_ghosts(self, rids: Sequence[str], grace_s: float) -> int:
        """Requests that we gave up may go on inside: after `grace_s` those are aborted by id; how many were.

        Ids have one width, since engines match them by prefix. 0: the engine ended them by itself, or it knows
        no abort.
        """
        state = await self.left_inside(grace_s)
        if state is None or state.idle:
            return 0
        room = asyncio.Semaphore(ABORTS_AT_ONCE)

        async def abort(http: Http, rid: str) -> bool:
            async with room:
                return await self.engine.abort(http, rid) is not None

        done = await asyncio.gather(*(abort(http, rid) for http in self.controls for rid in rids))
        return sum(done) // len(self.controls)

    async def view(self) -> ServerView:
        """Identity and counters now: all instances together, counters summed over the URLs."""
        instances = [(await self.engine.facts(http)).instance for http in self.controls]
        known_instances = [instance for instance in instances if instance is not None]
        instance = "+".join(known_instances) if len(known_instances) == len(instances) else None
        scrapes = [await self.engine.scrape(http) for http in self.controls]
        known = [scrape[0] for scrape in scrapes if scrape is not None]
        return ServerView(instance, _sum(known) if len(known) == len(scrapes) else None)

    async def latencies(self) -> dict[str, Histogram]:
        """The engine's own latency histograms now, over all URLs; those that every URL has."""
        told = [await self.engine.latencies(http) for http in self.controls]
        shared = set.intersection(*(set(one) for one in told))
        return {name: reduce(Histogram.plus, [one[name] for one in told]) for name in sorted(shared)}

    async def view_after(self, before: ServerView, requests: int, settle_s: float) -> ServerView:
        """`view`, once the counters have caught up with `requests` or `settle_s` are over.

        Engines move some counters a moment after the last byte has left.
        """

        def caught_up(after: ServerView) -> bool:
            counted = _delta(before.counters, after.counters)
            return counted is None or counted >= requests

        return await self._settled(self.view, caught_up, settle_s)

    async def facts(self) -> Facts:
        return await self.engine.facts(self.controls[0])

    async def _settled(self, look: Callable[[], Awaitable[T]], done: Callable[[T], bool], limit_s: float) -> T:
        """Look again until it is as it should be, or the limit is over; what was seen last."""
        end_ns = self.clock.monotonic_ns() + int(limit_s * 1e9)
        while not done(seen := await look()) and self.clock.monotonic_ns() < end_ns:
            await self.sleep(POLL_S)
        return seen

    async def _until(
        self, look: Callable[[], Awaitable[str | None]], step: str, timeout_s: float, pause_s: float
    ) -> None:
        """Look again until there is nothing to wait for; `look` says what is in the way."""
        end_ns = self.clock.monotonic_ns() + int(timeout_s * 1e9)
        while (obstacle := await look()) is not None:
            if self.clock.monotonic_ns() >= end_ns:
                raise TargetError(step, f"{self.arm_name} not within {timeout_s:g} s: {obstacle}")
            await self.sleep(pause_s)


def _sum(counters: list[Counters]) -> Counters:
    def total(name: str) -> float | None:
        values = [getattr(one, name) for one in counters]
        return None if None in values or not values else float(sum(values))

    return Counters(**{name: total(name) for name in Counters.__dataclass_fields__})


def _delta(before: Counters | None, after: Counters | None) -> float | None:
    if before is None or after is None or before.requests is None or after.requests is None:
        return None
    return after.requests - before.requests
