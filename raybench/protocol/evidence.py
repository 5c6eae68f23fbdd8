"""An attempt's records as they stand on disk: what is judged is what is kept. Runs in the coordinator."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.alignment import ClockReading, align_monotonic
from raybench.errors import RunDirectoryError
from raybench.records.clock import ClockOffset
from raybench.records.rundir import RunDirectory
from raybench.records.schema import REQUESTS
from raybench.records.stream import Part, read_part, unify

ALIGNED = ("sent", "end")


def load_requests(run: RunDirectory, point_id: str, attempt: int) -> tuple[pa.Table, tuple[str, ...]]:
    """The load rows of all workers, and the names of parts that were not closed.

    `sent_unix_ns` and `end_unix_ns` are on the coordinator's clock, by each part's anchor and offset.
    """
    tables, torn = [], []
    for path in run.parts_of(point_id, attempt):
        part = read_part(path)
        if not part.closed:
            torn.append(path.name)
        if part.table.num_columns:
            tables.append(_aligned(part))
    schema = REQUESTS
    for name in ALIGNED:
        schema = schema.append(pa.field(f"{name}_unix_ns", pa.int64()))
    rows = unify(tables, schema) if tables else schema.empty_table()
    return rows.filter(pc.equal(rows["phase"], "load")), tuple(torn)


def _aligned(part: Part) -> pa.Table:
    anchor, offset = part.anchor, ClockOffset.from_metadata(part.metadata)
    if anchor is None or offset is None:
        raise RunDirectoryError(f"{part.path}: carries no clock anchor or no offset")
    reading = ClockReading(anchor.unix_ns, offset.offset_ns, offset.uncertainty_ns)
    table = part.table
    for name in ALIGNED:
        table = table.append_column(f"{name}_unix_ns", align_monotonic(table[f"{name}_ns"], anchor, [reading]))
    return table
