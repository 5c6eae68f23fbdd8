"""What the client hosts can open at all: file handles a process, local ports a host. Pure.

Checked before the first request, with the arithmetic, for the highest concurrency of the scenario: a
limit that is met in the middle of a point would only look like a slow server. How many streams an open loop
comes to is the server's to say, so it is refused nothing here; what it could not send is a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raybench.errors import ClusterError
from raybench.load.leases import split_slots
from raybench.scenario.schema import Scenario
from raybench.scenario.workload import Workload

#: Handles that a worker process needs beside its streams: Ray, Arrow, libraries.
OWN_FILES = 256
#: Ports left to everything else on the host.
SPARE_PORTS = 512


@dataclass(frozen=True)
class Host:
    """What a client host allows. None = the system does not say, and nothing is refused.

    local_ports: of one source address towards one target. sources: how many addresses it sends from.
    """

    name: str
    open_files_max: int | None
    local_ports: int | None
    sources: int = 1

    @classmethod
    def of_facts(cls, name: str, facts: Mapping[str, object], sources: int = 1) -> Host:
        """From `deploy.facts.host_facts`. A connection needs one port per source address and target."""
        files, ports = facts.get("open_files_max"), facts.get("local_ports")
        hard = files.get("hard") if isinstance(files, dict) else None
        count = ports[1] - ports[0] + 1 if isinstance(ports, list) else None
        return cls(name, hard, count, sources)

    def streams_max(self, workers: int, targets: int) -> int | None:
        """The most streams of this host over so many workers to so many targets; None = no known limit."""
        limits = []
        if self.open_files_max is not None:
            limits.append(workers * max(0, self.open_files_max - OWN_FILES))
        if self.local_ports is not None:
            limits.append(max(0, self.ports(targets)))
        return min(limits, default=None)

    def narrowest(self, workers: int, targets: int) -> str:
        """Which of the two limits `streams_max` comes from."""
        without_ports = replace(self, local_ports=None)
        same = self.streams_max(workers, targets) == without_ports.streams_max(workers, targets)
        return "file handles" if same else "local ports"

    def ports(self, targets: int) -> int:
        """Local ports that streams may take, over all pairs of a source address and a target."""
        assert self.local_ports is not None
        return (self.local_ports - SPARE_PORTS) * self.sources * targets


def highest_concurrency(workloads: Iterable[Workload]) -> int:
    """Of the closed loops, the maxima of searches included; 0 where there is none."""
    levels = (level for workload in workloads for level in workload.outermost_levels)
    return max((level.concurrency or 0 for level in levels), default=0)


def most_streams(scenario: Scenario) -> int:
    """The most that may be in flight at once: C, or all requests of an open loop if none is answered."""
    return max(
        level.concurrency or workload.request_count(level)
        for workload in scenario.workloads
        for level in workload.outermost_levels
    )


def refuse_what_hosts_cannot(scenario: Scenario, hellos: Sequence[Mapping[str, Any]]) -> None:
    """What the points ask of the client hosts against what the workers say of them (`LoadWorkerActor.hello`).

    An open loop is refused nothing: how many of its requests are under way at once is the server's secret.
    Raises ClusterError with the arithmetic.
    """
    found = [(str(hello["host"]), hello["source_addresses"]) for hello in hellos]
    refuse_foreign_sources(scenario.load.source_addresses, found)
    hosts = [Host.of_facts(str(h["host"]), h["facts"], max(1, len(h["source_addresses"]))) for h in hellos]
    for name, arm in scenario.arms.items():
        highest = highest_concurrency(scenario.workloads_of(name))
        refuse_beyond(highest, hosts, targets=1 + len(arm.load_urls))


def refuse_beyond(concurrency: int, workers: list[Host], targets: int = 1) -> None:
    """`workers`: the host of each load worker, in order. targets: addresses of the engine that load goes to.

    Raises ClusterError with the arithmetic.
    """
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
    for host in {host.name: host for host in workers}.values():
        if host.local_ports is not None and on_host[host.name] > host.ports(targets):
            raise ClusterError(
                f"{on_host[host.name]} streams from {host.name} exceed its local ports:"
                f" ({host.local_ports} - {SPARE_PORTS} kept free) x {_count(host.sources, 'source address')}"
                f" x {_count(targets, 'target')} = {host.ports(targets)}; widen net.ipv4.ip_local_port_range, name"
                " more of the host's addresses in load.source_addresses or of the engine's in load_urls, or use"
                " more client nodes"
            )


def refuse_foreign_sources(addresses: Sequence[str], found: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Every address is some client host's, and every host has one. found: (host, its own of them), by worker.

    Raises ClusterError.
    """
    known = {address for _, own in found for address in own}
    foreign = [address for address in addresses if address not in known]
    bare = sorted({host for host, own in found if not own}) if addresses else []
    problems = [f"{', '.join(foreign)}: no address of any client host"] if foreign else []
    problems += [f"{host} has none of them" for host in bare]
    if problems:
        raise ClusterError(
            f"load.source_addresses: {'; '.join(problems)}; list addresses of the client hosts, at least one of"
            " each (`ip addr` shows them), or leave the list out"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"
