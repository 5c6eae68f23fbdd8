"""Statistics of a sample: the one percentile that every table and file of raybench uses, and what samples are.

Pure functions; they run wherever records are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Stamps = npt.NDArray[np.int64]
Values = Sequence[float] | Floats | Stamps

#: Named in every report beside the percentiles.
PERCENTILE_METHOD = "nearest rank"


def nearest_rank(values: Values, percent: int) -> float | None:
    """The `ceil(percent * n / 100)`-th smallest value, at least the first; None for an empty sample.

    The rank is integer arithmetic, so the answer is always a value that was seen and never hangs on
    the rounding of `0.95 * n`. For n < 20 the 95th percentile is the maximum.
    Raises ValueError when percent is not in 1..100.
    """
    if not 1 <= percent <= 100:
        raise ValueError(f"percent must be in 1..100, got {percent}")
    sample = np.asarray(values)
    if sample.size == 0:
        return None
    assert not np.isnan(sample).any(), "unknown values must be left out of a sample"
    index = max(-(-percent * sample.size // 100), 1) - 1
    value: float = np.partition(sample, index)[index].item()
    return value


def mean(values: Values) -> float | None:
    """Arithmetic mean; None for an empty sample."""
    return float(np.mean(values)) if len(values) else None


#: What is told of a sample, as the ends of its columns: `ttft_ms_mean`, `ttft_ms_p50`, ... `ttft_ms_n`.
SUMMARY_PARTS = ("mean", "p50", "p95", "p99", "max", "n")


def summary_row(name: str, values: Values) -> dict[str, float | int | None]:
    """Mean, nearest-rank percentiles, maximum and size of a sample; all but the size are None when it is empty."""
    ranks = (nearest_rank(values, percent) for percent in (50, 95, 99, 100))
    told = (mean(values), *ranks, len(values))
    return {f"{name}_{part}": value for part, value in zip(SUMMARY_PARTS, told, strict=True)}
