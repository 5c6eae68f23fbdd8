"""Over which local and remote addresses the connections of a worker go: as evenly as whole numbers allow.

A route is a source address and a URL. The kernel keeps one range of local ports for each of them, so
more routes carry more connections. Runs in a load worker, under both clients; pure but for the sockets.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from raybench.errors import ConfigError, ConfigProblem

#: Linux: the port is chosen when the target is known, so that one port serves connections to several
#: targets. Without it `bind` takes a port of the source address for itself.
_BIND_ADDRESS_NO_PORT = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)


@dataclass(frozen=True)
class Route:
    """source: local IP address, None = the system chooses. url: without a slash at its end."""

    source: str | None
    url: str


class Routes:
    """Hands out the route with the fewest connections; of several, the next one in the round.

    first: where the round begins, so that many workers with one connection each do not all take the same.
    """

    def __init__(self, sources: Sequence[str], urls: Sequence[str], first: int = 0) -> None:
        chosen: list[str | None] = [*sources] if sources else [None]
        rounds = [Route(source, url.rstrip("/")) for source in chosen for url in urls]
        start = first % len(rounds)
        self._used = dict.fromkeys(rounds[start:] + rounds[:start], 0)

    @property
    def all(self) -> list[Route]:
        return list(self._used)

    def take(self) -> Route:
        route = min(self._used, key=self._used.__getitem__)
        self._used[route] += 1
        return route

    def give_back(self, route: Route) -> None:
        self._used[route] -= 1


def own_addresses(addresses: Sequence[str]) -> list[str]:
    """Those that this host can send from, found by trying: it alone knows."""
    own = []
    for address in addresses:
        with suppress(OSError):
            bound_socket(address).close()
            own.append(address)
    return own


def require_own(addresses: Sequence[str]) -> list[str]:
    """The same. Raises ConfigError when addresses are asked for and none is this host's."""
    own = own_addresses(addresses)
    if addresses and not own:
        raise ConfigError(
            "scenario",
            ConfigProblem(
                f"none of these is an address of {socket.gethostname()}",
                path="load.source_addresses",
                value=", ".join(addresses),
                way_out="list at least one address of each client node (`ip addr` shows them), or leave it out",
            ),
        )
    return own


def bound_socket(source: str) -> socket.socket:
    """A TCP socket that will connect from this address. Raises OSError when it is not this host's."""
    sock = socket.socket(_family(source), socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):  # a system without it has fewer ports, nothing else
            sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))
    except OSError:
        sock.close()
        raise
    return sock


async def connected_socket(source: str, host: str, port: int) -> socket.socket:
    """A connection from `source`, of its family. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, family=_family(source), type=socket.SOCK_STREAM)
    sock = bound_socket(source)
    try:
        await loop.sock_connect(sock, found[0][4])
    except BaseException:
        sock.close()
        raise
    return sock


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
