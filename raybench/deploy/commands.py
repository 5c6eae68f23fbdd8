"""Shell commands of a scenario on this host: run to their end or to their limit, with what they said.

Runs on the target's host.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from raybench.deploy.process import own_environment

OUTPUT_BYTES_MAX = 64 * 1024
#: A command that went over its limit gets this long between SIGTERM and SIGKILL.
_GRACE_S = 2.0
_TAIL_CHARS = 400


@dataclass(frozen=True)
class Ran:
    """exit_code: None when it was ended at its limit; 128 + n after signal n. output: both streams, its end."""

    command: str
    exit_code: int | None
    output: str
    took_s: float

    @property
    def failure(self) -> str | None:
        """Why it does not count as done, in a sentence without a stop; None when it does."""
        if self.exit_code == 0:
            return None
        how = f"ended at its limit of {self.took_s:.0f} s" if self.exit_code is None else f"exit {self.exit_code}"
        said = " ".join(self.output.split())[-_TAIL_CHARS:]
        return f"`{self.command}`: {how}" + (f" ({said})" if said else "")


def run_command(command: str, *, cwd: Path, timeout_s: float) -> Ran:
    """Run a line in /bin/sh. What it leaves running in the background is neither waited for nor ended."""
    began = time.monotonic()
    # A file, not a pipe: a daemon that the command starts would hold a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=own_environment(),
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _end(process)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - OUTPUT_BYTES_MAX))
        text = output.read().decode("utf-8", "replace")
    if code is not None and code < 0:
        code = 128 - code
    return Ran(command, code, text, time.monotonic() - began)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, limit_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(limit_s)
            return
