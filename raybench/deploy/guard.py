"""Ends a launched process, with all its descendants, when raybench asks for it or dies itself.

Run as a script between raybench and the process it launches, on the same host:

    python -I guard.py GRACE_S ARG0 ARG1 ...

Its standard input is a pipe whose other end only raybench holds. The pipe's end, by `stop()` or by the
kernel after a SIGKILL of raybench, is the one order to stop: SIGTERM to the process's group, up to GRACE_S
seconds for everything to end, then SIGKILL to whatever is left. As a subreaper the guard inherits
descendants that left the group (daemons), so these end too. If the guard itself is killed, the kernel
kills the process (PR_SET_PDEATHSIG, which is reliable here because the guard has a single thread).

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
from pathlib import Path

#: An argument that is exactly this becomes the guard's pid, for programs that watch their parent.
PARENT_PID = "{parent_pid}"

#: SIGKILL works at once, except on a process in an uninterruptible call; waiting longer changes nothing.
KILL_LIMIT_S = 5.0

EXIT_NOT_STARTED = 127

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_ROUND_S = 0.02


class Guard:
    """One launched process and its descendants."""

    def __init__(self, argv: list[str]) -> None:
        self.exit_code: int | None = None
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
        while self._reap() and self.exit_code is None:
            readable, _, _ = select.select([sys.stdin.fileno(), self._wakeup], [], [])
            if sys.stdin.fileno() in readable or signal.SIGTERM in self._signals():
                return

    def end(self, grace_s: float) -> None:
        """Return when no descendant is left, or when even SIGKILL did not help within its limit."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while self._reap() and (left_s := deadline - time.monotonic()) > 0:
            select.select([self._wakeup], [], [], left_s)
            self._signals()
        deadline = time.monotonic() + KILL_LIMIT_S
        while self._reap() and time.monotonic() < deadline:
            for pid in _children():  # the children of those killed are ours in the next round
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            select.select([self._wakeup], [], [], _KILL_ROUND_S)
            self._signals()

    def _reap(self) -> bool:
        """Collect ended children; False when there is no descendant any more."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
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
    pid = os.fork()
    if pid != 0:
        # Both sides make the group, so that it exists whichever of them runs first.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        return pid
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard_pid:
        os._exit(EXIT_NOT_STARTED)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
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


def _children() -> list[int]:
    me = os.getpid()
    return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]


def main() -> int:
    """The exit code as a shell gives it: 128 + n after signal n. Dies itself when something survived."""
    grace_s, *argv = sys.argv[1:]
    guard = Guard(argv)
    guard.watch()
    guard.end(float(grace_s))
    if guard.exit_code is None or _children():
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")
    return guard.exit_code if guard.exit_code >= 0 else 128 - guard.exit_code


if __name__ == "__main__":
    sys.exit(main())
