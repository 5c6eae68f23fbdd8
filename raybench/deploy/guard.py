"""Ends a launched process, with all its descendants, when raybench asks for it or dies itself.

Run as a script between raybench and the process it launches, on the same host:

    python -I guard.py GRACE_S SIGNAL STOP_COMMAND ARG0 ARG1 ...

Its standard input is a pipe whose other end only raybench holds. The pipe's end, by `stop()` or by the
kernel after a SIGKILL of raybench, is the one order to stop: STOP_COMMAND (unless it is empty) for up to
GRACE_S seconds, SIGNAL to the process's group, up to GRACE_S seconds for everything to end, then SIGKILL to
whatever is left. A process that has ended by itself is the same order: it may have been the client of a
container that goes on. As a subreaper the guard inherits descendants that left the group (daemons), so these end
too. If the guard itself is killed, the kernel kills the process (PR_SET_PDEATHSIG, which is reliable here
because the guard has a single thread). Other files that the guard was started with stay open until it ends,
and only in it: whoever waits for their end waits for the end of the process (`deploy/keeper.py`).
A descendant in whose environment OUTLIVES stands is left alone: it has to go on after us.

Standard library only, so that it starts in milliseconds and needs no installed package. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: An argument that is exactly this becomes the guard's pid, for programs that watch their parent.
PARENT_PID = "{parent_pid}"

#: SIGKILL works at once, except on a process in an uninterruptible call; waiting longer changes nothing.
KILL_LIMIT_S = 5.0

EXIT_NOT_STARTED = 127

#: The name of an environment variable: who has it is not ended with the process that it descends from.
OUTLIVES = "RAYBENCH_OUTLIVES_ITS_PARENTS"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_ROUND_S = 0.02


class Guard:
    """One launched process and its descendants."""

    def __init__(self, argv: list[str]) -> None:
        self.exit_code: int | None = None
        self._ended: set[int] = set()
        self._wakeup, wakeup_write = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(wakeup_write, False)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whatever thread launched us may have blocked some
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._pid = _spawn([str(os.getpid()) if word == PARENT_PID else word for word in argv])

    def watch(self) -> None:
        """Return when the process has ended or raybench wants it to."""
        self._reap()
        while self.exit_code is None:
            readable, _, _ = select.select([sys.stdin.fileno(), self._wakeup], [], [])
            if sys.stdin.fileno() in readable or signal.SIGTERM in self._signals():
                return
            self._reap()

    def end(self, grace_s: float, number: int, stop_command: str) -> None:
        """Return when no descendant is left, or when even SIGKILL did not help within its limit."""
        if stop_command:
            pid = _spawn(["/bin/sh", "-c", stop_command])
            self._wait_for(grace_s, lambda: self._reap() and pid not in self._ended)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)
        self._wait_for(grace_s, self._reap)
        deadline = time.monotonic() + KILL_LIMIT_S
        while self._reap() and time.monotonic() < deadline:
            for pid in _children():  # the children of those killed are ours in the next round
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            select.select([self._wakeup], [], [], _KILL_ROUND_S)
            self._signals()

    def _wait_for(self, limit_s: float, runs: Callable[[], bool]) -> None:
        """Return when it does not run any more, or after the limit."""
        deadline = time.monotonic() + limit_s
        while runs() and (left_s := deadline - time.monotonic()) > 0:
            select.select([self._wakeup], [], [], left_s)
            self._signals()

    def _reap(self) -> bool:
        """Collect ended children; False when there is no descendant any more that has to end."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return bool(_children())
            self._ended.add(pid)
            if pid == self._pid:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def _signals(self) -> bytes:
        """Numbers of the signals that came since the last call."""
        try:
            return os.read(self._wakeup, 4096)
        except BlockingIOError:
            return b""


def _spawn(argv: list[str]) -> int:
    """Start argv as the leader of a process group of its own; it dies when the guard does."""
    guard_pid = os.getpid()
    # Until exec the child has our handlers, which would swallow an order to end.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid != 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Both sides make the group, so that it exists whichever of them runs first.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        return pid
    for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard_pid:
        os._exit(EXIT_NOT_STARTED)
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(sys.stderr.fileno(), f"cannot start {argv[0]}: {error.strerror}\n".encode())
        os._exit(EXIT_NOT_STARTED)


def _prctl(option: int, value: int) -> None:
    """Linux's prctl(2), which the standard library does not have."""
    arguments = [ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3]
    if ctypes.CDLL(None, use_errno=True).prctl(ctypes.c_int(option), *arguments) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _keep_files_to_ourselves() -> None:
    """What we were given beside the three standard files is not for the process."""
    for number in [int(file.name) for file in Path("/proc/self/fd").iterdir()]:
        if number > sys.stderr.fileno():
            with contextlib.suppress(OSError):  # the listing's own, closed by now
                os.set_inheritable(number, False)


def _children() -> list[int]:
    """Those that have to end."""
    me = os.getpid()
    pids = [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    return [pid for pid in pids if not _outlives(pid)]


def _outlives(pid: int) -> bool:
    try:
        return f"\0{OUTLIVES}=".encode() in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def main() -> int:
    """The exit code as a shell gives it: 128 + n after signal n. Dies itself when something survived."""
    grace_s, number, stop_command, *argv = sys.argv[1:]
    _keep_files_to_ourselves()
    guard = Guard(argv)
    guard.watch()
    guard.end(float(grace_s), int(number), stop_command)
    if guard.exit_code is None or _children():
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")
    return guard.exit_code if guard.exit_code >= 0 else 128 - guard.exit_code


if __name__ == "__main__":
    sys.exit(main())
