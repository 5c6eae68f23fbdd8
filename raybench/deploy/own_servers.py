"""Servers that raybench brings along: the simulated engine of an arm, and the null server of `raybench roofline`.

Runs on the host where the server is to run. Calls block; an event loop uses `asyncio.to_thread`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from raybench.deploy.arms import ProcessRecord
from raybench.deploy.diagnosis import diagnose
from raybench.deploy.guard import PARENT_PID
from raybench.deploy.process import LaunchedProcess, ReadyLine
from raybench.errors import TargetError
from raybench.scenario.sim_block import Sim

READY_TIMEOUT_S = 30.0

#: They have nothing to save: they may be cut off quickly.
GRACE_S = 3.0


@dataclass
class OwnServer:
    """`deploy.arms.Running`: answers at `url` and logs to `log_path`."""

    url: str
    log_path: Path
    record: ProcessRecord
    process: LaunchedProcess
    began_ns: int

    def stop(self) -> ProcessRecord:
        """End it. Raises TargetError when something survived."""
        by_itself = self.process.exit_code() is not None
        code = self.process.stop()
        ended = diagnose(code, (), asked=None if by_itself else "stopped", patterns=(), kernel_kills=None)
        seconds = (time.monotonic_ns() - self.began_ns) / 1e9
        self.record = replace(self.record, process_s=seconds, exit_code=code, reason=ended.reason)
        return self.record


def sim_command(sim: Sim, host: str, log_path: Path, preload: Mapping[str, object] | None) -> list[str]:
    """The command line of `raybench.sim`. Its server log is a file of its own, the one that engines
    write their batches to; what it prints (the ready line, a traceback) goes to the launch log."""
    command = [sys.executable, "-m", "raybench.sim"]
    command += ["--sim-json", sim.model_dump_json(), "--host", host, "--port", str(sim.port)]
    command += ["--log-file", str(log_path), "--parent-pid", PARENT_PID]
    if preload is not None:
        command += ["--preload-json", json.dumps(preload, allow_nan=False)]
    return command


def launch_sim(
    sim: Sim,
    host: str,
    log_path: Path,
    *,
    preload: Mapping[str, object] | None = None,
    hold: Sequence[int] = (),
) -> OwnServer:
    """Start the simulated engine on an address of this host and wait for its ready line.

    log_path: the engine's log; what it prints goes beside it, to `<log_path>.out`. preload: text that
    a tier of its cache already holds, as the fault `preload_corpus` needs it. Raises TargetError.
    """
    command = sim_command(sim, host, log_path, preload)
    printed = log_path.with_name(log_path.name + ".out")
    return _start(command, "the simulated engine", printed, log_path, hold)


def launch_null_server(log_path: Path) -> OwnServer:
    """Start the server of `raybench roofline` on the loopback of this host. Raises TargetError."""
    command = [sys.executable, "-m", "raybench.sim.null_server", "--parent-pid", PARENT_PID]
    return _start(command, "the null server", log_path, log_path)


def _start(
    command: list[str],
    name: str,
    printed: Path,
    log_path: Path,
    hold: Sequence[int] = (),
) -> OwnServer:
    """printed: where its ready line goes, and a traceback if there is one."""
    began_unix_ns, began_ns = time.time_ns(), time.monotonic_ns()
    process = LaunchedProcess.start(command, log_path=printed, grace_s=GRACE_S, name=name, hold=hold)
    try:
        ready = process.wait_ready(ReadyLine(), READY_TIMEOUT_S)
        url = ready.get("url")
        if not isinstance(url, str):
            raise TargetError("launch", f"{process.name} printed a ready line without url: {ready}")
    except BaseException:
        process.stop()
        raise
    load_s = (time.monotonic_ns() - began_ns) / 1e9
    record = ProcessRecord(command, {}, None, {}, began_unix_ns, load_s)
    return OwnServer(url, log_path, record, process, began_ns)
