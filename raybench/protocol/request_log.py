"""A server's own log of its requests, copied from the target's host into the run directory as it grows.

Runs in the coordinator. The merge joins it with the records (`analysis/engine_log.py`).
"""

from __future__ import annotations

from pathlib import Path

from raybench.errors import TargetError
from raybench.protocol.fleet import TargetHost
from raybench.records.rundir import RunDirectory

#: One read of the log; a longer one is read in several.
READ_BYTES = 8 * 1024 * 1024


class RequestLogCopy:
    """One arm's log of this invocation: a copy is written once, as parts are."""

    def __init__(self, host: TargetHost, run: RunDirectory, arm_name: str, path: str) -> None:
        self._host = host
        self._arm_name = arm_name
        self._path = path
        self._copy: Path = run.next_request_log(arm_name)
        self._copied = 0

    async def pull(self) -> str | None:
        """Copy what is new; why it cannot be, or None."""
        while True:
            try:
                data = await self._host.read_from(self._arm_name, self._path, self._copied, READ_BYTES)
            except TargetError as error:
                return str(error)
            if not data:
                return None
            with self._copy.open("ab") as copy:
                copy.write(data)
            self._copied += len(data)
