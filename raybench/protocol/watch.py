"""Keeps the engine's own numbers, about once a second, while an arm is measured. Runs in the coordinator."""

from __future__ import annotations

import asyncio
from types import TracebackType

from raybench.monitors.server import ServerSampler
from raybench.protocol.target import Target
from raybench.records.clock import Clock, ClockAnchor
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.records.schema import SERVER
from raybench.records.stream import ArrowEncoder, part_metadata


class ServerWatch:
    """`async with`: a row of records.schema.SERVER every `interval_s`, into the arm's part file."""

    def __init__(
        self,
        target: Target,
        instance: str | None,
        run: RunDirectory,
        files: PartFiles,
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._sampler = ServerSampler(target.engine, target.controls[0], clock, target.arm_name, instance)
        self._path = run.relative(run.server_part(target.arm_name, run.next_session()))
        self._files = files
        self._interval_s = interval_s
        metadata = part_metadata("server", ClockAnchor.now(clock), arm=target.arm_name)
        self._encoder = ArrowEncoder(SERVER, metadata)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ServerWatch:
        self._files.append(self._path, self._encoder.start())
        self._task = asyncio.ensure_future(self._sample_for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                # Not awaited itself: an interruption of ours just now would look like the sampler's end.
                await asyncio.wait([self._task])
                if not self._task.cancelled():
                    self._task.result()  # a bug of the sampler comes up here
        finally:
            self._files.append(self._path, self._encoder.close())
            self._files.close(self._path)

    async def _sample_for_ever(self) -> None:
        while True:
            row = await self._sampler.sample()
            self._files.append(self._path, self._encoder.encode([row]))
            await asyncio.sleep(self._interval_s)
