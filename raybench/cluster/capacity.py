"""What the client hosts can open at all: file handles a process, local ports a host. Pure.

Checked before the first request, with the arithmetic, for the highest concurrency of the scenario: a
limit that is met in the middle of a point would only look like a slow server. How many streams an open loop
comes to is the server's to say, so it is refused nothing here; what it could not send is a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from raybench.errors import ClusterError
from raybench.load.leases import split_slots
from raybench.scenario.schema import Scenario

#: Handles that a worker process needs beside its streams: Ray, Arrow, libraries.
OWN_FILES = 256
#: Ports left to everything else on the host.
SPARE_PORTS = 512


@dataclass(frozen=True)
class Host:
    """What a client host allows. None = the system does not say, and nothing is refused."""

    name: str
    open_files_max: int | None
    local_ports: int | None

    @classmethod
    def of_facts(cls, name: str, facts: Mapping[str, object]) -> Host:
        """From `deploy.facts.host_facts`. A connection needs one port per source address and target."""
        files, ports = facts.get("open_files_max"), facts.get("local_ports")
        hard = files.get("hard") if isinstance(files, dict) else None
        count = ports[1] - ports[0] + 1 if isinstance(ports, list) else None
        return cls(name, hard, count)


def highest_concurrency(scenario: Scenario) -> int:
    """Of the closed loops, the maxima of searches included; 0 where there is none."""
    levels = (level for workload in scenario.workloads for level in workload.outermost_levels)
    return max((level.concurrency or 0 for level in levels), default=0)


def most_streams(scenario: Scenario) -> int:
    """The most that may be in flight at once: C, or all requests of an open loop if none is answered."""
    return max(
        level.concurrency or workload.request_count(level)
        for workload in scenario.workloads
        for level in workload.outermost_levels
    )


def refuse_beyond(concurrency: int, workers: list[Host]) -> None:
    """`workers`: the host of each load worker, in order. Raises ClusterError with the arithmetic."""
    shares = split_slots(concurrency, len(workers))
    on_host: Counter[str] = Counter()
    for host, share in zip(workers, shares, strict=True):
        on_host[host.name] += share
        if host.open_files_max is not None and share + OWN_FILES > host.open_files_max:
            raise ClusterError(
                f"concurrency {concurrency} over {len(workers)} workers is {share} streams a worker;"
                f" with {OWN_FILES} handles of its own that exceeds the {host.open_files_max} open files that"
                f" {host.name} allows a process: raise `ulimit -n` before `ray start`, or use more workers"
            )
    ports = {host.name: host.local_ports for host in workers}
    for name, streams in on_host.items():
        known = ports[name]
        if known is not None and streams + SPARE_PORTS > known:
            raise ClusterError(
                f"{streams} streams from {name} exceed its {known} local ports to one target"
                f" ({SPARE_PORTS} are kept free): widen net.ipv4.ip_local_port_range, or use more client nodes"
            )
