"""Was the load the one that was asked: every request once, as many at a time, when it was due? Pure.

Of a closed loop by what was in flight. Of an open loop: sent on schedule, and answered as fast as it was sent;
rows of a closed loop have no schedule and yield nothing there. All by the records of the clients.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.in_flight import Window, in_flight
from raybench.analysis.metrics import LATE_SEND_MS, connect_wait_ms, late_sends, send_delay_ms
from raybench.analysis.stats import nearest_rank
from raybench.protocol.evidence import Evidence
from raybench.protocol.verdict import Finding, Severity
from raybench.scenario.schema import Guards

#: Share of late sends from which they are told of.
LATE_SHARE_WARNING = 0.01
#: In flight must grow by this share of the sends in the second half of a point, and by this many standard
#: deviations of what chance does to it, to be told of.
GROWTH_SHARE, GROWTH_DEVIATIONS = 0.1, 3.0


def check_workers(evidence: Evidence) -> Iterator[Finding]:
    """Every ticket has exactly one record, and every worker lived (case O-R4)."""
    planned, received = evidence.point.requests, evidence.requests.num_rows
    data = {"planned": planned, "handed_out": evidence.leased, "received": received}
    for worker, reason in evidence.lost_workers.items():
        yield Finding(
            "worker_lost",
            "void",
            f"client lost: worker {worker} ({reason}); {planned} requests planned,"
            f" {'an unknown number' if evidence.leased is None else evidence.leased} handed out to be sent,"
            f" {received} with a record",
            data | {"worker": worker},
        )
    if received != planned and not evidence.lost_workers:
        yield Finding("requests_missing", "void", f"{received} records for {planned} planned requests", data)
    if len(set(evidence.requests["ticket"].to_pylist())) != received:
        yield Finding("requests_doubled", "void", "a request has more than one record", data)
    for part in evidence.torn_parts:
        if not evidence.lost_workers:
            yield Finding("part_torn", "void", f"record file {part}", {"part": part})


def check_reached_load(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """Concurrency C means that C were in flight, by the records themselves. Of closed loops."""
    rows, level = evidence.requests, evidence.point.concurrency
    if level is None:
        return
    sent = rows.filter(pc.is_valid(rows["sent_unix_ns"]))
    if sent.num_rows == 0:
        if rows.num_rows:
            yield Finding("concurrency_not_verified", "void", "no record says when its request was sent")
        return
    starts, ends = sent["sent_unix_ns"].to_numpy(), sent["end_unix_ns"].to_numpy()
    course = in_flight(starts, ends)
    # After the last send the level falls by nature, so only the time until then is judged.
    share = course.share_at(level, Window(int(starts.min()), int(starts.max())))
    data = {"peak": course.peak, "share_at_level": share, "level": level}
    if course.peak != level:
        code = "concurrency_not_reached" if (course.peak or 0) < level else "concurrency_exceeded"
        yield Finding(code, "void", f"at most {course.peak} requests were in flight, asked {level}", data)
    elif share is not None and share < guards.in_flight_share_min:
        yield Finding(
            "concurrency_not_held",
            "void",
            f"{level} in flight for {share:.0%} of the time, asked {guards.in_flight_share_min:.0%}",
            data,
        )


def check_schedule(requests: pa.Table, late_share_max: float) -> Iterator[Finding]:
    """The client kept the schedule: what was sent late, or never, and what it waited for.

    late_share_max: above this share the load was not the one that was asked, and the point is void.
    """
    late, count = late_sends(requests), requests.num_rows
    if late is None or late < LATE_SHARE_WARNING * count:
        return
    delays = pc.drop_null(send_delay_ms(requests)).to_numpy()
    connected = pc.less_equal(connect_wait_ms(requests), LATE_SEND_MS)
    no_connection = min(late, count - int(pc.sum(connected, min_count=0).as_py()))
    data = {
        "late": late,
        "late_share": late / count,
        "late_for_want_of_a_connection": no_connection,
        "limit_ms": LATE_SEND_MS,
        "late_share_max": late_share_max,
        "send_delay_ms_p99": nearest_rank(delays, 99),
        "send_delay_ms_max": float(delays.max()) if delays.size else None,
    }
    worst = f"at worst {delays.max():,.0f} ms" if delays.size else "none was sent"
    severity: Severity = "void" if late > late_share_max * count else "warning"
    yield Finding(
        "schedule_not_kept",
        severity,
        f"schedule not kept: {late} of {count} requests were sent more than {LATE_SEND_MS:g} ms after their time"
        f" or never ({worst}); {no_connection} of them waited for a connection, {late - no_connection} for the"
        " client itself: use more workers or a lower rate",
        data,
    )


def check_growth(requests: pa.Table) -> Iterator[Finding]:
    """The server answered as fast as it was asked: in flight did not go on growing while requests were sent.

    Judged over the second half of the time of sending, after the load has built up. At a steady rate the
    number in flight is about Poisson at both ends of it (its variance is its mean), so that the standard
    deviation of the difference is the root of the sum of both.
    """
    rows = requests.filter(pc.and_(pc.is_valid(requests["sent_unix_ns"]), pc.is_valid(requests["scheduled_ns"])))
    if rows.num_rows < 2:
        return
    sent, end = rows["sent_unix_ns"].to_numpy(), rows["end_unix_ns"].to_numpy()
    middle, last = (int(sent.min()) + int(sent.max())) // 2, int(sent.max())
    before = int((sent <= middle).sum() - (end <= middle).sum())
    sent_then, ended_then = (int(((at > middle) & (at <= last)).sum()) for at in (sent, end))
    grown = sent_then - ended_then
    if grown <= 0 or grown <= max(
        GROWTH_SHARE * sent_then, GROWTH_DEVIATIONS * float(np.sqrt(2 * before + grown))
    ):
        return
    half_s = (last - middle) / 1e9
    # The first ones met an empty engine: if even they took so long, the load never stopped building up.
    first = np.argsort(sent)[: max(1, sent.size // 10)]
    too_short = bool(np.median((end - sent)[first]) > last - middle)
    yield Finding(
        "rate_not_sustained",
        "warning",
        f"rate not sustained: in the second half {sent_then / half_s:.3g} requests/s were sent and"
        f" {ended_then / half_s:.3g} completed, so that in flight grew from {before} to {before + grown}"
        + (
            " (or the load was still building up: the first requests took longer than this half)"
            if too_short
            else ": the latencies are those of an overloaded server"
        ),
        {
            "sent_per_s": sent_then / half_s,
            "completed_per_s": ended_then / half_s,
            "in_flight_before": before,
            "in_flight_after": before + grown,
        },
    )
