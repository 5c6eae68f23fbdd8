"""Reads the latency histograms of an engine's /metrics. Runs where the procedure reads counters.

Buckets are nine tenths of such a page, so only those of the latencies asked for are parsed.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybench.engines.contract import Http
from raybench.engines.histogram import Histogram, LatencyName
from raybench.engines.metrics import Metrics


async def read_latencies(http: Http, names: Mapping[LatencyName, str]) -> dict[str, Histogram]:
    """One /metrics read; without those that the engine does not have, or has not observed yet."""
    reply = await http.request("GET", "/metrics")
    if not reply.ok:
        return {}
    try:
        metrics = Metrics(reply.body.decode("utf-8", "replace"), families=tuple(names.values()))
    except ValueError:
        return {}
    found = {name: _histogram(metrics, family) for name, family in names.items()}
    return {name: histogram for name, histogram in found.items() if histogram is not None}


def _histogram(metrics: Metrics, family: str) -> Histogram | None:
    count, sum_s = metrics.total(f"{family}_count"), metrics.total(f"{family}_sum")
    if count is None or sum_s is None:
        return None
    texts = {labels["le"] for labels, _ in metrics.series(f"{family}_bucket")} - {"+Inf"}
    buckets = (
        (float(text), metrics.total(f"{family}_bucket", le=text) or 0.0) for text in sorted(texts, key=float)
    )
    return Histogram(count, sum_s, tuple(buckets))
