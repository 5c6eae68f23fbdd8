"""Goodput: the rate of requests that meet an SLO, each by itself, with an interval. Pure.

A point's percentiles say whether the SLO holds for the point; goodput counts the requests for which it holds.
The formulas are in docs/METRICS.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis import metrics
from raybench.analysis.intervals import share_interval


@dataclass(frozen=True)
class Goodput:
    """Of n requests of a load, `good` met every limit. Rates are per second of the point's wall.

    The bounds are those of a 95 % interval of the share, times the rate of all requests; None for few requests.
    """

    n: int
    good: int
    requests_per_s: float | None
    requests_per_s_low: float | None
    requests_per_s_high: float | None
    output_tokens_per_s: float | None


def goodput(requests: pa.Table, limits: Mapping[str, float]) -> Goodput:
    """limits: the highest value of each of `metrics.LATENCIES` that a good request may have, by name.

    A failed request is not good, and neither is one whose value is not known. Rows of the prewarm are left out.
    """
    load = metrics.of_load(requests)
    met = metrics.succeeded(load)
    for name, limit in limits.items():
        within = pc.less_equal(metrics.LATENCIES[name](load), limit)
        met = pc.and_(met, pc.fill_null(within, False))
    of_good = load.filter(met)
    n, good, wall_s = load.num_rows, of_good.num_rows, metrics.wall_s(load)
    share = share_interval(good, n)
    return Goodput(
        n=n,
        good=good,
        requests_per_s=metrics.rate_per_s(good, wall_s),
        requests_per_s_low=metrics.rate_per_s(None if share is None else share.low * n, wall_s),
        requests_per_s_high=metrics.rate_per_s(None if share is None else share.high * n, wall_s),
        output_tokens_per_s=metrics.rate_per_s(metrics.output_tokens(of_good), wall_s),
    )
