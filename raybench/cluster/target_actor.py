"""What happens on the host of the serving engine: the body of an actor there, a thin shell round plain classes.

`cluster/target_host.py` makes the actor and is what the coordinator sees of it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raybench.cluster.calls import RemoteDesk, own_process
from raybench.deploy.arms import LaunchedArm, ProcessRecord, Running, answers
from raybench.deploy.digests import DigestCache
from raybench.deploy.inventory import take_inventory
from raybench.deploy.keeping import Keeping
from raybench.deploy.links import LinkWatch
from raybench.deploy.own_servers import launch_sim
from raybench.engines import ENGINES
from raybench.errors import TargetError
from raybench.monitors.boards import read_boards
from raybench.monitors.server_log import LogTail, LogWatch
from raybench.protocol.fleet import TARGET
from raybench.records.clock import AnchoredClock, ClockOffset, ClockSample
from raybench.records.files import read_piece
from raybench.records.stream import part_metadata
from raybench.scenario.schema import Arm, Service

#: Of a file that was written on a target host without the run directory, so much comes home: its end.
FILE_BYTES_MAX = 64 * 1024 * 1024
#: How often the target host hears from the coordinator, and at how many looks in a row without a sign it gives up.
SIGN_S = 1.0
FORGOTTEN_LOOKS = 60
EXIT_FORGOTTEN = 1

#: URL, record of the process, and why it is not ready where it is not.
Launched = tuple[str, ProcessRecord, TargetError | None]


class TargetHostActor:
    """Launches and reads. base: the scenario's folder; on a host without it, paths start at the process's own."""

    def __init__(self, desk: RemoteDesk, base: str) -> None:
        self._desk = desk
        self._base = Path(base) if Path(base).is_dir() else Path.cwd()
        self._clock = AnchoredClock()
        self._running: dict[str, Running] = {}
        self._launches: dict[str, asyncio.Future[Launched]] = {}
        self._folders: dict[str, Path] = {}
        self._keeping: Keeping | None = None
        self._links: LinkWatch | None = None
        self._log: LogWatch | None = None
        self._signs = 0
        self._watch: asyncio.Task[None] | None = None

    async def hello(self) -> dict[str, object]:
        self._watch = asyncio.ensure_future(self._end_when_forgotten())
        return own_process()

    async def sign_of_life(self) -> None:
        """The coordinator is there; it says so every `SIGN_S`."""
        self._signs += 1

    async def _end_when_forgotten(self) -> None:
        """End this process once the coordinator is not heard of any more: what was launched ends with it, and the
        service comes back. Behind a cut link Ray would leave it here for many minutes.

        Looks are counted, not seconds: a host that slept reads the signs that have come before it looks again.
        """
        heard = looks = 0
        while looks < FORGOTTEN_LOOKS:
            await asyncio.sleep(SIGN_S)
            looks = looks + 1 if self._signs == heard else 0
            heard = self._signs
        os._exit(EXIT_FORGOTTEN)

    async def clock_reading(self) -> ClockSample:
        return self._clock.reading()

    async def take_inventory(self, arm: Arm) -> dict[str, object]:
        """What the arm is made of and what the GPUs are, on this host. Raises ConfigError."""
        inventory = await asyncio.to_thread(take_inventory, arm.inventory, self._base, DigestCache.of_user())
        return {**inventory, "boards": await asyncio.to_thread(read_boards)}

    async def take_service_down(self, service: Service, folder: str) -> dict[str, Any]:
        """The keeper's report once the service is down, or will not be."""
        own = self._folder_for("service", folder)
        # Not in a thread: were this call cancelled meanwhile, nobody would have the keeper's lifeline.
        self._keeping = Keeping.start(service, self._base, own)
        return await asyncio.to_thread(self._keeping.wait_down)

    async def bring_service_back(self) -> dict[str, Any]:
        """The keeper's last report."""
        if self._keeping is None:
            return {"phase": "refused", "problems": ["raybench was stopped before it took the service down"]}
        return await asyncio.to_thread(self._keeping.bring_back)

    async def launch(
        self, arm_name: str, arm: Arm, address: str, log_dir: str, preload: dict[str, object] | None
    ) -> Launched:
        """Start the arm's engine, on `address` of this host when it is a simulated one.

        Logs go to `log_dir` where this host has it (the coordinator's own), else to a temporary one. A caller
        that gives this call up calls `stop`: what is under way then does not get lost.
        """
        launch = asyncio.ensure_future(self._launch(arm_name, arm, address, log_dir, preload))
        self._launches[arm_name] = launch
        return await asyncio.shield(launch)

    async def _launch(
        self, arm_name: str, arm: Arm, address: str, log_dir: str, preload: dict[str, object] | None
    ) -> Launched:
        folder = self._folder_for(arm_name, log_dir)
        hold = [] if self._keeping is None else [self._keeping.lifeline]
        if arm.sim is not None:
            sim = await asyncio.to_thread(
                launch_sim, arm.sim, address, folder / "engine.log", preload=preload, hold=hold
            )
            self._running[arm_name] = sim
            return sim.url, sim.record, None
        assert arm.launch is not None and arm.url is not None, f"arm {arm_name} is not launched by raybench"
        launched = await asyncio.to_thread(
            LaunchedArm, arm_name, arm.launch, arm.url, folder, base=self._base, hold=hold
        )
        self._running[arm_name] = launched
        if arm_name not in self._launches:
            launched.give_up()
        try:
            await asyncio.to_thread(launched.wait_ready, lambda: answers(arm))
        except TargetError as error:
            return arm.url, launched.record, error
        return arm.url, launched.record, None

    async def stop(self, arm_name: str) -> ProcessRecord | None:
        """End what `launch` started, or is about to start; its record. None when nothing was started."""
        launch = self._launches.pop(arm_name, None)
        if launch is not None and not launch.done():
            if isinstance(under_way := self._running.get(arm_name), LaunchedArm):
                under_way.give_up()
            await asyncio.wait([launch])
        running = self._running.pop(arm_name, None)
        return None if running is None else await asyncio.to_thread(running.stop)

    async def files_of(self, name: str) -> dict[str, bytes]:
        """What was written for an arm on this host and is not in the run directory, each file's end."""
        folder = self._folders.pop(name, None)
        if folder is None:
            return {}
        return {file.name: _end_of(file) for file in sorted(folder.iterdir()) if file.is_file()}

    def _folder_for(self, name: str, wanted: str) -> Path:
        folder = Path(wanted)
        if not folder.is_dir():
            folder = Path(tempfile.mkdtemp(prefix="raybench-"))
            self._folders[name] = folder
        return folder

    async def watch_log(self, part: str, arm_name: str, arm: Arm, offset: ClockOffset) -> str | None:
        """Read the log of what was launched here for the arm, or the arm's own, from its end on; why not."""
        path = self._running[arm_name].log_path if arm.log is None else Path(arm.log.path)
        tail = LogTail(path, ENGINES[arm.engine].read_log_line, self._clock, arm_name)
        labels = {"arm": arm_name, "clock": TARGET, **offset.to_metadata()}
        metadata = part_metadata("server_log", self._clock.reading().anchor, **labels)
        watch = LogWatch(tail, part, metadata, self._desk.append_part, self._desk.close_part)
        reason = await watch.start()
        self._log = watch if reason is None else None
        return reason

    async def log_position(self) -> int | None:
        return None if self._log is None else await self._log.mark()

    async def unwatch_log(self) -> None:
        watch, self._log = self._log, None
        if watch is not None:
            await watch.stop()

    async def read_from(self, arm_name: str, path: str, log_dir: str, offset: int, size: int) -> bytes:
        """A piece of a file of this host, empty at its end. Raises TargetError when it cannot be read."""
        folder = str(self._folders.get(arm_name, log_dir))
        try:
            return await asyncio.to_thread(read_piece, Path(path.replace("{folder}", folder)), offset, size)
        except OSError as error:
            problem = f"{path} of {arm_name} cannot be read: {error.strerror or error}"
            raise TargetError("request_log", problem) from None

    async def watch_links(self, clients: Sequence[str]) -> None:
        self._links = LinkWatch(clients)

    async def link_changes(self) -> int | None:
        return None if self._links is None else self._links.changes()


def _end_of(path: Path) -> bytes:
    return read_piece(path, max(0, path.stat().st_size - FILE_BYTES_MAX), FILE_BYTES_MAX)
