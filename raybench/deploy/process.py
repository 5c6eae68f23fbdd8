"""A process of ours on this host: started with a log file, awaited until ready, ended without a trace.

Runs on the target's host. Every process is started through `deploy/guard.py`, which ends it with all
its descendants on `stop()` and equally when raybench itself is killed. (PR_SET_PDEATHSIG straight from
raybench would not do: it fires when the starting *thread* ends.) All calls block; an event loop uses
`asyncio.to_thread`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from raybench.deploy.guard import KILL_LIMIT_S
from raybench.errors import TargetError

T = TypeVar("T")

#: Asked again and again until it gives something other than None; what it gives is the result.
ReadyCheck = Callable[["LaunchedProcess"], T | None]

GUARD = Path(__file__).with_name("guard.py")
_GUARD = (sys.executable, "-I", "-S", str(GUARD))
POLL_S = 0.05
LOG_TAIL_BYTES = 4000
_PROBE_TIMEOUT_S = 2.0
_GUARD_SLACK_S = 5.0


def own_environment() -> dict[str, str]:
    """Our environment for a process on this host. Ray hides all GPUs from its workers by an empty
    CUDA_VISIBLE_DEVICES (and its kin); what a worker starts shall see those of the host."""
    hidden = {name for name, value in os.environ.items() if name.endswith("VISIBLE_DEVICES") and not value}
    return {name: value for name, value in os.environ.items() if name not in hidden}


class LaunchedProcess:
    """One running process. Use it as a context manager, or call `stop()`; forgetting both ends it too."""

    def __init__(
        self,
        guard: subprocess.Popen[bytes],
        lifeline: IO[bytes],
        name: str,
        log_path: Path,
        log_start: int,
        end_s: float,
        own_log: Path | None,
    ) -> None:
        self._guard = guard
        self._lifeline = lifeline
        self._end_s = end_s
        self.name = name
        self.log_path = log_path
        self.log_start = log_start
        #: Files in which this process says something, with where it begins.
        self.logs = [(log_path, log_start)]
        if own_log is not None:
            self.logs.append((own_log, own_log.stat().st_size if own_log.is_file() else 0))

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        grace_s: float = 10.0,
        name: str | None = None,
        stop_signal: int = signal.SIGTERM,
        stop_command: str | None = None,
        own_log: Path | None = None,
        hold: Sequence[int] = (),
    ) -> Self:
        """Start argv in a process group of its own, stdout and stderr appended to the log file.

        env: added to our own environment. grace_s: limit of the stop command, and from the signal to SIGKILL.
        own_log: a file that the process writes itself, read for patterns as well. hold: open files that stay
        open until the process and its descendants have ended, whatever becomes of us. An argument that is
        `guard.PARENT_PID` becomes the pid of the process's real parent. A command that does not exist shows
        as exit code 127 in `wait_ready`; a folder that does not is a TargetError here.
        """
        log_path.parent.mkdir(parents=True, exist_ok=True)
        # The pipe is not Popen's own: a Popen that is forgotten while its child runs is kept alive.
        guard_end, our_end = os.pipe()
        lifeline = os.fdopen(our_end, "wb")
        with os.fdopen(guard_end, "rb") as stdin, log_path.open("ab") as log:
            log_start = log.tell()
            try:
                guard = subprocess.Popen(
                    [*_GUARD, str(grace_s), str(int(stop_signal)), stop_command or "", *argv],
                    stdin=stdin,
                    stdout=log,
                    stderr=log,
                    env={**own_environment(), **(env or {})},
                    cwd=cwd,
                    start_new_session=True,
                    pass_fds=tuple(hold),
                )
            except OSError as error:
                lifeline.close()
                raise TargetError("launch", f"{argv[0]} cannot be started in {cwd}: {error}") from error
        end_s = grace_s * (1 if stop_command is None else 2) + KILL_LIMIT_S + _GUARD_SLACK_S
        return cls(guard, lifeline, name or Path(argv[0]).name, log_path, log_start, end_s, own_log)

    def wait_ready(self, check: ReadyCheck[T], timeout_s: float) -> T:
        """The check's result. Raises TargetError when the process ends before, or time is up.

        The process is left running when time is up; the caller decides.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if (code := self.exit_code()) is not None:
                raise TargetError("launch", self._with_log(f"{self.name} ended with exit code {code}"))
            if (result := check(self)) is not None:
                return result
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TargetError("launch", self._with_log(f"{self.name} not ready within {timeout_s:g} s"))
            try:
                self._guard.wait(min(POLL_S, left_s))
            except subprocess.TimeoutExpired:
                continue

    def exit_code(self) -> int | None:
        """None while it runs; 128 + n when signal n ended it."""
        return self._guard.poll()

    def begin_end(self) -> None:
        """Order the end without waiting for it; a `wait_ready` in another thread ends with it."""
        self._lifeline.close()

    def stop(self) -> int:
        """End the process and all its descendants; its exit code. May be called twice.

        Raises TargetError when something survived SIGKILL, as a process in the GPU driver can.
        """
        self.begin_end()
        try:
            code = self._guard.wait(self._end_s)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            code = self._guard.wait()
        if code < 0:
            raise TargetError("stop", self._with_log(f"{self.name} may still be running"))
        return code

    def log_tail(self, size_bytes: int = LOG_TAIL_BYTES) -> str:
        """The end of what this process has logged, in whole lines unless one alone is longer."""
        with self.log_path.open("rb") as log:
            cut = log.seek(0, os.SEEK_END) - size_bytes
            log.seek(max(self.log_start, cut))
            tail = log.read()
        if cut > self.log_start:
            tail = tail.partition(b"\n")[2] or tail
        return tail.decode("utf-8", "replace").rstrip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _with_log(self, message: str) -> str:
        tail = self.log_tail()
        return f"{message}; its log {self.log_path} ends with:\n{tail}" if tail else f"{message}; its log is empty"


class ReadyLine:
    """Ready when the process prints a JSON object with `"ready": true` on a line of its own; gives it."""

    def __init__(self) -> None:
        self._log = _NewLines()

    def __call__(self, process: LaunchedProcess) -> dict[str, object] | None:
        for line in self._log.read(process):
            if line.startswith(b"{"):
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if message.get("ready") is True:
                    return dict(message)
        return None


class LogPattern:
    """Ready when a line of the log matches the regular expression; gives the match."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._log = _NewLines()

    def __call__(self, process: LaunchedProcess) -> re.Match[str] | None:
        for line in self._log.read(process):
            if match := self._pattern.search(line.decode("utf-8", "replace")):
                return match
        return None


class UrlAnswers:
    """Ready when a GET is answered with 200; gives the URL. No proxy is used."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = build_opener(ProxyHandler({}))

    def __call__(self, process: LaunchedProcess) -> str | None:
        try:
            with self._opener.open(self._url, timeout=_PROBE_TIMEOUT_S) as response:
                return self._url if response.status == 200 else None
        except (URLError, OSError, HTTPException):
            return None


class _NewLines:
    """Complete lines that a process has logged since the last read."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}

    def read(self, process: LaunchedProcess) -> list[bytes]:
        return [line for path, start in process.logs for line in self._read(path, start)]

    def _read(self, path: Path, start: int) -> list[bytes]:
        offset = self._offsets.setdefault(path, start)
        try:
            with path.open("rb") as log:
                log.seek(offset)
                complete, newline, _torn = log.read().rpartition(b"\n")
        except FileNotFoundError:  # a log of its own that the process has not begun yet
            return []
        self._offsets[path] += len(complete) + len(newline)
        return complete.splitlines()
