"""An attempt's records as they stand on disk: what is judged is what is kept. Runs in the coordinator."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.history import History, read_history
from raybench.analysis.metrics import of_load
from raybench.analysis.parts import requests_of, worker_health_of
from raybench.analysis.points import struck_if_damaged
from raybench.records.journal import Journal, read_journal
from raybench.records.rundir import RunDirectory


def history_of(run: RunDirectory) -> History:
    """What the journal tells so far; it grows with the run, so it is read once an attempt."""
    return read_history(read_journal(run.journal))


def load_requests(
    run: RunDirectory, point_id: str, attempt: int, history: History
) -> tuple[pa.Table, tuple[str, ...]]:
    """The load rows of all workers, and what is wrong with their parts (one that was not closed, say).

    `sent_unix_ns` and `end_unix_ns` are on the coordinator's clock, as the merge will have them.
    """
    gathered = requests_of(run, point_id, attempt, history)
    return of_load(gathered.table), gathered.warnings


def strike_damaged(run: RunDirectory, journal: Journal) -> None:
    """Commit accepted points whose records are not whole any more as void, so that a resumed run measures them
    again. To be called before the journal is read for the resume."""
    history = history_of(run)
    for point_id, point in history.points.items():
        if point.verdict != "accepted" or point.final_attempt is None:
            continue
        row = {"verdict": point.verdict}
        warnings = requests_of(run, point_id, point.final_attempt, history).warnings
        if struck := struck_if_damaged(row, warnings):
            journal.append("point_committed", point_id=point_id, attempt=point.final_attempt, **struck)


def load_health(
    run: RunDirectory, point_id: str, attempt: int, history: History, start_unix_ns: int, end_unix_ns: int
) -> pa.Table:
    """The workers' own health while the load was under way: rows of records.schema.WORKER."""
    rows = worker_health_of(run, point_id, attempt, history).table
    at = rows["aligned_unix_ns"]
    return rows.filter(pc.and_(pc.greater_equal(at, start_unix_ns), pc.less_equal(at, end_unix_ns)))
