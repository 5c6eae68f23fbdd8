"""The GPU monitor of one arm: an actor on the target's host, which the coordinator replaces when it dies or hangs.

`GpuWatch` runs in the coordinator's actor. A replacement goes on in a new part whose first rows are marked as a
gap, and every attempt that the gap touches is told so.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from raybench.cluster.calls import RemoteDesk, measure_offset, pinned, told
from raybench.cluster.layout import Node
from raybench.errors import ClusterError
from raybench.monitors.gpu import GpuSampler, GpuSource, GpuStatus
from raybench.monitors.nvml import NvmlSource
from raybench.monitors.recording import FLUSH_S, GpuRecording
from raybench.monitors.sim_gpu import HttpGpuSource
from raybench.protocol.fleet import GpuState
from raybench.records.clock import AnchoredClock, ClockOffset, ClockSample
from raybench.records.rundir import RunDirectory

#: How often the monitor is looked at, and how long it may take to answer.
LOOK_S = 1.0
ANSWER_S = 10.0
#: How long a monitor may take to be up and to find its devices.
START_S = 60.0
#: One that dies again and again would disturb the host that it watches; then it is left alone.
REPLACEMENTS_MAX = 5
#: Pause before the first replacement; it doubles with each.
REPLACEMENT_PAUSE_S = 1.0

WHAT = "the GPU monitor"


@dataclass(frozen=True)
class GpuSettings:
    """source: nvml | sim; url: of the simulated engine, for the latter."""

    source: str
    url: str
    interval_s: float


class GpuMonitorActor:
    """In a process of its own: a driver that hangs takes nothing with it."""

    def __init__(self, desk: RemoteDesk) -> None:
        self._desk = desk
        self._clock = AnchoredClock()
        self._recording: GpuRecording | None = None
        self._pump: asyncio.Task[None] | None = None
        self._part = ""

    async def clock_reading(self) -> ClockSample:
        return self._clock.reading()

    async def start(self, part: str, labels: dict[str, str], settings: GpuSettings, note: str | None) -> GpuStatus:
        """Sample into `part` from now on where there is something to sample; what was found."""
        devices: GpuSource = HttpGpuSource(settings.url) if settings.source == "sim" else NvmlSource()
        host = socket.gethostname()
        sampler = GpuSampler(devices, self._clock, host, settings.interval_s, opening_note=note)
        recording = GpuRecording(sampler, self._clock.reading().anchor, **labels)
        status = await asyncio.to_thread(recording.start)
        if status.available:
            self._recording, self._part = recording, part
            self._pump = asyncio.ensure_future(self._pump_for_ever(recording))
        return status

    async def status(self) -> GpuStatus:
        """What can be said of the series, once its rows so far are with the coordinator."""
        if self._recording is None:
            return GpuStatus(False, "the monitor is not running")
        status = self._recording.status()
        if status.stalled is None:
            await self._desk.append_part(self._part, self._recording.take())
        return status

    async def stop(self) -> None:
        """End the series and close its part."""
        if self._pump is not None:
            self._pump.cancel()
            with suppress(asyncio.CancelledError):
                await self._pump
        if self._recording is not None:
            last = await asyncio.to_thread(self._recording.end)
            await self._desk.append_part(self._part, last)
            await self._desk.close_part(self._part)
            self._recording = None

    async def _pump_for_ever(self, recording: GpuRecording) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            if data := recording.take():
                await self._desk.append_part(self._part, data)


@dataclass(frozen=True)
class _Monitor:
    """One monitor's actor; its clock is journalled under `clock`, which its part names too."""

    actor: Any
    part: str
    clock: str


class GpuWatch:
    """`start`, ask as often as one likes, `stop`. All stamps are on the coordinator's clock."""

    def __init__(
        self, node: Node, desk: RemoteDesk, run: RunDirectory, clock: AnchoredClock, settings: GpuSettings
    ) -> None:
        self._node = node
        self._desk = desk
        self._run = run
        self._clock = clock
        self._settings = settings
        self._monitor: _Monitor | None = None
        self._session = 0
        self._offset = ClockOffset(0, 0)
        self._reason: str | None = "the monitor was not started"
        self._gaps: list[tuple[int, str]] = []  # (when it ended, text) of monitors that are gone
        self._keeper: asyncio.Task[None] | None = None
        self._ending = False

    async def start(self) -> GpuStatus:
        """What was found. Raises ClusterError when no monitor comes up."""
        status = await self._begin(None)
        if status.available:
            self._keeper = asyncio.ensure_future(self._keep())
        return status

    async def state(self, since_unix_ns: int) -> GpuState:
        """What is missing now, and was since then. All samples until now have come in when this returns."""
        problem, holes = self._reason, []
        if problem is None:
            try:
                status = await self._look()
                problem, holes = status.problem, self._holes(status)
            except (ClusterError, RayError) as error:
                problem = _first_line(error)
        gaps = (text for ended_ns, text in [*self._gaps, *holes] if ended_ns >= since_unix_ns)
        return GpuState(problem, tuple(gaps))

    async def clocks(self) -> dict[str, ClockOffset]:
        """The monitor's clock against ours, measured now; nothing when it does not answer."""
        monitor = self._monitor
        if monitor is None:
            return {}
        try:
            return {monitor.clock: await told(measure_offset(monitor.actor, self._clock), WHAT, ANSWER_S)}
        except ClusterError:
            return {}

    async def stop(self) -> None:
        """End the monitor and close its part. One that is gone by now has nothing left to end."""
        self._ending = True
        if self._keeper is not None:
            # A cancellation that meets an answer of Ray's is lost in between; then the flag ends the keeper.
            self._keeper.cancel()
            await asyncio.wait({self._keeper}, timeout=LOOK_S + ANSWER_S)
        if self._monitor is not None:
            with suppress(ClusterError, RayError):
                await told(self._monitor.actor.stop.remote(), WHAT, ANSWER_S)
            await self._discard()

    async def _begin(self, note: str | None) -> GpuStatus:
        """A new monitor with a part of its own. Raises ClusterError, RayError."""
        actor = pinned(GpuMonitorActor, self._node).remote(self._desk)
        # Of a monitor that nothing has come of yet no part tells, but it may be alive behind a cut link.
        self._session = max(self._session + 1, self._run.next_gpu_session())
        path = self._run.gpu_part(self._node.hostname, self._session)
        part = self._run.relative(path)
        self._monitor = _Monitor(actor, part, f"gpu/{path.stem}")
        self._offset = await told(measure_offset(actor, self._clock), WHAT, START_S)
        labels = {"clock": self._monitor.clock, **self._offset.to_metadata()}
        status: GpuStatus = await told(actor.start.remote(part, labels, self._settings, note), WHAT, START_S)
        self._reason = status.reason
        return status

    async def _look(self) -> GpuStatus:
        assert self._monitor is not None, "without a monitor there is a reason"
        status: GpuStatus = await told(self._monitor.actor.status.remote(), WHAT, ANSWER_S)
        return status

    async def _keep(self) -> None:
        """Look at the monitor again and again; replace it when it is gone or can give nothing more."""
        for replacement in range(1, REPLACEMENTS_MAX + 2):
            why, holes = await self._until_it_fails()
            if self._ending:
                return
            self._reason = why
            self._gaps += holes
            await self._discard()
            if replacement > REPLACEMENTS_MAX:
                self._reason = f"{why}; {REPLACEMENTS_MAX} replacements failed too, none follows"
                return
            await asyncio.sleep(REPLACEMENT_PAUSE_S * 2 ** (replacement - 1))
            note = f"the monitor was replaced: {why}"
            try:
                await self._begin(note)
            except (ClusterError, RayError) as error:
                self._reason = f"{why}; a replacement failed: {_first_line(error)}"
            self._gaps.append((self._clock.unix_ns(), note))

    async def _until_it_fails(self) -> tuple[str, list[tuple[int, str]]]:
        """Why the monitor has to be replaced, and the gaps that it has told of before."""
        holes: list[tuple[int, str]] = []
        while True:
            await asyncio.sleep(LOOK_S)
            if self._ending or self._reason is not None:
                return self._reason or "", holes
            try:
                status = await self._look()
            except (ClusterError, RayError) as error:
                return _first_line(error), holes
            holes = self._holes(status)
            if status.stalled is not None:
                return status.stalled, holes

    async def _discard(self) -> None:
        """What the monitor has sent stays; its part is not closed by an end mark unless it did so itself."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            ray.kill(monitor.actor)
            await self._desk.close_part(monitor.part)

    def _holes(self, status: GpuStatus) -> list[tuple[int, str]]:
        """Those of the monitor at work, as `_gaps` has those of its predecessors."""
        return [(self._offset.to_coordinator_ns(hole.ended_unix_ns), hole.text) for hole in status.gaps]


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
