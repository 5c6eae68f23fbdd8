"""Whether the network link of this host stayed up. Runs in load workers and on the target's host.

Linux counts, for each interface, how often its carrier came or went. A link that was away for a second under
load leaves no failed request behind, only a pause that looks like the engine's.
https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net (carrier_changes)
"""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil

INTERFACES = Path("/sys/class/net")


class LinkWatch:
    """Counts the changes of the link that leads to one peer, from now on. peer: a host name or address."""

    def __init__(self, peer: str, interfaces: Path = INTERFACES) -> None:
        own = own_address(peer)
        self._counter = None if own is None else _interface_with(own, interfaces)
        self._before = self._count()

    @classmethod
    def of_url(cls, url: str) -> LinkWatch:
        return cls(urlsplit(url).hostname or "")

    def changes(self) -> int | None:
        """How often it has gone down or come up since; None where that is not known."""
        now = self._count()
        return None if now is None or self._before is None else now - self._before

    def _count(self) -> int | None:
        if self._counter is None:
            return None
        try:
            return int(self._counter.read_text())
        except (OSError, ValueError):
            return None


def own_address(peer: str) -> str | None:
    """This host's address on the way to `peer`; nothing is sent. None when there is no way."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with closing(socket.socket(family, kind)) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _interface_with(address: str, interfaces: Path) -> Path | None:
    """Where the carrier changes of the interface with this address are counted."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in addresses):
            return interfaces / name / "carrier_changes"
    return None
