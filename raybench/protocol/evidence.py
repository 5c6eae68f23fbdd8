"""What one attempt left behind, as it stands on disk: what is judged is what is kept. Runs in the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.alignment import ClockReading
from raybench.analysis.client_load import NodeLoad, node_loads
from raybench.analysis.history import History, read_history
from raybench.analysis.metrics import of_load, succeeded
from raybench.analysis.parts import AttemptParts
from raybench.analysis.points import struck_if_damaged
from raybench.analysis.server_log import LogSpan, PrefillLog, groups_by_flush, log_rows, prefill_log
from raybench.engines.contract import Engine, QueueState
from raybench.protocol.attempts import Attempt
from raybench.protocol.context import RunContext
from raybench.protocol.fleet import GpuState
from raybench.protocol.gate import GateResult
from raybench.protocol.procedure import Observed
from raybench.protocol.target import ServerView
from raybench.records.journal import Journal, read_journal
from raybench.records.roofline import Roofline
from raybench.records.rundir import RunDirectory
from raybench.scenario.plan import Point

#: By clock (a worker's name, or one of `TargetHost.clocks`), what was measured over an attempt, in order of time.
Clocks = Mapping[str, Sequence[ClockReading]]


@dataclass(frozen=True)
class Evidence:
    """Everything that one attempt left behind.

    requests: the load rows of all workers as read back from their part files, with `sent_unix_ns` and
    `end_unix_ns` on the coordinator's clock. lost_workers: worker -> reason.
    leased: requests that the coordinator handed out to workers, some of them ahead of a free slot.
    gate: of the arm, None where none was asked for.
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
    gate: GateResult | None = None


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


def history_of(run: RunDirectory) -> History:
    """What the journal tells so far; it grows with the run, so it is read once an attempt."""
    return read_history(read_journal(run.journal))


def load_requests(parts: AttemptParts) -> tuple[pa.Table, tuple[str, ...], dict[str, NodeLoad]]:
    """The load rows of all workers, what is wrong with their parts (one that was not closed, say), and what
    each client host carried.

    `sent_unix_ns` and `end_unix_ns` are on the coordinator's clock, as the merge will have them. Without the
    lists of chunks, which no check reads: with them a million requests would be gigabytes in the coordinator.
    """
    gathered = parts.requests(chunks=False)
    rows = of_load(gathered.table)
    return rows, gathered.warnings, node_loads(rows, parts.writers())


def strike_damaged(run: RunDirectory, journal: Journal) -> None:
    """Commit accepted points whose records are not whole any more as void, so that a resumed run measures them
    again. To be called before the journal is read for the resume."""
    history = history_of(run)
    for point_id, point in history.points.items():
        if point.verdict != "accepted" or point.final_attempt is None:
            continue
        row = {"verdict": point.verdict}
        warnings = AttemptParts(run, point_id, point.final_attempt, history).requests(chunks=False).warnings
        if struck := struck_if_damaged(row, warnings):
            journal.append("point_committed", point_id=point_id, attempt=point.final_attempt, **struck)


def evidence_of(
    context: RunContext,
    attempt: Attempt,
    observed: Observed,
    engine: Engine,
    gpu: GpuState,
    gate: GateResult | None,
) -> Evidence:
    """The records as they are on disk, and what the steps saw. Blocks."""
    run = context.run
    history = history_of(run)
    point_id, load = attempt.point.point_id, observed.load
    parts = AttemptParts(run, point_id, attempt.number, history)
    requests, torn, client = load_requests(parts)
    return Evidence(
        point=attempt.point,
        requests=requests,
        before=observed.before,
        after=observed.after,
        lost_workers=load.lost,
        torn_parts=torn,
        prompt_is_ids=engine.template(attempt.shape).prompt == "ids",
        ignore_eos=attempt.shape.ignore_eos,
        streamed=attempt.shape.stream,
        flush_reply=observed.flush_reply,
        idle_known=observed.idle_known,
        log=None if observed.log_load is None else prefill_log(log_rows(run, observed.log_load)),
        log_reason=observed.log_reason,
        flushed_groups=_flushed_groups(run, observed.log_flush),
        left_inside=observed.left_inside,
        leased=observed.leased,
        health=_health(parts, load.start_unix_ns, load.end_unix_ns),
        client=client,
        rooflines=context.rooflines,
        clocks=history.attempt_clocks(point_id, attempt.number),
        link_changes=observed.link_changes,
        gpu=gpu,
        gpu_required=context.scenario.monitors.gpu.required,
        gate=gate,
    )


def _health(parts: AttemptParts, start_unix_ns: int, end_unix_ns: int) -> pa.Table:
    """The workers' own health while the load was under way: rows of records.schema.WORKER."""
    rows = parts.health().table
    at = rows["aligned_unix_ns"]
    return rows.filter(pc.and_(pc.greater_equal(at, start_unix_ns), pc.less_equal(at, end_unix_ns)))


def _flushed_groups(
    run: RunDirectory, span: LogSpan | None
) -> tuple[frozenset[int | None], frozenset[int | None]]:
    """Data-parallel groups that did the flush by their log, and those that did not."""
    return (frozenset(), frozenset()) if span is None else groups_by_flush(log_rows(run, span))
