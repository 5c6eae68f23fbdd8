"""Keeps a promise: a service that was taken down for a run comes back, whatever becomes of the run.

    python -m raybench.deploy.keeper ORDER_FILE

A process of its own on the target's host, a daemon that no end of raybench reaches. It looks at the service,
takes it down, waits, brings it back and verifies it; `deploy/keeping.py` starts it and reads what it reports.
Its standard input is a pipe whose other ends raybench holds, and the guards of what raybench launches: its end
says that the processes on the GPUs have ended, and is the only order to bring the service back; what memory
they held is waited for as well.

Before the service is touched a note of what it was is written to the state folder, and removed once the
service is verified. A keeper that finds a note brings back what the note says before anything else. A lock
beside it keeps two keepers of one service apart; the kernel releases it with the process.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from raybench.deploy.commands import Ran
from raybench.deploy.gpu_memory import FreeMemory, free_memory, wait_released
from raybench.deploy.keeping import Phase
from raybench.deploy.service import InUse, Seen
from raybench.errors import EXIT_OK, EXIT_SERVICE, ConfigError
from raybench.records.redact import redact_text
from raybench.records.strict_json import read_json, write_json
from raybench.scenario.schema import Service

_BUSY = "another run has taken this service down, or is bringing it back"
_LOCK_POLL_S = 0.1
#: How long what was launched may take to give its GPU memory back once its processes have ended.
GPU_RELEASE_LIMIT_S = 60.0


class Keeper:
    """One service and what is told of it. report: a file that others read, written anew with each phase.

    free: reads the memory that the GPUs have free.
    """

    def __init__(
        self, service: Service, base: Path, report: Path, free: Callable[[], FreeMemory] = free_memory
    ) -> None:
        self._service = service
        self._base = base
        self._report = report
        self._free = free
        self._told: dict[str, Any] = {"service": service.deployment.url, "problems": [], "steps": []}

    def keep(self, gone: Callable[[], bool], wait: Callable[[], None]) -> bool:
        """The whole of it; whether the service is as it was before.

        gone: raybench is gone already. wait: returns when it is time to bring the service back.
        """
        self._tell("waiting")
        with _alone(self._service) as note:
            if note is None:
                return self.refuse(_BUSY)
            if note.exists() and not self._recover(note):
                return False
            self._tell("looking")
            in_use = InUse(self._service, self._base)
            before = asyncio.run(in_use.look())
            if isinstance(before, str):
                return self.refuse(before)
            if gone():
                return self.refuse("raybench ended before the service was taken down")
            self._write_note(note, before)
            self._tell("taking_down", before=dict(before.facts))
            if self._ran("take_down", in_use.take_down()):
                self._tell("down")
                free = self._free()
                wait()
                self._wait_for_memory(free)
            else:
                self._told["problems"] = ["taking the service down failed; it is brought back"]
            return self._bring_back(in_use, before, note) and self._verified()

    def _wait_for_memory(self, before: FreeMemory) -> None:
        """Of a container whose client was killed, say; the verification decides what becomes of the rest."""
        _, held = wait_released(before, GPU_RELEASE_LIMIT_S, self._free)
        if held:
            self._told["problems"] = [f"GPU memory was still held when it was brought back: {', '.join(held)}"]

    def restore(self) -> bool:
        """Only bring back what a note says is down; without a note, only look."""
        self._tell("waiting")
        with _alone(self._service) as note:
            if note is None:
                return self.refuse(_BUSY)
            if note.exists():
                return self._recover(note) and self._verified()
            seen = asyncio.run(InUse(self._service, self._base).look())
            if isinstance(seen, str):
                return self.refuse(f"no note says that raybench took it down, but {seen}")
            return self._verified(after=dict(seen.facts))

    def _recover(self, note: Path) -> bool:
        """Bring back a service that an earlier keeper left down, as that keeper's note has it."""
        found = read_json(note)
        assert isinstance(found, dict), f"{note} is written here only"
        in_use = InUse(Service.model_validate(found["service"]), Path(found["base"]))
        self._told["recovered"] = True
        return self._bring_back(in_use, Seen(found["facts"], found["outputs"]), note)

    def _bring_back(self, in_use: InUse, before: Seen, note: Path) -> bool:
        """Whether it is as it was. That it is not is told here; that it is may not be the end yet."""
        self._tell("bringing_back", before=dict(before.facts))
        self._ran("bring_back", in_use.bring_back())
        problems = asyncio.run(in_use.verify(before))
        if problems:
            self._told["problems"] = [*self._told["problems"], *problems]
            self._tell("not_verified")
            return False
        note.unlink()
        return True

    def _verified(self, **more: object) -> bool:
        self._tell("verified", **more)
        return True

    def _write_note(self, note: Path, before: Seen) -> None:
        service = self._service.model_dump(mode="json")
        seen = {"facts": dict(before.facts), "outputs": dict(before.outputs)}
        write_json(note, {"service": service, "base": str(self._base), **seen})

    def _ran(self, kind: str, commands: list[Ran]) -> bool:
        """Tell of commands; whether none failed."""
        for ran in commands:
            told = asdict(ran) | {"command": redact_text(ran.command), "output": redact_text(ran.output)}
            self._told["steps"].append({"kind": kind, **told})
        return all(ran.failure is None for ran in commands)

    def refuse(self, reason: str) -> bool:
        """The service is not touched, for this reason."""
        self._told["problems"] = [*self._told["problems"], reason]
        self._tell("refused")
        return False

    def _tell(self, phase: Phase, **more: object) -> None:
        who = {"host": socket.gethostname(), "pid": os.getpid()}
        self._told |= {"phase": phase, **who, "unix_ns": time.time_ns(), **more}
        write_json(self._report, self._told)


def note_path(service: Service) -> Path:
    """Where the note of this service lies on this host, while it is down."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    digest = hashlib.sha256(str(service.deployment.url).encode()).hexdigest()[:16]
    return Path(state) / "raybench" / f"service-{digest}.json"


@contextmanager
def _alone(service: Service) -> Iterator[Path | None]:
    """The note's path, once no other keeper has this service; None when one has it for too long."""
    note = note_path(service)
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # outputs of commands may hold secrets
    deadline = time.monotonic() + service.ready_timeout_s
    with note.with_suffix(".lock").open("w") as lock:
        while not _locked(lock) and time.monotonic() < deadline:
            time.sleep(_LOCK_POLL_S)
        yield note if _locked(lock) else None


def _locked(lock: IO[str]) -> bool:
    """Whether we have the lock now; asking again while we have it changes nothing."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main() -> int:
    """The exit code. Signals that end others do not end a keeper."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # to ignore them would pass on to the service that it starts
    order_file = Path(sys.argv[1])
    order = read_json(order_file)
    order_file.unlink()
    assert isinstance(order, Mapping), "an order is written by deploy/keeping.py"
    keeper = Keeper(Service.model_validate(order["service"]), Path(order["base"]), Path(order["report"]))
    lifeline = sys.stdin.buffer

    def gone() -> bool:
        return bool(select.select([lifeline], [], [], 0)[0])

    def wait() -> None:
        lifeline.read()

    try:
        back = keeper.restore() if order["only_restore"] else keeper.keep(gone, wait)
    except ConfigError as error:  # a key's variable or a CA file that this host does not have
        back = keeper.refuse(str(error))
    return EXIT_OK if back else EXIT_SERVICE


if __name__ == "__main__":
    sys.exit(main())
