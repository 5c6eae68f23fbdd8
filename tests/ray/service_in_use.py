"""A service in use on this machine, which tests take down: a simulated engine as a daemon, started by a script.

Its configuration is a file that taking it down renames, as one renames a container; its process is found by a
pid file. Used by tests/deploy and tests/ray.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from raybench.deploy.ports import free_ports

LIMIT_S = 300.0
CONFIGURATION = b'{"time_compression": 50, "max_running_requests": 12}'

_PING = """
import sys
from urllib.request import ProxyHandler, build_opener
build_opener(ProxyHandler({})).open(sys.argv[1], timeout=2)
"""
_SCRIPT = """#!/bin/sh
# start | stop, in the folder of this file
cd "$(dirname "$0")" || exit 1
case "$1" in
start)
    [ -f service.json ] || { echo "there is no service.json"; exit 1; }
    nohup PYTHON -m raybench.sim --sim-json "$(cat service.json)" --host ADDRESS --port PORT \\
        --log-file engine.log >>service.out 2>&1 &
    echo $! >pid ;;
stop)
    kill "$(cat pid)" || exit 1
    while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.05; done
    rm pid ;;
esac
"""


@dataclass(frozen=True)
class InUse:
    """One service. `block` is what a scenario says of it. prefix: a command in front, as `ip netns exec`."""

    folder: Path
    port: int
    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    def block(self, *, pause_s: float | None = None, **more: Any) -> dict[str, Any]:
        """pause_s: behind each step down and before each step back, so that a test can break in."""
        script, name = self.folder / "service.sh", self.folder / "service.json"
        pause = [] if pause_s is None else [f"sleep {pause_s}"]
        down = [f"{script} stop", *pause, f"mv {name} {name}.aside", *pause]
        back = [*pause, f"mv {name}.aside {name}", *pause, f"{script} start"]
        verify = {"prompt_tokens": 16384, "unchanged": [f"cat {name}"]}
        known = {"deployment": {"url": self.url}, "take_down": down, "bring_back": back, "verify": verify}
        return {**known, "ready_timeout_s": 300, "command_timeout_s": 120, **more}

    @property
    def configuration(self) -> bytes | None:
        path = self.folder / "service.json"
        return path.read_bytes() if path.exists() else None

    @property
    def pid(self) -> int | None:
        """Of the process that the script started last, when it is alive."""
        with suppress(OSError, ValueError, psutil.NoSuchProcess):
            process = psutil.Process(int((self.folder / "pid").read_text()))
            if process.status() != psutil.STATUS_ZOMBIE:
                return process.pid
        return None

    def answers(self) -> bool:
        command = [*self.prefix, sys.executable, "-I", "-c", _PING, f"{self.url}/ping"]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def run_script(self, order: str) -> None:
        subprocess.run([*self.prefix, str(self.folder / "service.sh"), order], check=True)

    def wait_up(self) -> None:
        end = time.monotonic() + LIMIT_S
        while not self.answers():
            assert time.monotonic() < end, (self.folder / "service.out").read_text()
            time.sleep(0.05)


@contextmanager
def service(folder: Path, address: str = "127.0.0.1", prefix: Sequence[str] = ()) -> Iterator[InUse]:
    """Up, with its configuration; whatever it was restarted as ends with the block. prefix: as of InUse."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "service.json").write_bytes(CONFIGURATION)
    [port] = free_ports(1)
    script = folder / "service.sh"
    script.write_text(
        _SCRIPT.replace("PYTHON", sys.executable).replace("PORT", str(port)).replace("ADDRESS", address)
    )
    script.chmod(0o755)
    in_use = InUse(folder, port, address, tuple(prefix))
    in_use.run_script("start")
    try:
        in_use.wait_up()
        yield in_use
    finally:
        if (pid := in_use.pid) is not None:
            os.kill(pid, signal.SIGKILL)


def report_of(path: Path) -> dict[str, Any]:
    """What the keeper has told so far."""
    if not path.exists():
        return {}
    told: dict[str, Any] = json.loads(path.read_text())
    return told
