"""The host of the serving engine as the coordinator sees it: its actor, and the GPU monitor.

`RayTargetHost` fills the interface of `protocol/fleet.py`; it lives inside the coordinator's actor, which owns all
others, so that they die with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ray.exceptions import RayActorError

from raybench.cluster.calls import RemoteDesk, measure_offset, pinned, told
from raybench.cluster.gpu_watch import GpuSettings, GpuWatch
from raybench.cluster.layout import Layout
from raybench.cluster.target_actor import SIGN_S, Launched, TargetHostActor
from raybench.deploy.arms import ProcessRecord
from raybench.deploy.keeping import is_back
from raybench.errors import ClusterError
from raybench.monitors.gpu import GpuStatus
from raybench.protocol.fleet import COORDINATOR, TARGET, GpuState, LogReading, ServiceReport
from raybench.records.clock import AnchoredClock, ClockOffset
from raybench.records.files import write_file
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import read_json, write_json
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Arm, Scenario, Service

T = TypeVar("T")

#: Limit of a small call to an actor that is known to live.
CALL_TIMEOUT_S = 30.0
PROCESS_FILE = "process.json"
GPUS_FILE = "gpus.json"
#: Of a process's record, what goes into the journal too.
_JOURNALED = ("process_s", "exit_code", "reason", "evidence", "shortfall_mib", "gpu_release_s", "gpu_held")


class RayTargetHost:
    """`protocol.fleet.TargetHost` over actors on the target's node."""

    def __init__(
        self,
        layout: Layout,
        desk: RemoteDesk,
        run: RunDirectory,
        clock: AnchoredClock,
        scenario: Scenario,
        base: Path,
    ) -> None:
        node = self._node = layout.target
        self._clients_elsewhere = [client.address for client in layout.clients if client.node_id != node.node_id]
        self._address = node.address if self._clients_elsewhere else "127.0.0.1"
        self._run = run
        self._clock = clock
        self._scenario = scenario
        self._base = base
        self._desk = desk
        self._actor = pinned(TargetHostActor, node).remote(desk, str(base))
        self._gpus: GpuWatch | None = None
        self._service_elsewhere = False

    async def start(self, timeout_s: float) -> dict[str, object]:
        """Hear from the actor. Raises ClusterError within the limit."""
        hello: dict[str, object] = await told(
            self._actor.hello.remote(), f"the monitor on the target host {self._node.title}", timeout_s
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
        taken = await told(self._actor.take_inventory.remote(arm), f"the inventory of {arm_name}")
        write_json(self._run.arm(arm_name) / "inventory.json", taken)

    async def take_service_down(self, service: Service) -> ServiceReport:
        self._run.service_json.unlink(missing_ok=True)  # what an earlier invocation came to
        call = self._actor.take_service_down.remote(service, str(self._run.path))
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
        return ServiceReport(str(report["phase"]), tuple(report["problems"]), is_back(report))

    async def launch(self, arm_name: str, arm: Arm) -> tuple[str, float | None]:
        preload = None
        if arm.sim is not None and arm.sim.faults.preload_corpus:
            preload = self._first_attempt_text(arm_name)
        folder = str(self._run.arm(arm_name))
        call = self._actor.launch.remote(arm_name, arm, self._address, folder, preload)
        launched: Launched = await told(call, f"launching {arm_name}")
        url, record, error = launched
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
        return bytes(await told(call, f"reading {path} of {arm_name}"))

    async def watch_gpus(self, arm_name: str, source: str, url: str, interval_s: float) -> str | None:
        settings = GpuSettings(source, url, interval_s)
        self._gpus = GpuWatch(self._node, self._desk, self._run, self._clock, settings)
        try:
            status = await self._gpus.start()
        except ClusterError as error:
            status = GpuStatus(False, str(error))
        self._keep_gpus(arm_name, status)
        return status.reason

    def _keep_gpus(self, arm_name: str, status: GpuStatus) -> None:
        """In `arms/<arm>/gpus.json`: the host's devices, or the reason why there are none; other hosts' stay."""
        path = self._run.arm(arm_name) / GPUS_FILE
        hosts = read_json(path) if path.exists() else {}
        assert isinstance(hosts, dict), f"{path} is written here only, as an object"
        found = {
            "available": status.available,
            "reason": status.reason,
            "devices": [asdict(device) for device in status.devices],
            "warnings": list(status.warnings),
        }
        write_json(path, hosts | {self._node.hostname: found})

    async def gpu_state(self, since_unix_ns: int) -> GpuState:
        return GpuState() if self._gpus is None else await self._gpus.state(since_unix_ns)

    async def clocks(self) -> dict[str, ClockOffset]:
        measured = {COORDINATOR: ClockOffset(0, 0, self._clock.reading().wall_ahead_ns)}
        offset = await _answered(measure_offset(self._actor, self._clock), "the clock of the target host")
        if offset is not None:
            measured[TARGET] = offset
        return measured if self._gpus is None else measured | await self._gpus.clocks()

    async def watch_log(self, arm_name: str, arm: Arm) -> LogReading:
        part = self._run.relative(self._run.next_server_log_part(arm_name))
        what = "starting to read the log on the target host"
        offset = await told(measure_offset(self._actor, self._clock), what, CALL_TIMEOUT_S)
        call = self._actor.watch_log.remote(part, arm_name, arm, offset)
        reason: str | None = await told(call, what, CALL_TIMEOUT_S)
        return LogReading(part) if reason is None else LogReading(reason=reason)

    async def log_position(self) -> int | None:
        return await _answered(self._actor.log_position.remote(), "the log on the target host")

    async def unwatch_log(self) -> None:
        await told(self._actor.unwatch_log.remote(), "ending the reading of the log", CALL_TIMEOUT_S)

    async def watch_links(self) -> None:
        await _answered(self._actor.watch_links.remote(self._clients_elsewhere), "the target host's links")

    async def link_changes(self) -> int | None:
        return await _answered(self._actor.link_changes.remote(), "the target host's links")

    async def unwatch_gpus(self) -> None:
        if self._gpus is not None:
            await self._gpus.stop()
            self._gpus = None


async def _answered(call: Awaitable[T], what: str) -> T | None:
    """None from a host that is gone or silent: that is found out by whoever needs it."""
    with suppress(ClusterError):
        return await told(call, what, CALL_TIMEOUT_S)
    return None
