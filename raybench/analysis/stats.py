"""Statistics of a sample: the one percentile that every table and file of raybench uses, and what samples are.

Pure functions; they run wherever records are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Summary:
    """What is told of a sample. Every field but `n` is None when the sample is empty."""

    n: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None

    def columns(self, name: str) -> dict[str, float | int | None]:
        """The summary as columns `<name>_mean`, `<name>_p50`, ... `<name>_n`."""
        return {f"{name}_{part}": getattr(self, part) for part in SUMMARY_PARTS}


SUMMARY_PARTS = ("mean", "p50", "p95", "p99", "max", "n")


def summarise(values: Values) -> Summary:
    """Mean, nearest-rank percentiles, maximum and size of a sample."""
    return Summary(
        n=len(values),
        mean=mean(values),
        p50=nearest_rank(values, 50),
        p95=nearest_rank(values, 95),
        p99=nearest_rank(values, 99),
        max=nearest_rank(values, 100),
    )
