"""Brings an arm's deployment up and takes it down again; today that is the built-in simulated engine.

Runs on the target's host. Calls block; an event loop uses `asyncio.to_thread`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raybench.deploy.guard import PARENT_PID
from raybench.deploy.process import LaunchedProcess, ReadyLine
from raybench.errors import TargetError
from raybench.scenario.sim_block import Sim

SIM_READY_TIMEOUT_S = 30.0

#: The simulated engine has nothing to save: it may be cut off quickly.
SIM_GRACE_S = 3.0


@dataclass(frozen=True)
class RunningSim:
    """A simulated engine that answers at `url`. `process.stop()` ends it."""

    url: str
    pid: int
    process: LaunchedProcess

    def stop(self) -> int:
        return self.process.stop()


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
    timeout_s: float = SIM_READY_TIMEOUT_S,
) -> RunningSim:
    """Start the simulated engine on an address of this host and wait for its ready line.

    log_path: the engine's log; what it prints goes beside it, to `<log_path>.out`. preload: text that
    a tier of its cache already holds, as the fault `preload_corpus` needs it. Raises TargetError.
    """
    process = LaunchedProcess.start(
        sim_command(sim, host, log_path, preload),
        log_path=log_path.with_name(log_path.name + ".out"),
        grace_s=SIM_GRACE_S,
        name="the simulated engine",
    )
    try:
        ready = process.wait_ready(ReadyLine(), timeout_s)
        url, pid = ready.get("url"), ready.get("pid")
        if not isinstance(url, str) or not isinstance(pid, int):
            raise TargetError("launch", f"{process.name} printed a ready line without url and pid: {ready}")
    except BaseException:
        process.stop()
        raise
    return RunningSim(url, pid, process)
