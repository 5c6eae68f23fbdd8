"""An attempt's records as they stand on disk: what is judged is what is kept. Runs in the coordinator."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.client_load import NodeLoad, node_loads
from raybench.analysis.history import History, read_history
from raybench.analysis.metrics import of_load
from raybench.analysis.parts import AttemptParts
from raybench.analysis.points import struck_if_damaged
from raybench.analysis.server_log import LogSpan, groups_by_flush, log_rows, prefill_log
from raybench.engines.contract import Engine
from raybench.protocol.checks import Evidence
from raybench.protocol.gpu_checks import GpuState
from raybench.protocol.procedure import Attempt, Observed
from raybench.records.journal import Journal, read_journal
from raybench.records.roofline import Roofline
from raybench.records.rundir import RunDirectory


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
    run: RunDirectory,
    attempt: Attempt,
    observed: Observed,
    engine: Engine,
    rooflines: Mapping[str, Roofline],
    gpu: GpuState,
    *,
    gpu_required: bool,
    gate_failure: str | None,
) -> Evidence:
    """The records as they are on disk, and what the steps saw. Blocks."""
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
        rooflines=rooflines,
        clocks=history.attempt_clocks(point_id, attempt.number),
        link_changes=observed.link_changes,
        gpu=gpu,
        gpu_required=gpu_required,
        gate_failure=gate_failure,
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
