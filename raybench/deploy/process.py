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
POLL_S = 0.05
LOG_TAIL_BYTES = 4000
_PROBE_TIMEOUT_S = 2.0
_GUARD_SLACK_S = 5.0


class LaunchedProcess:
    """One running process. Use it as a context manager, or call `stop()`; forgetting both ends it too."""

    def __init__(
        self,
        guard: subprocess.Popen[bytes],
        lifeline: IO[bytes],
        name: str,
        log_path: Path,
        log_start: int,
        grace_s: float,
    ) -> None:
        self._guard = guard
        self._lifeline = lifeline
        self._grace_s = grace_s
        self.name = name
        self.log_path = log_path
        self.log_start = log_start

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
    ) -> Self:
        """Start argv in a process group of its own, stdout and stderr appended to the log file.

        env: added to our own environment. grace_s: from SIGTERM to SIGKILL at the end. An argument
        that is `guard.PARENT_PID` becomes the pid of the process's real parent. A command that does
        not exist shows as exit code 127 in `wait_ready`; a folder that does not is a TargetError here.
        """
        log_path.parent.mkdir(parents=True, exist_ok=True)
        # The pipe is not Popen's own: a Popen that is forgotten while its child runs is kept alive.
        guard_end, our_end = os.pipe()
        lifeline = os.fdopen(our_end, "wb")
        with os.fdopen(guard_end, "rb") as stdin, log_path.open("ab") as log:
            log_start = log.tell()
            try:
                guard = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(GUARD), str(grace_s), *argv],
                    stdin=stdin,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **(env or {})},
                    cwd=cwd,
                    start_new_session=True,
                )
            except OSError as error:
                lifeline.close()
                raise TargetError("launch", f"{argv[0]} cannot be started in {cwd}: {error}") from error
        return cls(guard, lifeline, name or Path(argv[0]).name, log_path, log_start, grace_s)

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

    def stop(self) -> int:
        """End the process and all its descendants; its exit code. May be called twice.

        Raises TargetError when something survived SIGKILL, as a process in the GPU driver can.
        """
        self._lifeline.close()
        try:
            code = self._guard.wait(self._grace_s + KILL_LIMIT_S + _GUARD_SLACK_S)
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
        self._offset = 0

    def read(self, process: LaunchedProcess) -> list[bytes]:
        self._offset = max(self._offset, process.log_start)
        with process.log_path.open("rb") as log:
            log.seek(self._offset)
            complete, newline, _torn = log.read().rpartition(b"\n")
        self._offset += len(complete) + len(newline)
        return complete.splitlines()
