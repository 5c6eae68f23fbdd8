"""GPU memory of requests and points, from the samples of the GPU monitors. Pure.

The headline "in use" is total - free, and the headroom is free: both are the same whatever a
driver's `used` includes (case O-G2). Bytes throughout; NaN inside and null outside mean "not known".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.stats import Floats, Stamps

#: A sample speaks for at most this many sampling intervals after it was taken.
FRESH_INTERVALS = 3


def in_use_bytes(samples: pa.Table) -> pa.ChunkedArray:
    """Memory in use: total - free. Null where either is not known."""
    return pc.subtract(samples["memory_total_bytes"], samples["memory_free_bytes"])


@dataclass(frozen=True)
class Usage:
    """Memory of one GPU in some spans of time, one value a span; NaN = no sample speaks for it."""

    peak: Floats
    mean: Floats
    headroom_min: Floats
    samples: Stamps


class GpuSeries:
    """The known samples of one GPU, in order of time, ready for questions about spans of time."""

    def __init__(self, host: str, gpu_uuid: str, samples: pa.Table) -> None:
        """samples: rows of this GPU with `aligned_unix_ns` and `memory_in_use_bytes`, both known."""
        samples = samples.sort_by("aligned_unix_ns")
        self.host = host
        self.gpu_uuid = gpu_uuid
        self.gpu_index: int | None = samples["gpu_index"][-1].as_py()
        self.total_bytes: int | None = samples["memory_total_bytes"][-1].as_py()
        self.at_ns: Stamps = samples["aligned_unix_ns"].to_numpy()
        self._in_use: Floats = samples["memory_in_use_bytes"].to_numpy().astype(np.float64)
        self._free: Floats = samples["memory_free_bytes"].to_numpy().astype(np.float64)
        self._peaks = _levels(self._in_use)
        self._troughs = _levels(-self._free)
        self._sums = np.concatenate([[0.0], np.cumsum(self._in_use)])
        intervals = np.diff(self.at_ns)
        self.fresh_ns = int(FRESH_INTERVALS * np.median(intervals)) if intervals.size else 0

    def usage(self, start_ns: Stamps, end_ns: Stamps) -> Usage:
        """Peak, mean and smallest headroom over [start, end], for each of many spans.

        A span between two samples takes the one before it, unless that one is no longer fresh.
        """
        low = np.searchsorted(self.at_ns, start_ns, side="left")
        high = np.searchsorted(self.at_ns, end_ns, side="right")
        before = np.maximum(low - 1, 0)
        borrows = (low >= high) & (low > 0) & (start_ns - self.at_ns[before] <= self.fresh_ns)
        low = np.where(borrows, before, low)
        count = np.maximum(np.where(borrows, low + 1, high) - low, 0)
        none = count == 0
        low, width = np.where(none, 0, low), np.maximum(count, 1)
        return Usage(
            peak=np.where(none, np.nan, _highest(self._peaks, low, width)),
            mean=np.where(none, np.nan, (self._sums[low + width] - self._sums[low]) / width),
            headroom_min=np.where(none, np.nan, -_highest(self._troughs, low, width)),
            samples=count,
        )

    def smallest_in_use(self, start_ns: int, end_ns: int) -> float:
        """The least memory in use of any sample within [start, end]; NaN without one."""
        inside = self._in_use[self._within(start_ns, end_ns)]
        return float(inside.min()) if inside.size else float("nan")

    def has_samples(self, start_ns: int, end_ns: int) -> bool:
        """Whether this GPU was watched at any moment within [start, end]."""
        return bool(self._within(start_ns, end_ns).any())

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Whether no part of the span is longer than a sample stays fresh without a sample."""
        inside = self.at_ns[self._within(start_ns, end_ns)]
        longest = np.diff(np.concatenate([[start_ns], inside, [end_ns]])).max()
        near = self.has_samples(start_ns - self.fresh_ns, end_ns + self.fresh_ns)
        return near and bool(longest <= self.fresh_ns)

    def _within(self, start_ns: int, end_ns: int) -> npt.NDArray[np.bool_]:
        within: npt.NDArray[np.bool_] = (self.at_ns >= start_ns) & (self.at_ns <= end_ns)
        return within


def _levels(values: Floats) -> list[Floats]:
    """Sparse table: `levels[k][i]` is the maximum of the 2**k values from i on."""
    levels = [values]
    while (half := 1 << (len(levels) - 1)) * 2 <= values.size:
        levels.append(np.maximum(levels[-1][:-half], levels[-1][half:]))
    return levels


def _highest(levels: list[Floats], low: Stamps, width: Stamps) -> Floats:
    """The maximum of `width` values from `low` on, for many ranges, each at least one wide."""
    result = np.full(low.shape, np.nan)
    power = np.frexp(width.astype(np.float64))[1] - 1
    for k in np.unique(power):
        of_k = power == k
        first, last = low[of_k], low[of_k] + width[of_k] - (1 << int(k))
        result[of_k] = np.maximum(levels[k][first], levels[k][last])
    return result


def gpu_series(samples: pa.Table) -> list[GpuSeries]:
    """One series a GPU (host and UUID), in order of host and index; a GPU of unknown memory has none."""
    known = samples.filter(
        pc.and_(pc.is_valid(samples["aligned_unix_ns"]), pc.is_valid(samples["memory_in_use_bytes"]))
    )
    series = []
    for key in known.group_by(["host", "gpu_uuid"]).aggregate([]).to_pylist():
        of_gpu = pc.and_(pc.equal(known["host"], key["host"]), pc.equal(known["gpu_uuid"], key["gpu_uuid"]))
        series.append(GpuSeries(key["host"], key["gpu_uuid"], known.filter(of_gpu)))
    return sorted(series, key=lambda s: (s.host, s.gpu_index is None, s.gpu_index or 0, s.gpu_uuid))


def over_all_gpus(series: Sequence[GpuSeries], start_ns: Stamps, end_ns: Stamps) -> Usage:
    """For each span: the highest peak of any GPU, the mean over GPUs and samples, the least headroom."""
    unknown = np.full(start_ns.shape, np.nan)
    peak, headroom, total = unknown, unknown, np.zeros(start_ns.shape)
    count = np.zeros(start_ns.shape, dtype=np.int64)
    for gpu in series:
        usage = gpu.usage(start_ns, end_ns)
        peak, headroom = np.fmax(peak, usage.peak), np.fmin(headroom, usage.headroom_min)
        total = total + np.nan_to_num(usage.mean) * usage.samples
        count = count + usage.samples
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return Usage(peak=peak, mean=mean, headroom_min=headroom, samples=count)


def whole_bytes(values: Floats) -> pa.Array:
    """Bytes as int64; NaN becomes null."""
    unknown = np.isnan(values)
    return pa.array(np.where(unknown, 0, np.rint(values)).astype(np.int64), mask=unknown)
