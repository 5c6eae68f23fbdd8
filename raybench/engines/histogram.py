"""A latency histogram as engines keep it of themselves, for a comparison with what the client saw. Pure.

Made where the procedure reads counters, kept in the journal, read by the analysis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

#: ttft, e2e, queue: one observation a request. tpot: one a request of more than one token, (e2e - ttft) / (n - 1).
#: itl: one a token behind the first.
LatencyName = Literal["ttft", "e2e", "tpot", "itl", "queue"]


@dataclass(frozen=True)
class Histogram:
    """Seconds. buckets: (finite upper bound, observations up to it), ascending; `count` has the rest too."""

    count: float
    sum_s: float
    buckets: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """From the journal, where `vars()` of one stands."""
        buckets = tuple((float(bound), float(up_to)) for bound, up_to in record["buckets"])
        return cls(record["count"], record["sum_s"], buckets)

    def plus(self, other: Histogram) -> Histogram:
        """Of two servers together; without buckets where theirs differ."""
        same = [bound for bound, _ in self.buckets] == [bound for bound, _ in other.buckets]
        pairs = zip(self.buckets, other.buckets, strict=True) if same else ()
        return Histogram(
            self.count + other.count,
            self.sum_s + other.sum_s,
            tuple((bound, own + its) for (bound, own), (_, its) in pairs),
        )

    def since(self, before: Histogram | None) -> Histogram:
        """What came after `before`; None = nothing had been observed then, and there was no such series."""
        if before is None:
            return self
        earlier = dict(before.buckets)
        return Histogram(
            self.count - before.count,
            self.sum_s - before.sum_s,
            tuple((bound, up_to - earlier.get(bound, 0.0)) for bound, up_to in self.buckets),
        )

    @property
    def mean_s(self) -> float | None:
        return self.sum_s / self.count if self.count > 0 else None

    def bounds_s(self, percent: int) -> tuple[float, float | None] | None:
        """The bucket that holds the nearest-rank percentile: (above, up to); up to None = without end.

        None when nothing was observed or there are no buckets.
        """
        if self.count <= 0 or not self.buckets:
            return None
        rank = max(-(-percent * round(self.count) // 100), 1)
        above = 0.0
        for bound, up_to in self.buckets:
            if up_to >= rank:
                return above, bound
            above = bound
        return above, None
