"""Files of `raybench monitor` taken into a run directory: GPU series of hosts outside the Ray cluster.

Nothing measured the distance of such a host's clock during the run. It is exact where the file was written in the
same boot as the run's journal; else it is what the user says, or the two wall clocks are taken to agree. Which of
these it was is kept in the part and told by every merge. The file itself is only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raybench.analysis.alignment import ClockReading, OffsetSource, align_monotonic, offset_text
from raybench.analysis.history import Line, read_history
from raybench.errors import RunDirectoryError
from raybench.records.clock import ClockAnchor, ClockOffset, same_boot_offset
from raybench.records.files import replacing
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory
from raybench.records.stream import END_OF_STREAM, Part, read_part

#: How far two hosts whose clocks are kept by NTP are taken to differ at most, when nobody says better.
ASSUMED_UNCERTAINTY_MS = 1000.0

NS_PER_MS = 1e6


@dataclass(frozen=True)
class TakenIn:
    """What became of one file. samples_in_loads: of those, taken while a load of the run was under way."""

    part: Path
    samples: int
    samples_in_loads: int
    offset: ClockOffset
    source: OffsetSource

    @property
    def told(self) -> str:
        counts = f"{self.samples} samples, {self.samples_in_loads} of them during loads"
        return f"{counts}; {offset_text(self.source, self.offset)}"


def take_in(
    run: RunDirectory, path: Path, *, offset_ms: float | None = None, uncertainty_ms: float | None = None
) -> TakenIn:
    """Put a monitor's file beside the run's own GPU parts; taken in again, it replaces its earlier copy.

    offset_ms: the monitor's wall clock minus the coordinator's. Raises RunDirectoryError for what is no such file.
    """
    run.require()
    part = read_part(path)
    anchor = part.anchor
    if part.metadata.get("schema") != "gpu" or anchor is None:
        raise RunDirectoryError(f"{path}: not a file of `raybench monitor`: it holds no GPU samples with a clock")
    journal = read_journal(run.journal)
    offset, source = _offset(journal, anchor, offset_ms, uncertainty_ms)
    metadata = {**part.metadata, **offset.to_metadata(), "offset_source": source}
    target = run.monitor_part(anchor.host, anchor.unix_ns)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as beside:
        beside.write_bytes(_stream(part, metadata))
    return TakenIn(target, part.table.num_rows, _in_loads(journal, part, anchor, offset), offset, source)


def _offset(
    journal: Sequence[Line], anchor: ClockAnchor, offset_ms: float | None, uncertainty_ms: float | None
) -> tuple[ClockOffset, OffsetSource]:
    width_ns = round((ASSUMED_UNCERTAINTY_MS if uncertainty_ms is None else uncertainty_ms) * NS_PER_MS)
    if offset_ms is not None:
        return ClockOffset(round(offset_ms * NS_PER_MS), width_ns), "given"
    for line in reversed(journal):
        if line["event"] == "run_started":
            own = ClockAnchor("", line.get("boot_id"), line["unix_ns"], line["monotonic_ns"])
            if (exact := same_boot_offset(anchor, own)) is not None:
                return exact, "same boot"
    return ClockOffset(0, width_ns), "assumed"


def _stream(part: Part, metadata: dict[str, str]) -> bytes:
    """The part's rows under new metadata; what was torn stays visibly torn."""
    schema = part.table.schema.with_metadata(metadata)
    table = part.table.replace_schema_metadata(metadata)
    batches = b"".join(batch.serialize().to_pybytes() for batch in table.to_batches())
    return bytes(schema.serialize()) + batches + (END_OF_STREAM if part.closed else b"")


def _in_loads(journal: Sequence[Line], part: Part, anchor: ClockAnchor, offset: ClockOffset) -> int:
    reading = ClockReading(anchor.unix_ns, offset.offset_ns, offset.uncertainty_ns)
    at = np.asarray(align_monotonic(part.table["sample_ns"], anchor, [reading]))
    loads = read_history(journal).load_times()
    return int(sum(((at >= start) & (at <= end)).sum() for start, end, _, _ in loads))
