"""Whether the network links of this host stayed up. Runs in load workers and on the target's host.

Linux counts, for each interface, how often its carrier came or went. A link that was away for a second under
load leaves no failed request behind, only a pause that looks like the engine's.
https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net (carrier_changes)
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil

INTERFACES = Path("/sys/class/net")


class LinkWatch:
    """Counts the changes of the links that lead to some peers, from now on. peers: host names or addresses; one
    of this host itself stands for the link that has it."""

    def __init__(self, peers: Iterable[str], interfaces: Path = INTERFACES) -> None:
        found = {_counter_towards(peer, interfaces) for peer in peers}
        self._before = {counter: _count(counter) for counter in found}

    @classmethod
    def of_routes(cls, urls: Iterable[str], source_addresses: Iterable[str]) -> LinkWatch:
        """The links to the hosts of the URLs, and those of the addresses of this host that are sent from."""
        return cls([*(urlsplit(url).hostname or "" for url in urls), *source_addresses])

    def changes(self) -> int | None:
        """How often they have gone down or come up since, in all. None when no change is known, and of one of them
        nothing is."""
        counts = [(before, _count(counter)) for counter, before in self._before.items()]
        known = [now - before for before, now in counts if before is not None and now is not None]
        return sum(known) if any(known) or len(known) == len(counts) else None


def own_address(peer: str) -> str | None:
    """This host's address on the way to `peer`; nothing is sent. None when there is no way."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with closing(socket.socket(family, kind)) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _counter_towards(peer: str, interfaces: Path) -> Path | None:
    """Where the carrier changes of the interface that leads to `peer` are counted."""
    own = own_address(peer)
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == own for one in addresses):
            return interfaces / name / "carrier_changes"
    return None


def _count(counter: Path | None) -> int | None:
    if counter is None:
        return None
    try:
        return int(counter.read_text())
    except (OSError, ValueError):
        return None
