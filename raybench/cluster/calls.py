"""Making actors and calling them within limits: the only place where Ray actors come into being.

No actor is detached, and none is restarted by Ray: a worker that comes back empty would send its load a
second time.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raybench.cluster.layout import Node
from raybench.deploy.facts import host_facts
from raybench.errors import ClusterError, RaybenchError
from raybench.load.order import OrderKey
from raybench.records.clock import AnchoredClock, ClockOffset, ClockSample, estimate_offset, same_boot_offset

T = TypeVar("T")

#: Round trips of one offset measurement; the shortest counts.
PINGS = 7


def live_nodes() -> list[Node]:
    """The cluster's nodes as Ray lists them now."""
    return [
        Node(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            hostname=node["NodeManagerHostname"],
            resources=node["Resources"],
            labels=node.get("Labels") or {},
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def own_node() -> Node:
    """The node of the calling process."""
    own = ray.get_runtime_context().get_node_id()
    return next(node for node in live_nodes() if node.node_id == own)


def pinned(cls: type, node: Node, **options: object) -> Any:
    """An actor class bound to one node, taking no CPU from Ray's books; never restarted, never retried."""
    strategy = NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
    settings = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": strategy}
    return ray.remote(cls).options(**settings, **options)


async def told(call: Awaitable[T], what: str, limit_s: float | None = None) -> T:
    """The result of a remote call. What raybench explains is raised as it was there.

    limit_s: None = as long as the actor lives; its own waits have limits. Raises ClusterError when no answer comes
    within the limit, or the actor is gone.
    """
    try:
        return await asyncio.wait_for(unwrapped(call), limit_s)
    except RayActorError as error:
        raise ClusterError(f"{what}: {error}") from error
    except TimeoutError:
        if limit_s is None:
            raise  # not ours
        raise ClusterError(f"{what}: no answer within {limit_s:g} s") from None


async def unwrapped(call: Awaitable[T]) -> T:
    """The result of a remote call; a RaybenchError is raised as it was there, without Ray's traceback round it."""
    try:
        return await call
    except RayTaskError as error:
        if isinstance(error.cause, RaybenchError):
            raise error.cause from None
        raise


async def measure_offset(actor: Any, clock: AnchoredClock) -> ClockOffset:
    """An actor's anchored clock against ours: exact on the same host, by pings elsewhere."""
    pings: list[tuple[int, int, int]] = []
    for _ in range(PINGS):
        begin = clock.unix_ns()
        sample: ClockSample = await actor.clock_reading.remote()
        end = clock.unix_ns()
        exact = same_boot_offset(sample.anchor, clock.anchor)
        if exact is not None:
            return replace(exact, wall_ahead_ns=sample.wall_ahead_ns)
        pings.append((begin, sample.anchor.unix_ns, end))
    return replace(estimate_offset(pings), wall_ahead_ns=sample.wall_ahead_ns)


class RemoteDesk:
    """The coordinator's desk (`protocol/desk.py`) as its workers and monitors reach it, in other processes."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

    async def lease(self, worker: str, key: OrderKey, free_slots: int, settled: int) -> list[int]:
        tickets: list[int] = await self._coordinator.lease.remote(worker, key, free_slots, settled)
        return tickets

    async def append(self, worker: str, key: OrderKey, kind: str, data: bytes) -> None:
        await self._coordinator.append.remote(worker, key, kind, data)

    async def heartbeat(self, worker: str, in_flight: int, completed: int, output_tokens: int) -> None:
        await self._coordinator.heartbeat.remote(worker, in_flight, completed, output_tokens)

    async def append_part(self, relative_path: str, data: bytes) -> None:
        await self._coordinator.append_part.remote(relative_path, data)

    async def close_part(self, relative_path: str) -> None:
        await self._coordinator.close_part.remote(relative_path)


def own_process() -> dict[str, object]:
    """What an actor says of itself and its host when it is up."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "facts": host_facts(ray_version=ray.__version__)}
