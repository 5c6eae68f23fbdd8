"""The coordinator's hands: load workers, and what stands on the target's host, as Ray actors.

`RayFleet` and `RayTargetHost` fill the interfaces of `protocol/fleet.py`; they live inside the
coordinator's actor, which owns all others, so that they die with it.
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
from ray.exceptions import RayActorError

from raybench.cluster.actors import SIGN_S, LoadWorkerActor, TargetHostActor
from raybench.cluster.calls import live_nodes, measure_offset, pinned, told, within
from raybench.cluster.gpu_watch import GpuSettings, GpuWatch
from raybench.cluster.layout import Layout, Node
from raybench.corpus.tokens import Rendered
from raybench.deploy.arms import ProcessRecord
from raybench.deploy.facts import write_gpu_inventory
from raybench.errors import ClusterError, TargetError
from raybench.load.leases import Recall, Returned
from raybench.load.order import Order, WorkerSummary
from raybench.monitors.gpu import GpuStatus
from raybench.protocol.clock_checks import COORDINATOR, TARGET
from raybench.protocol.fleet import FleetResult, LogReading, ServiceReport
from raybench.protocol.gpu_checks import GpuState
from raybench.records.clock import AnchoredClock, ClockOffset
from raybench.records.files import write_file
from raybench.records.rundir import RunDirectory, read_json, write_json
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Arm, Scenario, Service

T = TypeVar("T")

#: Limit of a small call to an actor that is known to live.
CALL_TIMEOUT_S = 30.0
#: How long a given-up order may take to hand in its last records.
CANCEL_TIMEOUT_S = 15.0
#: A worker gives a sign of life every half second. One that is not heard of at this many looks in a row is
#: given up; of a host behind a cut link Ray itself would wait for an answer for about a minute.
SILENT_LOOKS_MAX = 10
LOOK_S = 1.0
#: The same for a worker that is asked something between loads.
SILENT_S = SILENT_LOOKS_MAX * LOOK_S
PROCESS_FILE = "process.json"
#: Of a process's record, what goes into the journal too.
_JOURNALED = ("process_s", "exit_code", "reason", "evidence", "shortfall_mib", "gpu_release_s", "gpu_held")
#: What one actor may hold in calls at a time: leases, record pieces and heartbeats of many workers.
COORDINATOR_CONCURRENCY = 10_000


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
        offset, _ = await self._call(name, measure_offset(actor, self._clock), SILENT_S)
        return offset

    async def _call(
        self, name: str, call: Awaitable[T], limit_s: float | None = None
    ) -> tuple[T | None, str | None]:
        """(result, None), or (None, reason) when the worker's process is gone, or does not answer within the
        limit; it is struck off then, and ended where it can still be reached."""
        try:
            return await asyncio.wait_for(call, limit_s), None
        except RayActorError as error:
            self._actors.pop(name, None)
            return None, f"no sign of life any more: {str(error).splitlines()[0]}"
        except TimeoutError:
            if limit_s is None:
                raise  # not ours
            if (actor := self._actors.pop(name, None)) is not None:
                ray.kill(actor)
            return None, f"no sign of life any more: no answer within {limit_s:g} s"


class RayTargetHost:
    """`protocol.fleet.TargetHost` over actors on the target's node."""

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
        elsewhere = (node for node in layout.clients if node.node_id != self._node.node_id)
        self._clients_elsewhere = [node.address for node in elsewhere]
        self._run = run
        self._clock = clock
        self._scenario = scenario
        self._base = base
        self._coordinator = coordinator
        self._actor = pinned(TargetHostActor, self._node).remote(coordinator)
        self._gpus: GpuWatch | None = None
        self._service_elsewhere = False

    async def start(self, timeout_s: float) -> dict[str, object]:
        """Hear from the actor. Raises ClusterError within the limit."""
        hello: dict[str, object] = await within(
            self._actor.hello.remote(), timeout_s, f"the monitor on the target host {self._node.title}"
        )
        self._signs = asyncio.ensure_future(self._give_signs())
        return hello

    async def _give_signs(self) -> None:
        """For as long as both live; that it has died is found out by whoever needs it."""
        with suppress(RayActorError):
            while True:
                await self._actor.sign_of_life.remote()
                await asyncio.sleep(SIGN_S)

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
        call = self._actor.read_from.remote(arm_name, path, folder, offset, size)
        data, problem = await told(call, f"reading {path} of {arm_name}")
        if problem is not None:
            raise TargetError("request_log", f"{path} of {arm_name} cannot be read: {problem}")
        return bytes(data)

    async def watch_gpus(self, arm_name: str, source: str, url: str, interval_s: float) -> str | None:
        place = (self._node, self._coordinator, self._run, self._clock)
        self._gpus = GpuWatch(*place, GpuSettings(source, url, interval_s))
        try:
            status = await self._gpus.start()
        except ClusterError as error:
            status = GpuStatus(False, str(error))
        write_gpu_inventory(self._run, arm_name, self._node.hostname, status)
        return status.reason

    async def gpu_state(self, since_unix_ns: int) -> GpuState:
        return GpuState() if self._gpus is None else await self._gpus.state(since_unix_ns)

    async def clocks(self) -> dict[str, ClockOffset]:
        measured = {COORDINATOR: ClockOffset(0, 0, self._clock.reading().wall_ahead_ns)}
        with suppress(ClusterError):
            what = "the clock of the target host"
            measured[TARGET] = await within(measure_offset(self._actor, self._clock), CALL_TIMEOUT_S, what)
        return measured if self._gpus is None else measured | await self._gpus.clocks()

    async def watch_log(self, arm_name: str, arm: Arm) -> LogReading:
        part = self._run.relative(self._run.server_log_part(arm_name, self._run.next_log_session()))
        what = "starting to read the log on the target host"
        offset = await within(measure_offset(self._actor, self._clock), CALL_TIMEOUT_S, what)
        call = self._actor.watch_log.remote(part, arm_name, arm, offset)
        reason: str | None = await within(call, CALL_TIMEOUT_S, what)
        return LogReading(part) if reason is None else LogReading(reason=reason)

    async def log_position(self) -> int | None:
        try:
            return await within(self._actor.log_position.remote(), CALL_TIMEOUT_S, "the log on the target host")
        except ClusterError:
            return None

    async def unwatch_log(self) -> None:
        await within(self._actor.unwatch_log.remote(), CALL_TIMEOUT_S, "ending the reading of the log")

    async def watch_links(self) -> None:
        with suppress(ClusterError):  # a host that is gone is found out by whoever needs it
            call = self._actor.watch_links.remote(self._clients_elsewhere)
            await within(call, CALL_TIMEOUT_S, "the target host's links")

    async def link_changes(self) -> int | None:
        changes: int | None = None
        with suppress(ClusterError):
            changes = await within(self._actor.link_changes.remote(), CALL_TIMEOUT_S, "the target host's links")
        return changes

    async def unwatch_gpus(self) -> None:
        if self._gpus is not None:
            await self._gpus.stop()
            self._gpus = None
