"""Ports of this host: which ones outgoing connections use, and free ones for servers that must be told theirs.

Runs wherever a server is started.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Where the system does not say: what RFC 6335 sets aside.
_DYNAMIC = [49_152, 65_535]
#: Below lie the ports that other software is known by, and those that Ray gives its workers.
_FIRST = 20_000


def local_port_range() -> list[int] | None:
    """First and last port that outgoing connections may use. None = the system does not say."""
    try:
        first, last = map(int, _RANGE.read_text().split())
    except (OSError, ValueError):
        return None
    return [first, last]


def free_ports(count: int) -> list[int]:
    """Different ports that nothing on 127.0.0.1 has at this moment.

    None of them is in the range of outgoing connections, unless that leaves no other: there the kernel could give
    a port away until its server, which may take seconds to start, has it.
    """
    first, last = local_port_range() or _DYNAMIC
    outside = [port for port in range(_FIRST, 65_536) if not first <= port <= last]
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(outside, len(outside)) + [0] * count:
            if len(found) == count:
                break
            one = held.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(int(one.getsockname()[1]))
    return found
