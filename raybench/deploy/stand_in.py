"""A service for rehearsals: a simulated engine as a daemon, to be taken down and brought back like the real one.

Runs on the machine of `--simulate`. It ends with the block, and when the process that began it is gone.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from raybench.deploy.commands import run_command
from raybench.deploy.ports import free_ports
from raybench.errors import TargetError
from raybench.scenario.schema import Arm, Service
from raybench.scenario.sim_block import Sim

_READY_TIMEOUT_S = 30.0
_CONFIGURATION, _PID, _OUTPUT = "service.json", "pid", "service.out"


@contextmanager
def service_stand_in(service: Service) -> Iterator[Service]:
    """One that is up, with `service`'s own verification. Raises TargetError when it does not start."""
    with tempfile.TemporaryDirectory(prefix="raybench-") as name:
        folder = Path(name)
        [port] = free_ports(1)
        (folder / _CONFIGURATION).write_text(Sim(time_compression=50).model_dump_json())
        (folder / _OUTPUT).touch()  # the engine, in the background, may open it after it is looked at
        stand_in = _service(service, folder, port)
        try:
            ran = run_command(_start(folder, port), cwd=folder, timeout_s=_READY_TIMEOUT_S)
            if ran.failure is not None:
                raise TargetError("service", f"the stand-in does not start: {ran.failure}")
            _wait_ready(folder)
            yield stand_in
        finally:
            with suppress(FileNotFoundError, ProcessLookupError, ValueError):
                os.kill(int((folder / _PID).read_text()), signal.SIGTERM)


def _service(service: Service, folder: Path, port: int) -> Service:
    here = shlex.quote(str(folder))
    ended = f"while kill -0 $(cat {_PID}) 2>/dev/null; do sleep 0.05; done"
    stop = f"cd {here} && kill $(cat {_PID}) && {ended}; rm {_PID}"
    aside = f"{_CONFIGURATION}.aside"
    return Service(
        deployment=Arm(url=f"http://127.0.0.1:{port}"),
        take_down=[stop, f"cd {here} && mv {_CONFIGURATION} {aside}"],
        bring_back=[f"cd {here} && mv {aside} {_CONFIGURATION}", _start(folder, port)],
        ready_timeout_s=_READY_TIMEOUT_S,
        verify=service.verify.model_copy(update={"unchanged": [f"cat {here}/{_CONFIGURATION}"]}),
    )


def _start(folder: Path, port: int) -> str:
    program = (
        f"{shlex.quote(sys.executable)} -m raybench.sim --host 127.0.0.1 --port {port} --parent-pid {os.getpid()}"
    )
    engine = f'{program} --sim-json "$(cat {_CONFIGURATION})" >>{_OUTPUT} 2>&1'
    return f"cd {shlex.quote(str(folder))} && {{ {engine} & echo $! >{_PID}; }}"


def _wait_ready(folder: Path) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while '"ready": true' not in (said := (folder / _OUTPUT).read_text()):
        if time.monotonic() > deadline:
            raise TargetError("service", f"the stand-in is not ready: {said[-2000:]}")
        time.sleep(0.05)
