"""An attempt's records as they stand on disk: what is judged is what is kept. Runs in the coordinator."""

from __future__ import annotations

import pyarrow as pa

from raybench.analysis.history import read_history
from raybench.analysis.metrics import of_load
from raybench.analysis.parts import requests_of
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory


def load_requests(run: RunDirectory, point_id: str, attempt: int) -> tuple[pa.Table, tuple[str, ...]]:
    """The load rows of all workers, and what is wrong with their parts (one that was not closed, say).

    `sent_unix_ns` and `end_unix_ns` are on the coordinator's clock, as the merge will have them.
    """
    gathered = requests_of(run, point_id, attempt, read_history(read_journal(run.journal)))
    return of_load(gathered.table), gathered.warnings
