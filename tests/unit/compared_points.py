"""Points for tests of comparisons: rows of points.parquet from the few values that matter."""

from collections.abc import Mapping
from typing import Any

from raybench.analysis.comparison import Side
from raybench.analysis.points import POINTS


def point(arm: str = "x", workload: str = "16k-512", concurrency: int = 8, **values: object) -> dict[str, Any]:
    """An accepted, cold point; what is not given is not known."""
    row: dict[str, Any] = dict.fromkeys(POINTS.names)
    row |= {
        "point_id": f"{arm}/{workload}/c{concurrency}",
        "arm": arm,
        "workload": workload,
        "concurrency": concurrency,
        "input_tokens": 16384,
        "output_tokens": 512,
        "verdict": "accepted",
        "reasons": [],
        "hit_rates": {"requests": 0.0},
        "gpus": [],
    }
    return row | values


def side(*points: Mapping[str, Any], name: str = "A") -> Side:
    """A single run."""
    return Side(name, (points,))
