"""`raybench roofline` inside a Ray: on every client node an actor that measures its host, all at the same time.

The actor stands where the coordinator stands in a run: it owns the workers of its node, hands out tickets and
stores records, in a temporary folder. Its null servers are processes of the same host.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError

import raybench
from raybench.cluster.calls import RemoteDesk, live_nodes, pinned
from raybench.cluster.capacity import Host
from raybench.cluster.fleet import COORDINATOR_CONCURRENCY, RayFleet
from raybench.cluster.layout import Node, able_nodes, seat_workers
from raybench.corpus.rendered import render_ids
from raybench.corpus.synthetic import synthetic_ids
from raybench.deploy.own_servers import launch_null_server
from raybench.engines.contract import Http
from raybench.errors import ClusterError, RaybenchError
from raybench.load.http import ControlClient
from raybench.load.order import Endpoint
from raybench.protocol.desk import OrderDesk
from raybench.protocol.roofline import FIRST_STREAMS, Ladder, Probe, Settings, WorkersPerNode
from raybench.records.clock import AnchoredClock
from raybench.records.parts import PartFiles
from raybench.records.roofline import Roofline, Step
from raybench.records.rundir import RunDirectory
from raybench.scenario.schema import Placement, SyntheticCorpus

POLL_S = 0.5
START_TIMEOUT_S = 60.0
#: More streams than this are not tried, whatever the host allows.
STREAMS_MAX = 65_536
#: One null server for so many cores: a stream costs it about what it costs a worker.
CORES_PER_SERVER = 2


class RooflineActor:
    """Measures the node that it runs on."""

    def __init__(self, node: Node, workers_per_node: WorkersPerNode, settings: Settings) -> None:
        self._node = node
        self._workers_per_node = workers_per_node
        self._settings = settings
        self._clock = AnchoredClock()
        self._folder = tempfile.TemporaryDirectory(prefix="raybench-")
        self._run = RunDirectory(Path(self._folder.name) / "run")
        self._files = PartFiles(self._run.path)
        self._desk = OrderDesk(self._run, self._files, self._clock)
        self._steps: list[Step] = []

    async def lease(self, *arguments: Any) -> list[int]:
        return await self._desk.lease(*arguments)

    async def append(self, *arguments: Any) -> None:
        await self._desk.append(*arguments)

    async def heartbeat(self, *arguments: Any) -> None:
        await self._desk.heartbeat(*arguments)

    async def steps(self, first: int) -> list[Step]:
        """Steps done, from this number on."""
        return self._steps[first:]

    async def measure(self) -> Roofline | RaybenchError:
        """Both ladders. What raybench explains to its user is returned, not raised: Ray would dress it up."""
        try:
            async with AsyncExitStack() as stack:
                folder = Path(stack.enter_context(self._folder))
                self._run.create()
                stack.callback(self._files.close_all)
                return await self._measure_in(folder, stack)
        except RaybenchError as error:
            return error

    async def _measure_in(self, folder: Path, stack: AsyncExitStack) -> Roofline:
        cores = len(os.sched_getaffinity(0))
        count = max(1, cores // CORES_PER_SERVER)
        servers = [await self._launch(folder / f"null-{number}.log", stack) for number in range(count)]
        seats = seat_workers([self._node], self._workers_per_node, STREAMS_MAX)
        prompts = {"ids": render_ids(synthetic_ids(SyntheticCorpus(tokens=4096)))}
        myself = RemoteDesk(ray.get_runtime_context().current_actor)
        fleet = RayFleet(seats, myself, prompts, self._clock, START_TIMEOUT_S, self._desk.last_pulse_ns)
        hellos: list[dict[str, Any]] = await fleet.start()
        stack.push_async_callback(fleet.cancel)
        probe = Probe(
            fleet=fleet,
            desk=self._desk,
            run=self._run,
            servers=servers,
            workers_for=lambda streams: len(seat_workers([self._node], self._workers_per_node, streams)),
            cores=cores,
            settings=self._settings,
        )
        allowed = Host.of_facts(self._node.hostname, hellos[0]["facts"])
        limits = {kind: await self._climb(kind, probe, allowed, len(seats), count) for kind in FIRST_STREAMS}
        return self._roofline(limits, cores, count)

    async def _launch(self, log_path: Path, stack: AsyncExitStack) -> tuple[str, Http]:
        server = await asyncio.to_thread(launch_null_server, log_path)
        stack.push_async_callback(asyncio.to_thread, server.stop)
        http = ControlClient(Endpoint(server.url, "sglang"))
        stack.push_async_callback(http.close)
        return server.url, http

    async def _climb(self, kind: str, probe: Probe, allowed: Host, workers: int, servers: int) -> str:
        """All steps of one ladder; what ended it."""
        by_handles = allowed.streams_max(min(workers, servers), servers)
        most = STREAMS_MAX if by_handles is None else min(STREAMS_MAX, by_handles)
        ladder = Ladder(FIRST_STREAMS[kind], most, self._settings.effort)
        limited_by = ""
        while (streams := ladder.next) is not None:
            step = await probe.step(kind, streams)
            self._steps.append(step)
            limited_by = step.limited_by or limited_by
            ladder.tell(carried=step.limited_by is None)
        if not ladder.topped_out:
            return limited_by
        if most == STREAMS_MAX:
            return f"{STREAMS_MAX:,} streams tried"
        return allowed.narrowest(min(workers, servers), servers)

    def _roofline(self, limits: dict[str, str], cores: int, servers: int) -> Roofline:
        others = [step.others_node_share for step in self._steps if step.others_node_share is not None]
        return Roofline(
            host=socket.gethostname(),
            client="plain" if self._settings.client == "plain" else "wire",
            cores=cores,
            servers=servers,
            stamp_error_ms_max=self._settings.stamp_error_ms_max,
            streams=max((s.streams for s in self._steps if s.limited_by is None), default=None),
            streams_limited_by=limits["streams"],
            tokens_per_s=max((s.tokens_per_s or 0.0 for s in self._steps if s.limited_by is None), default=None),
            tokens_limited_by=limits["tokens_per_s"],
            others_node_share=max(others, default=None),
            raybench_version=raybench.__version__,
            measured_unix_ns=time.time_ns(),
            steps=tuple(self._steps),
        )


def choose_nodes(placement: Placement, names: Sequence[str]) -> list[Node]:
    """The nodes to measure, one a host: those named by host or address, or all that may carry load.

    Raises ClusterError for a name that is no node's, and when there is none.
    """
    live = live_nodes()
    if names:
        unknown = [name for name in names if not any(name in (n.hostname, n.address) for n in live)]
        if unknown:
            known = ", ".join(sorted(node.title for node in live))
            raise ClusterError(f"no such node: {', '.join(unknown)}; the cluster has {known}")
        chosen = [node for node in live if node.hostname in names or node.address in names]
    else:
        chosen = able_nodes(live, placement)
    if not chosen:
        raise ClusterError("no node of the cluster may carry load by the placement of the cluster file")
    hosts: dict[str, Node] = {}
    for node in chosen:
        hosts.setdefault(node.hostname, node)
    return list(hosts.values())


def measure_nodes(
    nodes: Sequence[Node],
    workers_per_node: WorkersPerNode,
    settings: Settings,
    *,
    on_step: Callable[[str, Step], None],
    on_done: Callable[[Roofline], None],
) -> None:
    """All nodes at the same time. Raises the first node's error once all have ended."""
    actors = {
        node.hostname: pinned(RooflineActor, node, max_concurrency=COORDINATOR_CONCURRENCY).remote(
            node, workers_per_node, settings
        )
        for node in nodes
    }
    pending = {actor.measure.remote(): host for host, actor in actors.items()}
    seen = dict.fromkeys(actors, 0)
    failed: list[RaybenchError] = []
    while pending:
        done, _ = ray.wait(list(pending), timeout=POLL_S)
        for host in list(pending.values()):
            _tell_steps(host, actors[host], seen, on_step)
        for reference in done:
            host = pending.pop(reference)
            try:
                result = ray.get(reference)
            except RayActorError as error:
                result = ClusterError(f"{host}: no sign of life any more: {str(error).splitlines()[0]}")
            if isinstance(result, Roofline):
                on_done(result)
            else:
                failed.append(result)
            ray.kill(actors[host])
    if failed:
        raise failed[0]


def _tell_steps(host: str, actor: Any, seen: dict[str, int], on_step: Callable[[str, Step], None]) -> None:
    try:
        fresh: list[Step] = ray.get(actor.steps.remote(seen[host]))
    except RayActorError:
        return  # told of when its result is asked for
    seen[host] += len(fresh)
    for step in fresh:
        on_step(host, step)
