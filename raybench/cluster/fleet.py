"""The load workers: an actor each, and all of them as the coordinator sees them.

`LoadWorkerActor` is a thin shell round the plain worker, in a process of its own on a client node. `RayFleet`
fills the interface of `protocol/fleet.py`; it lives inside the coordinator's actor, which owns the workers, so
that they die with it.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError

from raybench.cluster.calls import RemoteDesk, live_nodes, measure_offset, own_process, pinned, told, unwrapped
from raybench.cluster.layout import Node
from raybench.corpus.rendered import Rendered
from raybench.deploy.links import LinkWatch
from raybench.errors import ClusterError
from raybench.load.health import WorkerHealth
from raybench.load.leases import Recall, Returned
from raybench.load.order import Order, OrderKey, WorkerSummary
from raybench.load.routes import own_addresses
from raybench.load.worker import LoadWorker
from raybench.protocol.fleet import FleetResult
from raybench.records.clock import AnchoredClock, ClockOffset, ClockSample

T = TypeVar("T")

#: How long a given-up order may take to hand in its last records.
CANCEL_TIMEOUT_S = 15.0
#: A worker gives a sign of life every half second. One that is not heard of at this many looks in a row is
#: given up; of a host behind a cut link Ray itself would wait for an answer for about a minute.
SILENT_LOOKS_MAX = 10
LOOK_S = 1.0
#: The same for a worker that is asked something between loads.
SILENT_S = SILENT_LOOKS_MAX * LOOK_S
#: What one actor may hold in calls at a time: leases, record pieces and heartbeats of many workers.
COORDINATOR_CONCURRENCY = 10_000


class LoadWorkerActor:
    """One load worker in a process of its own."""

    def __init__(self, name: str, desk: RemoteDesk, prompts: dict[str, Rendered]) -> None:
        _raise_open_files()
        clock = self._clock = AnchoredClock()
        self._worker = LoadWorker(name, prompts, clock, lambda: WorkerHealth(name, clock))
        self._desk = desk

    async def hello(self, source_addresses: Sequence[str]) -> dict[str, object]:
        """Proof of life, who this is, the facts of its host, and which of the addresses are the host's."""
        own = own_addresses(source_addresses)
        return {"worker": self._worker.name, "source_addresses": own, **own_process()}

    async def clock_reading(self) -> ClockSample:
        return self._clock.reading()

    async def arm(self, order: Order) -> None:
        await self._worker.arm(order)
        urls = [order.endpoint.url, *order.endpoint.load_urls]
        self._links = LinkWatch.of_routes(urls, own_addresses(order.load.source_addresses))

    async def run(self, start_unix_ns: int, offset: ClockOffset) -> WorkerSummary:
        summary = await self._worker.run(self._desk, start_unix_ns, offset)
        return replace(summary, link_changes=self._links.changes())

    async def recall(self, key: OrderKey, recall: Recall) -> Returned | None:
        return await self._worker.recall(key, recall)

    async def cancel(self) -> None:
        await self._worker.cancel()


def _raise_open_files() -> None:
    """As many file handles as the system allows: each stream is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class RayFleet:
    """`protocol.fleet.LoadFleet` over actors.

    seats: the node of each worker, in order. source_addresses: each node is to have at least one of these.
    """

    def __init__(
        self,
        seats: Sequence[Node],
        desk: RemoteDesk,
        prompts: Mapping[str, Rendered],
        clock: AnchoredClock,
        start_timeout_s: float,
        last_pulse_ns: Callable[[str], int | None],
        source_addresses: Sequence[str] = (),
    ) -> None:
        self._seats = list(seats)
        self._desk = desk
        self._prompts = ray.put(dict(prompts))
        self._clock = clock
        self._start_timeout_s = start_timeout_s
        self._last_pulse_ns = last_pulse_ns
        self._source_addresses = list(source_addresses)
        self._actors: dict[str, Any] = {}
        self._nodes: dict[str, Node] = {}
        self._names = [f"w{seat:03d}" for seat in range(len(self._seats))]
        self._renewals = 0

    @property
    def workers(self) -> list[str]:
        return list(self._names)

    async def start(self) -> list[dict[str, object]]:
        """Make all workers and hear from each. Raises ClusterError within the start limit."""
        return await self._make(list(zip(self._names, self._seats, strict=True)))

    async def renew(self) -> list[str]:
        dead = [name for name in self._names if name not in self._actors]
        if not dead:
            return []
        alive = {node.node_id for node in live_nodes()}
        self._renewals += 1
        fresh = []
        for name in dead:
            node = self._nodes[name]
            if node.node_id not in alive:
                raise ClusterError(f"client node {node.title} has left the cluster; its worker cannot be replaced")
            new_name = f"{name.split('r')[0]}r{self._renewals}"
            self._names[self._names.index(name)] = new_name
            fresh.append((new_name, node))
        await self._make(fresh)
        return [name for name, _ in fresh]

    async def offsets(self) -> dict[str, ClockOffset]:
        measured = await asyncio.gather(*(self._offset_or_none(name) for name in self._names))
        return {name: offset for name, offset in zip(self._names, measured, strict=True) if offset is not None}

    async def execute(
        self, orders: Mapping[str, Order], offsets: Mapping[str, ClockOffset], start_lead_s: float
    ) -> FleetResult:
        lost: dict[str, str] = {name: "gone before the start" for name in orders if name not in offsets}
        ready = {name: order for name, order in orders.items() if name not in lost}
        arming = (self._call(n, self._actors[n].arm.remote(o), SILENT_S) for n, o in ready.items())
        armed = await asyncio.gather(*arming)
        lost |= {name: error for name, (_, error) in zip(ready, armed, strict=True) if error is not None}
        start_unix_ns = self._clock.unix_ns() + int(start_lead_s * 1e9)
        if lost:
            await self.cancel()
            return FleetResult(start_unix_ns, self._clock.unix_ns(), (), lost)
        running = {
            asyncio.ensure_future(
                self._call(name, self._actors[name].run.remote(start_unix_ns, offsets[name]))
            ): name
            for name in ready
        }
        summaries: list[WorkerSummary] = []
        pending = set(running)
        watch = asyncio.ensure_future(self._give_up_the_silent(running))
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    summary, error = task.result()
                    if error is not None:
                        lost[running[task]] = error
                    elif summary is not None:
                        summaries.append(summary)
                if lost and pending:
                    await self.cancel()  # the point is void: what is still under way only loads the server
        except asyncio.CancelledError:
            await self.cancel()
            if pending:
                await asyncio.wait(pending, timeout=CANCEL_TIMEOUT_S)
            raise
        finally:
            watch.cancel()
        return FleetResult(start_unix_ns, self._clock.unix_ns(), tuple(summaries), lost)

    async def _give_up_the_silent(self, running: Mapping[asyncio.Task[Any], str]) -> None:
        """End the actors of workers that are not heard of, so that their calls fail.

        Looks are counted, not seconds: a coordinator that was held up itself reads the signs that have come
        meanwhile before it looks again.
        """
        heard: dict[str, int | None] = {}
        looks: Counter[str] = Counter()
        while True:
            await asyncio.sleep(LOOK_S)
            for name in (name for task, name in running.items() if not task.done()):
                last = self._last_pulse_ns(name)
                looks[name] = looks[name] + 1 if heard.get(name) == last else 0
                heard[name] = last
                if looks[name] == SILENT_LOOKS_MAX and name in self._actors:
                    ray.kill(self._actors[name])

    async def recall(self, worker: str, key: OrderKey, recall: Recall) -> Returned | None:
        actor = self._actors.get(worker)
        if actor is None:
            return None
        returned, _ = await self._call(worker, actor.recall.remote(key, recall))
        return returned

    async def cancel(self) -> None:
        """Tell all workers; one that cannot be reached is struck off once Ray gives it up."""
        calls = [self._call(name, actor.cancel.remote()) for name, actor in list(self._actors.items())]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*calls), CANCEL_TIMEOUT_S)

    async def _make(self, seats: list[tuple[str, Node]]) -> list[dict[str, object]]:
        for name, node in seats:
            actor = pinned(LoadWorkerActor, node).remote(name, self._desk, self._prompts)
            self._actors[name], self._nodes[name] = actor, node
        hellos = [self._actors[name].hello.remote(self._source_addresses) for name, _ in seats]
        what = f"{len(seats)} load workers on {len({node.node_id for _, node in seats})} client nodes"
        return list(await told(asyncio.gather(*hellos), what, self._start_timeout_s))

    async def _offset_or_none(self, name: str) -> ClockOffset | None:
        actor = self._actors.get(name)
        if actor is None:
            return None
        offset, _ = await self._call(name, measure_offset(actor, self._clock), SILENT_S)
        return offset

    async def _call(
        self, name: str, call: Awaitable[T], limit_s: float | None = None
    ) -> tuple[T | None, str | None]:
        """(result, None), or (None, reason) when the worker's process is gone, or does not answer within the
        limit; it is struck off then, and ended where it can still be reached."""
        try:
            return await asyncio.wait_for(unwrapped(call), limit_s), None
        except RayActorError as error:
            self._actors.pop(name, None)
            return None, f"no sign of life any more: {str(error).splitlines()[0]}"
        except TimeoutError:
            if limit_s is None:
                raise  # not ours
            if (actor := self._actors.pop(name, None)) is not None:
                ray.kill(actor)
            return None, f"no sign of life any more: no answer within {limit_s:g} s"
