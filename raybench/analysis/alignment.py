"""One time line for all hosts: stamps of a host's monotonic clock -> the coordinator's wall clock.

A part carries its writer's anchor (a pair of wall and monotonic time read together), so that its
stamps do not follow a step of the writer's wall clock. How far that clock is from the coordinator's
is measured at the start and the end of each attempt; between two measurements the offset is
interpolated, outside of them the nearest holds, and a step between them is taken out again. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from raybench.analysis.stats import Stamps
from raybench.records.clock import ClockAnchor, ClockOffset, enclose_offsets

#: How the offset of a monitor outside the cluster is known, as its part says under `offset_source`.
OffsetSource = Literal["same boot", "given", "assumed"]

#: The fastest that a clock is slewed or drifts (NTP's own limit), in parts per million.
DRIFT_MAX_PPM = 500

#: Differences below this are never called a step.
STEP_MIN_NS = 1_000_000


@dataclass(frozen=True, order=True)
class ClockReading:
    """One measured offset: at `at_unix_ns` of the coordinator the other clock was `offset_ns` ahead.

    wall_ahead_ns: as in `records.clock.ClockOffset`.
    """

    at_unix_ns: int
    offset_ns: int
    uncertainty_ns: int
    wall_ahead_ns: int = 0


def jump_ns(before: ClockReading, after: ClockReading) -> int:
    """How far the other clock moved against the coordinator's, where no drift explains it; else 0."""
    moved_ns = after.offset_ns - before.offset_ns
    drift_ns = (after.at_unix_ns - before.at_unix_ns) * DRIFT_MAX_PPM // 1_000_000 + STEP_MIN_NS
    return moved_ns if abs(moved_ns) > drift_ns + after.uncertainty_ns + before.uncertainty_ns else 0


def without_steps(readings: Sequence[ClockReading]) -> list[ClockReading]:
    """The readings in order of time, as if the other clock had never been set.

    Two readings that differ by more than a clock can drift have a step between them. Stamps that
    hang on an anchor from before the step know nothing of it.
    """
    kept: list[ClockReading] = []
    stepped_ns, last = 0, None
    for reading in sorted(readings):
        if last is not None:
            stepped_ns += jump_ns(last, reading)
        kept.append(replace(reading, offset_ns=reading.offset_ns - stepped_ns))
        last = reading
    return kept


def align(local_unix_ns: Stamps, readings: Sequence[ClockReading]) -> Stamps:
    """Another host's unix stamps on the coordinator's clock; unchanged where nothing was measured."""
    if not readings:
        return local_unix_ns
    ordered = without_steps(readings)
    base = ordered[0].at_unix_ns  # differences of unix stamps are exact in float64, the stamps are not
    measured_at = [float(r.at_unix_ns + r.offset_ns - base) for r in ordered]
    offsets = [float(r.offset_ns) for r in ordered]
    shift = np.interp((local_unix_ns - base).astype(np.float64), measured_at, offsets)
    return local_unix_ns - np.rint(shift).astype(np.int64)


def align_monotonic(stamps: pa.ChunkedArray, anchor: ClockAnchor, readings: Sequence[ClockReading]) -> pa.Array:
    """Monotonic stamps of the anchor's host on the coordinator's wall clock; null stays null."""
    unknown = np.asarray(stamps.is_null())
    local = np.asarray(stamps.fill_null(anchor.monotonic_ns), dtype=np.int64)
    unix = align(local - anchor.monotonic_ns + anchor.unix_ns, readings)
    return pa.array(unix, mask=unknown)


def uncertainty_ns(readings: Sequence[ClockReading]) -> int:
    """How well a clock is known over the time of its readings (at least one), with all that it moved by."""
    return enclose_offsets(ClockOffset(each.offset_ns, each.uncertainty_ns) for each in readings).uncertainty_ns


def offset_text(source: str, offset: ClockOffset) -> str:
    """How the clock of a part that was taken in was brought to the coordinator's; `source` is an OffsetSource."""
    how = {"same boot": "known exactly (same boot)", "given": "given by hand", "assumed": "assumed, not measured"}
    width = f" +- {offset.uncertainty_ns / 1e6:g} ms" if source != "same boot" else ""
    return f"its clock's offset is {how[source]}: {offset.offset_ns / 1e6:+.1f} ms{width}"
