"""Prometheus text, as engines expose it on /metrics: one number from the series of all ranks.

Runs where the procedure and the server monitor read counters. A name that is missing is None, never
zero. Names are compared whole, so `_created` stamps never count (case O-P6).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

#: Labels of ranks that all report the same batch. Ranks of `dp_rank` and `engine` each have their own.
_TWIN_LABELS = ("pp_rank", "tp_rank", "moe_ep_rank", "pid")

Labels = Mapping[str, str]


class Metrics:
    """The samples of one scrape. Raises ValueError when the text is not Prometheus text.

    families: beginnings of the names to keep, with their buckets. Without them all is kept but buckets, which
    are nine tenths of the text.
    """

    def __init__(self, text: str, *, families: tuple[str, ...] = ()) -> None:
        self._series: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        lines: Iterable[str] = (line for line in text.split("\n") if "_bucket{" not in line)
        if families:
            lines = (line for line in text.split("\n") if line.startswith(families))
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                self._series[sample.name].append((sample.labels, float(sample.value)))

    def has_prefix(self, prefix: str) -> bool:
        """Is there any series of this engine, `sglang:` for example?"""
        return any(name.startswith(prefix) for name in self._series)

    def series(self, name: str, **labels: str) -> list[tuple[Labels, float]]:
        """Series with these labels. Of twins (pipeline and tensor ranks) only the lowest rank's."""
        lowest: dict[frozenset[tuple[str, str]], tuple[tuple[int, ...], Labels, float]] = {}
        for own, value in self._series.get(name, ()):
            if math.isnan(value) or any(own.get(key) != wanted for key, wanted in labels.items()):
                continue
            group = frozenset((key, text) for key, text in own.items() if key not in _TWIN_LABELS)
            rank = tuple(_rank(own.get(key)) for key in _TWIN_LABELS)
            if group not in lowest or rank < lowest[group][0]:
                lowest[group] = (rank, own, value)
        return [(own, value) for _, own, value in lowest.values()]

    def total(self, name: str, **labels: str) -> float | None:
        """Sum over ranks and over labels that are not asked for."""
        values = [value for _, value in self.series(name, **labels)]
        return sum(values) if values else None

    def highest(self, name: str) -> float | None:
        """The largest value, for shares that do not add up over ranks."""
        return max((value for _, value in self.series(name)), default=None)


def _rank(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
