"""The only module that makes Ray actors: the coordinator's fleet, and the coordinator itself.

`RayFleet` and `RayTargetHost` fill the interfaces of `protocol/fleet.py`; they live inside the
coordinator's actor, which owns all others, so that they die with it. No actor is detached, and none is
restarted by Ray: a worker that comes back empty would send its load a second time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raybench.cluster.actors import LoadWorkerActor, TargetHostActor
from raybench.cluster.layout import Layout, Node
from raybench.corpus.tokens import Rendered
from raybench.deploy.arms import ProcessRecord
from raybench.deploy.facts import write_gpu_inventory
from raybench.errors import ClusterError, RaybenchError, TargetError
from raybench.load.leases import Recall, Returned
from raybench.load.order import Order, WorkerSummary
from raybench.monitors.gpu import GpuStatus
from raybench.protocol.fleet import FleetResult, LogReading, ServiceReport
from raybench.records.clock import AnchoredClock, ClockAnchor, ClockOffset, estimate_offset, same_boot_offset
from raybench.records.files import write_file
from raybench.records.rundir import RunDirectory, read_json, write_json
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Arm, Scenario, Service

T = TypeVar("T")

#: Round trips of one offset measurement; the shortest counts.
PINGS = 7
#: Limit of a small call to an actor that is known to live.
CALL_TIMEOUT_S = 30.0
#: How long a given-up order may take to hand in its last records.
CANCEL_TIMEOUT_S = 15.0
#: A worker gives a sign of life every half second. One that is not heard of at this many looks in a row is
#: given up; of a host behind a cut link Ray itself would wait for an answer for about a minute.
SILENT_LOOKS_MAX = 10
LOOK_S = 1.0
PROCESS_FILE = "process.json"
#: Of a process's record, what goes into the journal too.
_JOURNALED = ("process_s", "exit_code", "reason", "evidence", "shortfall_mib", "gpu_release_s", "gpu_held")
#: What one actor may hold in calls at a time: leases, record pieces and heartbeats of many workers.
COORDINATOR_CONCURRENCY = 10_000


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


def pinned(cls: type, node: Node, **options: object) -> Any:
    """An actor class bound to one node, taking no CPU from Ray's books; never restarted, never retried."""
    strategy = NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
    settings = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": strategy}
    return ray.remote(cls).options(**settings, **options)


async def within(call: Awaitable[T], timeout_s: float, what: str) -> T:
    """The result of a remote call, or a ClusterError when it does not come in time or the actor is gone."""
    try:
        return await asyncio.wait_for(call, timeout_s)
    except TimeoutError:
        raise ClusterError(f"{what}: no answer within {timeout_s:g} s") from None
    except RayActorError as error:
        raise ClusterError(f"{what}: {error}") from error


async def told(call: Awaitable[T], what: str) -> T:
    """The result of a remote call whose own waits have limits. What raybench explains comes as it was raised.

    Raises ClusterError when the actor is gone.
    """
    try:
        return await call
    except RayTaskError as error:
        if isinstance(error.cause, RaybenchError):
            raise error.cause from None
        raise
    except RayActorError as error:
        raise ClusterError(f"{what}: {error}") from error


class RayFleet:
    """`protocol.fleet.LoadFleet` over actors.

    seats: the node of each worker, in order. source_addresses: each node is to have at least one of these.
    """

    def __init__(
        self,
        seats: Sequence[Node],
        coordinator: Any,
        prompts: Mapping[str, Rendered],
        clock: AnchoredClock,
        start_timeout_s: float,
        last_pulse_ns: Callable[[str], int | None],
        source_addresses: Sequence[str] = (),
    ) -> None:
        self._seats = list(seats)
        self._coordinator = coordinator
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
        armed = await asyncio.gather(*(self._call(n, self._actors[n].arm.remote(o)) for n, o in ready.items()))
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

    async def recall(
        self, worker: str, point_id: str, attempt: int, phase: str, recall: Recall
    ) -> Returned | None:
        actor = self._actors.get(worker)
        if actor is None:
            return None
        returned, _ = await self._call(worker, actor.recall.remote(point_id, attempt, phase, recall))
        return returned

    async def cancel(self) -> None:
        """Tell all workers; one that cannot be reached is struck off once Ray gives it up."""
        calls = [self._call(name, actor.cancel.remote()) for name, actor in list(self._actors.items())]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*calls), CANCEL_TIMEOUT_S)

    async def _make(self, seats: list[tuple[str, Node]]) -> list[dict[str, object]]:
        for name, node in seats:
            actor = pinned(LoadWorkerActor, node).remote(name, self._coordinator, self._prompts)
            self._actors[name], self._nodes[name] = actor, node
        hellos = [self._actors[name].hello.remote(self._source_addresses) for name, _ in seats]
        what = f"{len(seats)} load workers on {len({node.node_id for _, node in seats})} client nodes"
        return list(await within(asyncio.gather(*hellos), self._start_timeout_s, what))

    async def _offset_or_none(self, name: str) -> ClockOffset | None:
        actor = self._actors.get(name)
        if actor is None:
            return None
        try:
            return await measure_offset(actor, self._clock)
        except RayActorError:
            self._actors.pop(name, None)
            return None

    async def _call(self, name: str, ref: Awaitable[T]) -> tuple[T | None, str | None]:
        """(result, None), or (None, reason) when the worker's process is gone; it is struck off then."""
        try:
            return await ref, None
        except RayActorError as error:
            self._actors.pop(name, None)
            return None, f"no sign of life any more: {str(error).splitlines()[0]}"


async def measure_offset(actor: Any, clock: AnchoredClock) -> ClockOffset:
    """An actor's anchored clock against ours: exact on the same host, by pings elsewhere."""
    pings: list[tuple[int, int, int]] = []
    for _ in range(PINGS):
        begin = clock.unix_ns()
        anchor: ClockAnchor = await actor.clock_reading.remote()
        end = clock.unix_ns()
        exact = same_boot_offset(anchor, clock.anchor)
        if exact is not None:
            return exact
        pings.append((begin, anchor.unix_ns, end))
    return estimate_offset(pings)


class RayTargetHost:
    """`protocol.fleet.TargetHost` over one actor on the target's node."""

    def __init__(
        self,
        layout: Layout,
        coordinator: Any,
        run: RunDirectory,
        clock: AnchoredClock,
        scenario: Scenario,
        base: Path,
    ) -> None:
        self._node = layout.target
        alone = all(node.node_id == self._node.node_id for node in layout.clients)
        self._address = "127.0.0.1" if alone else self._node.address
        self._run = run
        self._clock = clock
        self._scenario = scenario
        self._base = base
        self._actor = pinned(TargetHostActor, self._node).remote(coordinator)
        self._gpu_on = False
        self._service_elsewhere = False

    async def start(self, timeout_s: float) -> dict[str, object]:
        """Hear from the actor. Raises ClusterError within the limit."""
        hello: dict[str, object] = await within(
            self._actor.hello.remote(), timeout_s, f"the monitor on the target host {self._node.title}"
        )
        return hello

    async def take_inventory(self, arm_name: str, arm: Arm) -> None:
        taken = await told(self._actor.take_inventory.remote(arm, str(self._base)), f"the inventory of {arm_name}")
        write_json(self._run.arm(arm_name) / "inventory.json", taken)

    async def take_service_down(self, service: Service) -> ServiceReport:
        arguments = (service, str(self._base), str(self._run.path))
        call = self._actor.take_service_down.remote(*arguments)
        return await self._service_report(await told(call, "taking the service down"))

    async def bring_service_back(self) -> ServiceReport:
        call = self._actor.bring_service_back.remote()
        return await self._service_report(await told(call, "bringing the service back"))

    async def _service_report(self, report: dict[str, Any]) -> ServiceReport:
        """The keeper writes its report into the run directory itself, where it can see it."""
        if not self._run.service_json.exists():
            self._service_elsewhere = True
        if self._service_elsewhere:
            write_json(self._run.service_json, report)
        return ServiceReport(str(report["phase"]), tuple(report["problems"]))

    async def launch(self, arm_name: str, arm: Arm) -> tuple[str, float | None]:
        preload = None
        if arm.sim is not None and arm.sim.faults.preload_corpus:
            preload = self._first_attempt_text(arm_name)
        folder = str(self._run.arm(arm_name))
        call = self._actor.launch.remote(arm_name, arm, self._address, folder, preload, str(self._base))
        url, record, error = await told(call, f"launching {arm_name}")
        self._keep_record(arm_name, record)
        if error is not None:
            raise error
        return url, record.load_s

    def _first_attempt_text(self, arm_name: str) -> dict[str, object]:
        """What the fault `preload_corpus` makes the engine hold: one attempt of the first point."""
        points = [point for point in make_plan(self._scenario).measured if point.arm == arm_name]
        windows = points[0].requests + points[0].prewarm_requests if points else 0
        assert self._scenario.corpus is not None, "the fault is about corpus text"
        corpus = self._scenario.corpus.model_dump(mode="json")
        return {"corpus": corpus, "base": str(self._base), "windows": windows}

    async def stop(self, arm_name: str) -> Mapping[str, object] | None:
        record: ProcessRecord | None = await told(self._actor.stop.remote(arm_name), f"stopping {arm_name}")
        files = await told(self._actor.files_of.remote(arm_name), f"fetching the files of {arm_name}")
        for name, data in files.items():
            write_file(self._run.arm(arm_name) / name, data)
        if record is None:
            return None
        self._keep_record(arm_name, record)
        return {name: getattr(record, name) for name in _JOURNALED}

    def _keep_record(self, arm_name: str, record: ProcessRecord) -> None:
        """One process an invocation, in `arms/<arm>/process.json`: the records of earlier ones stay."""
        path = self._run.arm(arm_name) / PROCESS_FILE
        earlier = read_json(path) if path.exists() else []
        assert isinstance(earlier, list), f"{path} is written here only"
        others = [one for one in earlier if one["began_unix_ns"] != record.began_unix_ns]
        write_json(path, [*others, asdict(record)])

    async def read_from(self, arm_name: str, path: str, offset: int, size: int) -> bytes:
        folder = str(self._run.arm(arm_name))
        data, problem = await self._actor.read_from.remote(arm_name, path, folder, offset, size)
        if problem is not None:
            raise TargetError("request_log", f"{path} of {arm_name} cannot be read: {problem}")
        return bytes(data)

    async def watch_gpus(self, arm_name: str, source: str, url: str, interval_s: float) -> str | None:
        part = self._run.relative(self._run.gpu_part(self._node.hostname, self._run.next_session()))
        offset = await measure_offset(self._actor, self._clock)
        status: GpuStatus = await self._actor.watch_gpus.remote(part, source, url, interval_s, offset)
        write_gpu_inventory(self._run, arm_name, self._node.hostname, status)
        self._gpu_on = status.available
        return status.reason

    async def watch_log(self, arm_name: str, arm: Arm) -> LogReading:
        part = self._run.relative(self._run.server_log_part(arm_name, self._run.next_log_session()))
        offset = await measure_offset(self._actor, self._clock)
        reason: str | None = await self._actor.watch_log.remote(part, arm_name, arm, offset)
        return LogReading(part) if reason is None else LogReading(reason=reason)

    async def log_position(self) -> int | None:
        try:
            return await within(self._actor.log_position.remote(), CALL_TIMEOUT_S, "the log on the target host")
        except ClusterError:
            return None

    async def unwatch_log(self) -> None:
        await within(self._actor.unwatch_log.remote(), CALL_TIMEOUT_S, "ending the reading of the log")

    async def gpu_reason(self) -> str | None:
        if not self._gpu_on:
            return "no device was found on the target host"
        try:
            reason: str | None = await within(self._actor.gpu_reason.remote(), CALL_TIMEOUT_S, "the GPU monitor")
        except ClusterError as error:
            return str(error)
        return reason

    async def unwatch_gpus(self) -> None:
        self._gpu_on = False
        await within(self._actor.unwatch_gpus.remote(), CALL_TIMEOUT_S, "ending the GPU monitor")
