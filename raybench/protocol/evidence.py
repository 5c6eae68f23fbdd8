"""An attempt's records as they stand on disk: what is judged is what is kept. Runs in the coordinator."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.client_load import NodeLoad, node_loads
from raybench.analysis.history import History, read_history
from raybench.analysis.metrics import of_load
from raybench.analysis.parts import requests_of, worker_health_of
from raybench.analysis.server_log import LogSpan, PrefillLog, groups_by_flush, log_rows, prefill_log
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory


def history_of(run: RunDirectory) -> History:
    """What the journal tells so far; it grows with the run, so it is read once an attempt."""
    return read_history(read_journal(run.journal))


def load_requests(
    run: RunDirectory, point_id: str, attempt: int, history: History
) -> tuple[pa.Table, tuple[str, ...], dict[str, NodeLoad]]:
    """The load rows of all workers, what is wrong with their parts (one that was not closed, say), and what
    each client host carried.

    `sent_unix_ns` and `end_unix_ns` are on the coordinator's clock, as the merge will have them. Without the
    lists of chunks, which no check reads: with them a million requests would be gigabytes in the coordinator.
    """
    gathered = requests_of(run, point_id, attempt, history, chunks=False)
    rows = of_load(gathered.table)
    return rows, gathered.warnings, node_loads(rows, gathered.writers)


def load_health(
    run: RunDirectory, point_id: str, attempt: int, history: History, start_unix_ns: int, end_unix_ns: int
) -> pa.Table:
    """The workers' own health while the load was under way: rows of records.schema.WORKER."""
    rows = worker_health_of(run, point_id, attempt, history).table
    at = rows["aligned_unix_ns"]
    return rows.filter(pc.and_(pc.greater_equal(at, start_unix_ns), pc.less_equal(at, end_unix_ns)))


def load_log(run: RunDirectory, span: LogSpan | None) -> PrefillLog | None:
    """What the engine's own log told over the load."""
    return None if span is None else prefill_log(log_rows(run, span))


def flushed_groups(run: RunDirectory, span: LogSpan | None) -> tuple[frozenset[int | None], frozenset[int | None]]:
    """Data-parallel groups that did the flush by their log, and those that did not."""
    return (frozenset(), frozenset()) if span is None else groups_by_flush(log_rows(run, span))
