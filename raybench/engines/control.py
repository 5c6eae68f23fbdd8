"""Control calls that several engines share. Runs in the coordinator and the server monitor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from raybench.engines.contract import Http, Reply
from raybench.engines.histogram import Histogram, LatencyName
from raybench.engines.loose_json import int_of, list_of, object_of, str_of
from raybench.engines.metrics import Metrics
from raybench.records.redact import redact

#: A server answers so for a path that it does not have.
UNKNOWN_PATH = (404, 405)


@dataclass(frozen=True)
class ModelCard:
    """First model of /v1/models."""

    model: str | None = None
    context_tokens: int | None = None
    raw: Mapping[str, object] = field(default_factory=dict)


async def model_card(http: Http) -> ModelCard:
    """The served model by its own list; all None when there is no such list."""
    reply = await http.request("GET", "/v1/models")
    models = list_of(object_of(reply.json()).get("data"))
    first = object_of(models[0]) if models else {}
    raw = {"v1_models": redact(reply.json())} if models else {}
    return ModelCard(str_of(first.get("id")), int_of(first.get("max_model_len")), raw)


async def ask_first(
    http: Http, *paths: str, method: Literal["GET", "POST"] = "GET", timeout_s: float = 10.0
) -> Reply:
    """The reply of the first path that the server has; endpoints get renamed (case O-P6)."""
    reply = Reply(None, error="no path was asked")
    for path in paths:
        reply = await http.request(method, path, timeout_s=timeout_s)
        if reply.status not in UNKNOWN_PATH:
            break
    return reply


async def read_metrics(http: Http, *families: str) -> Metrics | None:
    """One /metrics read; None when the server has none, or answers something else there.

    families: beginnings of the names to keep, as in `Metrics`.
    """
    reply = await http.request("GET", "/metrics")
    if not reply.ok:
        return None
    try:
        return Metrics(reply.body.decode("utf-8", "replace"), families=families)
    except ValueError:
        return None


async def read_latencies(http: Http, names: Mapping[LatencyName, str]) -> dict[str, Histogram]:
    """Latency histograms of one /metrics read; without those that the engine lacks, or has not observed yet.

    Empty as well when they cannot be read.
    """
    metrics = await read_metrics(http, *names.values())
    if metrics is None:
        return {}
    try:
        found = {name: _histogram(metrics, family) for name, family in names.items()}
    except (KeyError, ValueError):  # a bucket without a bound, or with one that is no number
        return {}
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


def instance_id(clues: Any) -> str:
    """Short id of one start of a server, from values that differ at each start."""
    data = orjson.dumps(clues, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(data).hexdigest()[:16]
