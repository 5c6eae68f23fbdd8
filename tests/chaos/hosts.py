"""The three hosts of a chaos run, Ray on them, and the small disk of the run directories.

Everything is in network namespaces and a memory disk of its own; all ends with the `with` block.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import network
import own_ray
import psutil

ROLES = {"head": {"bench_client": 1}, "client": {"bench_client": 1}, "target": {"gpu_host": 1}}
DISK_MIB = 48
#: How Ray titles the processes of our actors, and what is in the command lines of our other processes.
ACTORS = ("CoordinatorActor", "LoadWorkerActor", "TargetHostActor", "GpuMonitorActor", "ClaimActor")
OURS = (*(f"ray::{actor}" for actor in ACTORS), "-m raybench")


class Hosts:
    """head: client, coordinator and driver. client: client. target: the engine."""

    def __init__(self, folder: Path, net: network.Network, cluster: own_ray.OwnRay) -> None:
        self.folder = folder
        self.net = net
        self.cluster = cluster
        self.runs_dir = folder / "disk" / "runs"
        self._nodes: dict[str, ExitStack] = {}

    def join(self, host: str) -> None:
        """Start the Ray node of a host, again if it was there before."""
        self.leave(host)
        stack = self._nodes[host] = ExitStack()
        node = own_ray.worker(
            self.cluster, self.net.address(host), prefix=self.net.inside(host), resources=ROLES[host]
        )
        stack.enter_context(node)

    def complete(self) -> None:
        """Start every node that is not there any more: also one that Ray itself has given up and ended."""
        for host in ("client", "target"):
            if not self.find(host, "raylet/raylet"):
                self.join(host)

    def leave(self, host: str) -> None:
        self._nodes.pop(host, ExitStack()).close()

    def find(self, host: str, *words: str) -> list[psutil.Process]:
        """Living processes of a host whose command line holds all of these."""
        return [one for one in self._processes(host) if all(word in command(one) for word in words)]

    def ours(self) -> list[psutil.Process]:
        """Everything of raybench on the hosts, whoever started it."""
        everywhere = (one for host in ROLES for one in self._processes(host))
        return [one for one in everywhere if any(word in command(one) for word in OURS)]

    def everything(self) -> list[psutil.Process]:
        return [one for host in ROLES for one in self._processes(host)]

    def live_nodes(self) -> list[str]:
        """Addresses of the nodes that Ray takes for alive; asked on the head's host, where its dashboard is."""
        ask = (
            "import sys, urllib.request as u; q = u.Request(sys.argv[1], headers={'Authorization': sys.argv[2]});"
        )
        ask += "print(u.build_opener(u.ProxyHandler({})).open(q, timeout=30).read().decode())"
        url, token = f"{self.cluster.job_api}/api/v0/nodes?limit=100", f"Bearer {self.cluster.token}"
        command = [*self.net.inside("head"), sys.executable, "-c", ask, url, token]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return sorted(node["node_ip"] for node in answer["data"]["result"]["result"] if node["state"] == "ALIVE")

    def slow_down(self, host: str, rate_kbit: int) -> None:
        """Throttle the link towards the host, so that packets wait in line for up to three seconds."""
        rate = ["rate", f"{rate_kbit}kbit", "burst", "4kb", "latency", "3s"]
        self._tc("replace", "dev", host, "root", "tbf", *rate)

    def speed_up(self, host: str) -> None:
        self._tc("del", "dev", host, "root")

    def _tc(self, *words: str) -> None:
        subprocess.run([*self.net.inside("switch"), "tc", "qdisc", *words], check=True, capture_output=True)

    def fill_disk(self) -> None:
        """Until the last byte."""
        with suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free_disk(self) -> None:
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.folder / "disk" / "filler"

    def _processes(self, host: str) -> list[psutil.Process]:
        found = []
        for pid in self.net.pids(host):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return " ".join(process.cmdline())
    return ""


@contextmanager
def hosts(folder: Path) -> Iterator[Hosts]:
    """Up and joined. Raises network.Unavailable with the reason."""
    with ExitStack() as stack:
        net = stack.enter_context(network.network(*ROLES))
        stack.enter_context(_memory_disk(folder / "disk"))
        head = own_ray.head(net.address("head"), prefix=net.inside("head"), resources=ROLES["head"])
        made = Hosts(folder, net, stack.enter_context(head))
        for host in ("client", "target"):
            stack.callback(made.leave, host)
        with ThreadPoolExecutor() as both:
            list(both.map(made.join, ("client", "target")))
        yield made


@contextmanager
def _memory_disk(path: Path) -> Iterator[None]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(path)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise network.Unavailable(f"`{' '.join(mount)}`: {error.stderr.strip()}") from error
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def wait_gone(look: Callable[[], list[psutil.Process]], limit_s: float) -> list[psutil.Process]:
    """What a look still finds when nothing is left or time is up."""
    end = time.monotonic() + limit_s
    while (left := look()) and time.monotonic() < end:
        time.sleep(0.2)
    return left
