"""What is kept of an arm's server beside the load: its own numbers, about once a second, and its log of requests.

Runs in the coordinator.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from raybench.errors import TargetError
from raybench.monitors.server import ServerSampler
from raybench.protocol.fleet import TargetHost
from raybench.protocol.target import Target
from raybench.records.clock import ClockAnchor
from raybench.records.journal import Journal
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.records.schema import SERVER
from raybench.records.stream import ArrowEncoder, part_metadata

#: One read of a log of requests; a longer one is read in several.
READ_BYTES = 8 * 1024 * 1024


class ServerWatch:
    """`async with`: a row of records.schema.SERVER every `interval_s`, into the arm's part file."""

    def __init__(
        self,
        target: Target,
        instance: str | None,
        run: RunDirectory,
        files: PartFiles,
        interval_s: float,
    ) -> None:
        self._sampler = ServerSampler(target.engine, target.controls[0], target.clock, target.arm_name, instance)
        self._path = run.relative(run.next_server_part(target.arm_name))
        self._files = files
        self._interval_s = interval_s
        metadata = part_metadata("server", ClockAnchor.now(target.clock), arm=target.arm_name)
        self._encoder = ArrowEncoder(SERVER, metadata)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._files.append(self._path, self._encoder.start())
        self._task = asyncio.ensure_future(self._sample_for_ever())

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


class RequestLogCopy:
    """A server's own log of its requests, copied from the target's host as it grows: one copy an invocation.

    The merge joins it with the records (`analysis/engine_log.py`). Why it cannot be copied goes to the journal.
    """

    def __init__(
        self, host: TargetHost, run: RunDirectory, files: PartFiles, journal: Journal, arm_name: str, path: str
    ) -> None:
        self._host = host
        self._files = files
        self._journal = journal
        self._arm_name = arm_name
        self._path = path
        self._copy = run.relative(run.next_request_log(arm_name))
        self._copied = 0

    async def pull(self) -> None:
        """Copy what is new. Raises RunDirectoryError when the disk refuses."""
        while True:
            try:
                data = await self._host.read_from(self._arm_name, self._path, self._copied, READ_BYTES)
            except TargetError as error:
                self._journal.append("request_log", arm=self._arm_name, problem=str(error))
                return
            if not data:
                return
            self._files.append(self._copy, data)
            self._copied += len(data)

    async def close(self) -> None:
        """Copy the rest."""
        await self.pull()
        self._files.close(self._copy)
