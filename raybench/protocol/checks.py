"""What one attempt left behind, and what our own side of it shows: workers, reached load, links, clocks, GPU data.

Pure; runs in the coordinator. Each check looks at one thing and yields findings; none prints, waits or
contacts anything. A finding of severity `void` takes the number out of every table; `warning` is shown beside
it; `note` informs. Unknown is never zero. The engine's side is in `answer_checks.py`, `hits.py` and `traffic.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.client_load import NodeLoad
from raybench.analysis.in_flight import Window, in_flight
from raybench.analysis.metrics import succeeded
from raybench.analysis.server_log import PrefillLog
from raybench.engines.contract import Counters, QueueState
from raybench.protocol.clock_checks import Clocks
from raybench.protocol.finding import Finding
from raybench.protocol.gpu_checks import GpuState
from raybench.records.roofline import Roofline
from raybench.scenario.plan import Point
from raybench.scenario.schema import Guards


@dataclass(frozen=True)
class ServerView:
    """The engine before or after the load: who it is, and its counters (None = it has none)."""

    instance: str | None
    counters: Counters | None


@dataclass(frozen=True)
class Evidence:
    """Everything that one attempt left behind.

    requests: the load rows of all workers as read back from their part files, with `sent_unix_ns` and
    `end_unix_ns` on the coordinator's clock. lost_workers: worker -> reason.
    leased: requests that the coordinator handed out to workers, some of them ahead of a free slot.
    gate_failure: what of the arm's quality gate failed, where the scenario measures all the same.
    health: the workers' own rows over the load (records.schema.WORKER), None where they were not kept.
    client: what each client host carried; rooflines: what each can carry, as far as it was ever measured.
    log: what the engine's own log told over the load, None where none was read, then log_reason says why if
    one should have been. flushed_groups: data-parallel groups whose log line says that the flush was done, and
    that it was not. left_inside: the engine's queue once the counters had settled, None = unknown.
    link_changes: how often a link went down or came up under the load, by worker or `target host`.
    """

    point: Point
    requests: pa.Table
    before: ServerView
    after: ServerView
    lost_workers: Mapping[str, str] = field(default_factory=dict)
    leased: int | None = None
    health: pa.Table | None = None
    client: Mapping[str, NodeLoad] = field(default_factory=dict)
    rooflines: Mapping[str, Roofline] = field(default_factory=dict)
    torn_parts: tuple[str, ...] = ()
    prompt_is_ids: bool = True
    ignore_eos: bool = True
    streamed: bool = True
    flush_reply: str | None = None
    idle_known: bool = True
    log: PrefillLog | None = None
    log_reason: str | None = None
    flushed_groups: tuple[frozenset[int | None], frozenset[int | None]] = (frozenset(), frozenset())
    left_inside: QueueState | None = None
    clocks: Clocks = field(default_factory=dict)
    link_changes: Mapping[str, int] = field(default_factory=dict)
    gpu: GpuState = field(default_factory=GpuState)
    gpu_required: bool = False
    gate_failure: str | None = None


def ok_rows(requests: pa.Table) -> pa.Table:
    """The requests that succeeded."""
    return requests.filter(succeeded(requests))


def total(rows: pa.Table, column: str) -> float:
    """The sum of what is known of a column."""
    return float(pc.sum(rows[column]).as_py() or 0)


def total_of_tries(rows: pa.Table, column: str) -> float:
    """A request that was sent twice may have been counted twice."""
    return float(pc.sum(pc.multiply(rows[column], rows["tries"])).as_py() or 0)


def counter_delta(evidence: Evidence, name: str) -> float | None:
    """After minus before of one counter; None when either side lacks it."""
    before, after = evidence.before.counters, evidence.after.counters
    if before is None or after is None:
        return None
    first, last = getattr(before, name), getattr(after, name)
    return None if first is None or last is None else float(last - first)


def preemptions(evidence: Evidence) -> float:
    """How many requests were retracted during the load, by whichever source saw the most."""
    by_log = 0 if evidence.log is None else evidence.log.retractions
    return max(total(evidence.requests, "retractions"), counter_delta(evidence, "preemptions") or 0, by_log)


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


def check_links(evidence: Evidence) -> Iterator[Finding]:
    """The network stayed up: a pause of the link would be taken for one of the engine."""
    for name, changes in evidence.link_changes.items():
        if changes:
            who = name if name == "target host" else f"worker {name}"
            yield Finding(
                "link_interrupted",
                "void",
                f"the network link of {who} went down or came up {changes} times under the load",
                {"host": name, "changes": changes},
            )


def check_gate(evidence: Evidence) -> Iterator[Finding]:
    """Numbers of an arm that did not pass its gate never stand without saying so."""
    if evidence.gate_failure is not None:
        yield Finding("gate_failed", "warning", f"quality gate not passed: {evidence.gate_failure}")
