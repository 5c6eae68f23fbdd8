"""Ports for servers that raybench starts on this host and that cannot choose one themselves."""

from __future__ import annotations

import random
import socket
from itertools import islice

from raybench.deploy.facts import local_ports

#: Where the system does not say which ports it gives to outgoing connections: Linux's own default.
_LOCAL_PORTS = (32768, 60999)
_PORTS = range(10_240, 65_536)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has now, none that the system gives away unasked where there are others.

    A server may take its port only seconds after it was chosen: any connection that is opened meanwhile, by the
    server itself too, gets a local port, and it could be this one.
    """
    first, last = local_ports() or _LOCAL_PORTS
    asked_for = [port for port in _PORTS if not first <= port <= last] or list(_PORTS)
    return list(islice(filter(_is_free, random.sample(asked_for, len(asked_for))), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
