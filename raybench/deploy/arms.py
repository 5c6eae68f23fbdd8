"""Brings an arm up by its `launch` block and takes it down again; what is kept of any process of an arm.

Runs on the target's host. Calls block; an event loop uses `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from raybench.deploy.diagnosis import Reason, diagnose, kernel_kills, memory_mib
from raybench.deploy.gpu_memory import FreeMemory, free_memory, wait_released
from raybench.deploy.process import LaunchedProcess, LogPattern, UrlAnswers
from raybench.engines import ENGINES
from raybench.errors import TargetError
from raybench.load.http import ControlClient
from raybench.load.order import Endpoint
from raybench.records.redact import redact
from raybench.scenario.launch import Launch
from raybench.scenario.schema import Arm

LAUNCH_LOG = "launch.log"
SERVER_LOG = "server.log"

#: Whether the engine itself answers; asked where a launch says nothing of how to tell that it is ready.
Answers = Callable[[], bool]


@dataclass(frozen=True)
class ProcessRecord:
    """One process that was started for an arm, for `arms/<arm>/process.json`. Without secrets.

    load_s: from the start until it was ready. process_s: from the start to the end of its last descendant.
    gpu_free_bytes*: by UUID, before the start, and when it was ready. gpu_release_s: how long after the end the
    GPUs took to show as much free memory as before; gpu_held: those that did not. None = unknown, or not yet.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    parameters: dict[str, int | float | str]
    began_unix_ns: int
    load_s: float | None = None
    process_s: float | None = None
    exit_code: int | None = None
    reason: Reason | None = None
    evidence: str | None = None
    slack_mib: float | None = None
    shortfall_mib: float | None = None
    gpu_free_bytes: dict[str, int] | None = None
    gpu_free_bytes_ready: dict[str, int] | None = None
    gpu_release_s: float | None = None
    gpu_held: tuple[str, ...] = ()


class Running(Protocol):
    """What was started for an arm."""

    @property
    def url(self) -> str: ...

    @property
    def log_path(self) -> Path:
        """Where the engine writes what it does."""

    @property
    def record(self) -> ProcessRecord: ...

    def stop(self) -> ProcessRecord:
        """End it. Raises TargetError when something survived."""


class LaunchedArm:
    """One process of a `launch` block. folder: for its log; it becomes `{folder}`.

    hold: open files that stay open until the process has ended, whatever becomes of us.
    """

    def __init__(
        self,
        name: str,
        launch: Launch,
        url: str,
        folder: Path,
        *,
        base: Path = Path(),
        hold: Sequence[int] = (),
        free: Callable[[], FreeMemory] = free_memory,
    ) -> None:
        self.url = url
        places = {"folder": str(folder), "base": str(base.resolve()), "python": sys.executable}
        self._launch = launch = launch.filled(places)
        self._folder = folder
        self.log_path = folder / LAUNCH_LOG if launch.log is None else Path(launch.log)
        self._free = free
        self._given_up = False
        before = free()
        self._kernel_kills = kernel_kills()
        self._began_ns = time.monotonic_ns()
        told: Any = redact({"argv": launch.effective_argv, "env": launch.env})
        self.record = ProcessRecord(
            argv=told["argv"],
            env=told["env"],
            cwd=launch.cwd,
            parameters=dict(launch.parameters),
            began_unix_ns=time.time_ns(),
            gpu_free_bytes=None if before is None else dict(before),
        )
        self._process = LaunchedProcess.start(
            launch.effective_argv,
            log_path=folder / LAUNCH_LOG,
            env=launch.env,
            cwd=None if launch.cwd is None else Path(launch.cwd),
            grace_s=launch.stop.grace_s,
            name=name,
            stop_signal=signal.Signals[launch.stop.signal],
            stop_command=launch.stop.command,
            own_log=None if launch.log is None else Path(launch.log),
            hold=hold,
        )

    def give_up(self) -> None:
        """From another thread: `wait_ready` ends at once, and with it the process."""
        self._given_up = True
        self._process.begin_end()

    def wait_ready(self, answers: Answers) -> None:
        """Raises TargetError with the end of the log; `record` says why, and the process is gone then."""
        ready = self._launch.ready
        try:
            self._process.wait_ready(_ReadyWhen(self._launch, answers), ready.timeout_s)
        except TargetError as error:
            self.stop("stopped" if self._given_up else "not_ready")
            raise TargetError("launch", f"{self._why()}{error.message}") from None
        except BaseException:
            self.stop()
            raise
        free = self._free()
        self.record = replace(
            self.record,
            load_s=self._seconds(),
            gpu_free_bytes_ready=None if free is None else dict(free),
            slack_mib=memory_mib(self._launch.memory.slack, self._lines()),
        )

    def stop(self, asked: Reason = "stopped") -> ProcessRecord:
        """End it with all its descendants and wait for the GPUs. May be called twice."""
        if self.record.process_s is not None:
            return self.record
        by_itself = self._process.exit_code() is not None and not self._given_up
        code = self._process.stop()
        process_s = self._seconds()
        kills = kernel_kills()
        ended = diagnose(
            code,
            self._lines(),
            asked=None if by_itself else asked,
            patterns=self._launch.out_of_memory,
            kernel_kills=None if kills is None or self._kernel_kills is None else kills - self._kernel_kills,
        )
        seconds, held = wait_released(
            self.record.gpu_free_bytes, self._launch.stop.gpu_release_timeout_s, self._free
        )
        self.record = replace(
            self.record,
            process_s=process_s,
            exit_code=ended.code,
            reason=ended.reason,
            evidence=ended.evidence,
            shortfall_mib=memory_mib(self._launch.memory.shortfall, self._lines()),
            gpu_release_s=seconds,
            gpu_held=tuple(held),
        )
        self._keep_own_log()
        return self.record

    def _why(self) -> str:
        """What the record knows beyond the exit code, for the message."""
        record = self.record
        if record.reason in ("out_of_memory", "out_of_host_memory"):
            short = "" if record.shortfall_mib is None else f", {record.shortfall_mib:,.1f} MiB short"
            return f"{'out of memory' if record.reason == 'out_of_memory' else 'out of host memory'}{short}: "
        return "" if record.shortfall_mib is None else f"{record.shortfall_mib:,.1f} MiB of memory short: "

    def _seconds(self) -> float:
        return (time.monotonic_ns() - self._began_ns) / 1e9

    def _lines(self) -> Iterator[str]:
        return chain.from_iterable(_lines_of(path, start) for path, start in self._process.logs)

    def _keep_own_log(self) -> None:
        """Copy the log that the server wrote itself, unless it lies in the arm's folder already."""
        if self._launch.log is None:
            return
        log = Path(self._launch.log)
        if log.is_file() and self._folder not in log.parents:
            shutil.copyfile(log, self._folder / SERVER_LOG)


class _ReadyWhen:
    """`deploy.process.ReadyCheck` of a `ready` block: all that it asks for, each once."""

    def __init__(self, launch: Launch, answers: Answers) -> None:
        ready = launch.ready
        self._left: list[Callable[[LaunchedProcess], object]] = []
        if ready.log_pattern is not None:
            self._left.append(LogPattern(ready.log_pattern))
        if ready.url is not None:
            self._left.append(UrlAnswers(ready.url))
        if not self._left:
            self._left.append(lambda _process: answers() or None)

    def __call__(self, process: LaunchedProcess) -> bool | None:
        self._left = [check for check in self._left if check(process) is None]
        return None if self._left else True


def answers(arm: Arm) -> bool:
    """Whether the arm's engine answers its passive probe, from this host. Blocks; not on an event loop."""

    async def ask() -> bool:
        assert arm.url is not None, "an arm that is asked has an address"
        control = ControlClient(Endpoint.of_arm(arm, arm.url), admin_api_key_env=arm.admin_api_key_env)
        try:
            return (await ENGINES[arm.engine].alive(control)).ok
        finally:
            await control.close()

    return asyncio.run(ask())


def _lines_of(path: Path, start: int) -> Iterator[str]:
    try:
        with path.open("rb") as log:
            log.seek(start)
            for line in log:
                yield line.decode("utf-8", "replace")
    except FileNotFoundError:
        return
