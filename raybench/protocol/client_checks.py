"""Was the client the bottleneck? Its workers' own health, and its load against what its hosts can carry.

Pure; runs in the coordinator. Health shows that a worker was late; the roofline says how far a host is
from being late. Codes `client_busy` and `client_saturated` mean the same of a worker and of a host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.client_load import NodeLoad
from raybench.load.leases import split_slots
from raybench.protocol.findings import Finding, Severity
from raybench.records.roofline import BUSY_SHARE, Roofline
from raybench.scenario.plan import Plan

#: Shares of one core, over the load, from which a worker is told of, and from which its stamps are not believed.
CPU_BUSY, CPU_SATURATED = 0.7, 0.95
#: Lateness of a worker's event loop or of its starts, in ms, that is told of.
LATE_MS = 50.0
#: Share of the streams looked at, over the load, that had something unread: more is told of.
UNREAD_SHARE = 0.5


def check_workers_health(health: pa.Table | None) -> Iterator[Finding]:
    """No worker near a whole core, none late to read or to start. health: rows of records.schema.WORKER."""
    if health is None:
        return
    for worker in sorted(set(health["worker"].to_pylist())):
        rows = health.filter(pc.equal(health["worker"], worker))
        cpu = pc.mean(rows["cpu_share"]).as_py()
        lag_ms = pc.max(rows["loop_lag_ms_max"]).as_py()
        delay_ms = pc.max(rows["send_delay_ms_max"]).as_py()
        unread = pc.mean(rows["unread_streams_share"]).as_py()
        data = {
            "worker": worker,
            "cpu_share": cpu,
            "loop_lag_ms_max": lag_ms,
            "send_delay_ms_max": delay_ms,
            "unread_streams_share": unread,
            "unread_bytes_max": pc.max(rows["unread_bytes_max"]).as_py(),
        }
        if cpu is not None and cpu >= CPU_SATURATED:
            text = f"client saturated: worker {worker} used {cpu:.0%} of a core over the load; use more workers"
            yield Finding("client_saturated", "void", text, data)
        elif cpu is not None and cpu >= CPU_BUSY:
            text = f"worker {worker} used {cpu:.0%} of a core over the load"
            yield Finding("client_busy", "warning", text, data)
        if lag_ms is not None and lag_ms > LATE_MS:
            text = f"worker {worker} read up to {lag_ms:.0f} ms late: its stamps may be late by as much"
            yield Finding("client_late", "warning", text, data)
        if delay_ms is not None and delay_ms > LATE_MS:
            text = f"worker {worker} started requests up to {delay_ms:.0f} ms after they were due"
            yield Finding("client_starts_late", "warning", text, data)
        if unread is not None and unread > UNREAD_SHARE:
            text = f"worker {worker} had unread bytes in {unread:.0%} of the streams that were looked at"
            yield Finding("client_unread", "warning", text, data)


def check_rooflines(loads: Mapping[str, NodeLoad], rooflines: Mapping[str, Roofline]) -> Iterator[Finding]:
    """Each client host stayed below what it was measured to carry. A host without a roofline is a note."""
    for host in sorted(loads):
        load, roofline = loads[host], rooflines.get(host)
        if roofline is None or load.client != roofline.client:
            other = "" if roofline is None else f" with the client {load.client} (one with {roofline.client} is)"
            text = f"no roofline of {host} is stored{other}; `raybench roofline` measures what it can carry"
            yield Finding("roofline_unknown", "note", text, {"host": host})
            continue
        shares = roofline.shares(load.in_flight_peak, load.tokens_per_s_peak)
        name, share = max(shares.items(), key=lambda item: item[1], default=("", 0.0))
        if share <= BUSY_SHARE:
            continue
        void = share > 1
        severity: Severity = "void" if void else "warning"
        yield Finding(
            "client_saturated" if void else "client_busy",
            severity,
            f"{'client saturated' if void else 'client busy'}: {host} carried {_told(load)}, {share:.0%} of its"
            f" roofline in {name} ({roofline.told()}); use more client nodes",
            {"host": host, "in_flight_peak": load.in_flight_peak, "tokens_per_s_peak": load.tokens_per_s_peak}
            | {f"{name}_share": value for name, value in shares.items()},
        )


def streams_by_host(concurrency: int, hosts: Sequence[str]) -> dict[str, int]:
    """How many streams each client host gets. hosts: that of each worker, in order."""
    streams: Counter[str] = Counter()
    for host, share in zip(hosts, split_slots(concurrency, len(hosts)), strict=True):
        streams[host] += share
    return dict(streams)


def expected_load(streams: Mapping[str, int], rooflines: Mapping[str, Roofline]) -> list[str]:
    """What is too much for a host before anything is sent, with the arithmetic and the way out.

    How fast streams will bring tokens is the server's secret until then, so only their number is compared.
    """
    warnings = []
    for host, count in sorted(streams.items()):
        known = rooflines.get(host)
        if known is None or not known.streams or count <= BUSY_SHARE * known.streams:
            continue
        share = count / known.streams
        end = "its points would be void" if share > 1 else f"above {BUSY_SHARE:.0%} a point gets a warning"
        warnings.append(
            f"{host} is to carry {count:,} streams, {share:.0%} of the {known.streams:,} that it was measured to"
            f" carry (limited by {known.streams_limited_by}): {end}; use more client nodes, or fewer streams"
        )
    return warnings


def expected_loads(plan: Plan, rooflines: Mapping[str, Roofline], nodes: int | None) -> dict[str, list[str]]:
    """`expected_load` of all points, by id. nodes: how many hosts send; None = as many as have a roofline.

    Which hosts they will be is not known before a run, so the weakest are taken.
    """
    weakest = sorted(
        (host for host in rooflines if rooflines[host].streams), key=lambda h: rooflines[h].streams or 0
    )
    hosts = weakest[:nodes] if nodes is not None else weakest
    unknown = [f"host {number}" for number in range(len(hosts), nodes or 0)]
    found = {
        point.point_id: expected_load(streams_by_host(point.concurrency, [*hosts, *unknown]), rooflines)
        for point in plan.measured
        if hosts
    }
    return {point_id: warnings for point_id, warnings in found.items() if warnings}


def _told(load: NodeLoad) -> str:
    tokens = "" if load.tokens_per_s_peak is None else f" and {load.tokens_per_s_peak:,.0f} tokens/s"
    return f"up to {load.in_flight_peak:,} streams{tokens}"
