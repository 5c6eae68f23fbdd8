"""Was the client the bottleneck? Its workers' own health, and its load against what its hosts can carry.

Pure; runs in the coordinator. Health shows that a worker was late; the roofline says how far a host is
from being late. Codes `client_busy` and `client_saturated` mean the same of a worker and of a host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.client_load import NodeLoad
from raybench.load.leases import split_slots
from raybench.protocol.verdict import Finding, Severity
from raybench.records.roofline import BUSY_SHARE, Roofline
from raybench.scenario.plan import Plan, Point

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
        void = share > 1 and not roofline.disturbed
        severity: Severity = "void" if void else "warning"
        doubt = f"; not void, since {_disturbance(roofline)}" if share > 1 and not void else ""
        yield Finding(
            "client_saturated" if void else "client_busy",
            severity,
            f"{'client saturated' if void else 'client busy'}: {host} carried {_told(load)}, {share:.0%} of its"
            f" roofline in {name} ({roofline.told()}); use more client nodes{doubt}",
            {"host": host, "in_flight_peak": load.in_flight_peak, "tokens_per_s_peak": load.tokens_per_s_peak}
            | {f"{name}_share": value for name, value in shares.items()}
            | {"roofline_others_node_share": roofline.others_node_share},
        )


@dataclass(frozen=True)
class Asked:
    """What a host is to carry, as far as that is known before the first request; None = not known.

    How fast streams will bring tokens, and how many requests of a rate will be under way at once, is the server's
    secret until then. tokens_per_s: of a rate, if the server keeps up with it.
    """

    streams: int | None = None
    tokens_per_s: float | None = None

    def or_more(self, other: Asked) -> Asked:
        """The larger of each number."""
        streams = [one for one in (self.streams, other.streams) if one is not None]
        tokens = [one for one in (self.tokens_per_s, other.tokens_per_s) if one is not None]
        return Asked(max(streams, default=None), max(tokens, default=None))


def asked_by_host(points: Iterable[Point], hosts: Sequence[str]) -> dict[str, Asked]:
    """The most that any of these points asks of each client host. hosts: that of each worker, in order."""
    most = dict.fromkeys(hosts, Asked())
    workers = Counter(hosts)
    for point in points:
        streams: Counter[str] = Counter()
        if point.concurrency is not None:
            for host, share in zip(hosts, split_slots(point.concurrency, len(hosts)), strict=True):
                streams[host] += share
        each = None if point.rate_per_s is None else point.rate_per_s * point.output_tokens / len(hosts)
        for host, count in workers.items():
            own = Asked(streams.get(host), None if each is None else each * count)
            most[host] = most[host].or_more(own)
    return most


def points_to_come(plan: Plan) -> list[Point]:
    """All that a run may measure: those listed, and the highest that each search may try."""
    searches = [search.highest for search in plan.searches if search.lowest.skip_reason is None]
    return list({point.point_id: point for point in (*plan.measured, *searches)}.values())


def expected_load(asked: Mapping[str, Asked], rooflines: Mapping[str, Roofline]) -> list[str]:
    """What is too much for a host before anything is sent, with the arithmetic and the way out."""
    warnings = []
    for host in sorted(asked):
        known = rooflines.get(host)
        if known is None:
            continue
        shares = known.shares(asked[host].streams, asked[host].tokens_per_s)
        for name, share in shares.items():
            if share > BUSY_SHARE:
                warnings.append(_too_much(name, share, asked[host], known))
    return warnings


def _too_much(name: str, share: float, asked: Asked, known: Roofline) -> str:
    if name == "streams":
        load, most = f"{asked.streams:,} streams", f"{known.streams:,}"
        limited_by, less = known.streams_limited_by, "fewer streams"
    else:
        load, most = f"{asked.tokens_per_s:,.0f} tokens/s", f"{known.tokens_per_s:,.0f}"
        limited_by, less = known.tokens_limited_by, "a lower rate"
    if share <= 1:
        end = f"above {BUSY_SHARE:.0%} a point gets a warning"
    elif known.disturbed:
        end = f"its points would get a warning, and not be void, since {_disturbance(known)}"
    else:
        end = "its points would be void"
    return (
        f"{known.host} is to carry {load}, {share:.0%} of the {most} that it was measured to carry"
        f" (limited by {limited_by}): {end}; use more client nodes, or {less}"
    )


def expected_loads(plan: Plan, rooflines: Mapping[str, Roofline], nodes: int | None) -> dict[str, list[str]]:
    """`expected_load` of all points, by id. nodes: how many hosts send; None = as many as have a roofline.

    Which hosts they will be is not known before a run, so the weakest are taken.
    """
    found = {}
    for point in points_to_come(plan):
        weakest = _weakest_first(rooflines, by_streams=point.level.closed_loop)
        hosts = weakest[:nodes] if nodes is not None else weakest
        unknown = [f"host {number}" for number in range(len(hosts), nodes or 0)]
        if hosts:
            found[point.point_id] = expected_load(asked_by_host([point], [*hosts, *unknown]), rooflines)
    return {point_id: warnings for point_id, warnings in found.items() if warnings}


def _weakest_first(rooflines: Mapping[str, Roofline], *, by_streams: bool) -> list[str]:
    """Hosts by what they carry, without those of which that is not known."""
    carried = {host: one.streams if by_streams else one.tokens_per_s for host, one in rooflines.items()}
    known = {host: value for host, value in carried.items() if value}
    return sorted(known, key=lambda host: known[host])


def _disturbance(roofline: Roofline) -> str:
    return (
        f"other work took up to {roofline.others_node_share:.0%} of the CPU of {roofline.host} while that was"
        " measured, and it may carry more: measure again when it is quiet"
    )


def _told(load: NodeLoad) -> str:
    tokens = "" if load.tokens_per_s_peak is None else f" and {load.tokens_per_s_peak:,.0f} tokens/s"
    return f"up to {load.in_flight_peak:,} streams{tokens}"
