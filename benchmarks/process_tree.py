"""Run a command and count the CPU of all its processes, those too that leave it: one JSON object in a file.

    python process_tree.py RESULT.json LIMIT_S COMMAND...

Linux only. This process becomes the one that orphans fall to (`PR_SET_CHILD_SUBREAPER`), so that when all of them
have ended, what the kernel charged to its children is what the whole tree used. What still runs three seconds
after the command has ended, or at the limit, is ended: only its own descendants.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_S = 3.0


def main(result: str, limit_s: float, command: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    begin = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            end_children()
    wall_s = time.monotonic() - begin
    reap(time.monotonic() + LEFTOVER_S)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {
        "code": code,
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_mb": used.ru_maxrss / 1024,
        "wall_s": wall_s,
    }
    Path(result).write_text(json.dumps(told))


def reap(kill_at: float) -> None:
    """Wait for every descendant; from `kill_at` on, end what is left, generation by generation."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > kill_at:
                end_children()
            time.sleep(0.05)


def end_children() -> None:
    for pid in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
