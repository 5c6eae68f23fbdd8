"""Several hosts on one machine: network namespaces joined by a bridge, with links that can be cut.

Everything, the bridge too, lies in namespaces of its own, so that the machine's network stays as it is.
The hosts share the file system, the process table and the host name; addresses tell them apart.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

SUBNET = "10.93.0"


class Unavailable(Exception):
    """This machine cannot make network namespaces; the text says why."""


class Network:
    """Hosts by name. Each has loopback and one link, `eth0`, to the bridge."""

    def __init__(self, hosts: Sequence[str], suffix: str) -> None:
        self._namespaces = {host: f"rb-{suffix}-{host}" for host in (*hosts, "switch")}
        self._addresses = {host: f"{SUBNET}.{number}" for number, host in enumerate(hosts, start=1)}

    def address(self, host: str) -> str:
        return self._addresses[host]

    def inside(self, host: str) -> list[str]:
        """What stands before a command that runs on this host."""
        return ["ip", "netns", "exec", self._namespaces[host]]

    def pids(self, host: str) -> set[int]:
        """Processes of this host."""
        return {int(pid) for pid in ip("netns", "pids", self._namespaces[host]).split()}

    def cut(self, host: str) -> None:
        """Pull the cable out of the switch: packets vanish, no connection is closed."""
        ip("-n", self._namespaces["switch"], "link", "set", host, "down")

    def restore(self, host: str) -> None:
        ip("-n", self._namespaces["switch"], "link", "set", host, "up")

    def _build(self, stack: ExitStack) -> None:
        switch = self._namespaces["switch"]
        for namespace in self._namespaces.values():
            ip("netns", "add", namespace)
            stack.callback(ip, "netns", "delete", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host, address in self._addresses.items():
            namespace = self._namespaces[host]
            ip("link", "add", "eth0", "netns", namespace, "type", "veth", "peer", "name", host, "netns", switch)
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", namespace, "link", "set", "eth0", "up")
            ip("-n", switch, "link", "set", host, "master", "bridge", "up")


@contextmanager
def network(*hosts: str) -> Iterator[Network]:
    """The hosts, up and joined; they are gone after the block. Raises Unavailable."""
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    if shutil.which("ip") is None:
        raise Unavailable("network namespaces need iproute2 (`ip`)")
    with ExitStack() as stack:
        made = Network(hosts, secrets.token_hex(3))
        try:
            made._build(stack)
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"`{' '.join(error.cmd)}`: {error.stderr.strip()}") from error
        yield made


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
