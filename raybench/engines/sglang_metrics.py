"""SGLang's /metrics (served with --enable-metrics): which series mean what, in which version.

Pure. A labelled series of SGLang does not exist before its first use, so a counter that this server
is known to have and that is missing is 0; one that its version may lack is None.
"""

from __future__ import annotations

from raybench.engines.contract import Counters, Gauges, QueueState
from raybench.engines.metrics import Metrics

_EFFECTIVE = "sglang:prefill_effective_tokens_total"
_HIT_MODES = ("device_hit", "host_hit", "storage_hit")


def is_sglang(metrics: Metrics) -> bool:
    return metrics.has_prefix("sglang:")


def counters(metrics: Metrics) -> Counters:
    """Counters since the server's start; those by request move when a request finishes."""
    input_tokens = _used(metrics, "sglang:prompt_tokens_total")
    cached_tokens = _cached_tokens(metrics)
    queried, hits = _prefill_effective(metrics)
    if queried is None:
        # Before 0.5.18: first admissions of finished requests, so retractions are left out as well.
        queried, hits = input_tokens, cached_tokens
    return Counters(
        requests=_used(metrics, "sglang:num_requests_total"),
        input_tokens=input_tokens,
        output_tokens=_used(metrics, "sglang:generation_tokens_total"),
        cached_tokens=cached_tokens,
        prefix_queried_tokens=queried,
        prefix_hit_tokens=hits,
        preemptions=_retractions(metrics),
    )


def gauges(metrics: Metrics) -> Gauges:
    """Sums over data-parallel ranks, but the share of the fullest rank."""
    kv_used = metrics.total("sglang:kv_used_tokens")
    accept_length = metrics.highest("sglang:spec_accept_length")
    return Gauges(
        running_requests=metrics.total("sglang:num_running_reqs"),
        queued_requests=metrics.total("sglang:num_queue_reqs"),
        kv_used_tokens=metrics.total("sglang:num_used_tokens") if kv_used is None else kv_used,
        kv_usage=metrics.highest("sglang:token_usage"),
        output_tokens_per_s=metrics.total("sglang:gen_throughput"),
        # 0 stands for "no speculation": a verify step yields one token at least.
        accept_length=accept_length or None,
    )


def queue_state(metrics: Metrics) -> QueueState | None:
    """From gauges that are refreshed on prefill, every 40 decode steps and on going idle."""
    running, queued = metrics.total("sglang:num_running_reqs"), metrics.total("sglang:num_queue_reqs")
    if running is None or queued is None:
        return None
    grammar = metrics.total("sglang:num_grammar_queue_reqs") or 0
    return QueueState(running=int(running), queued=int(queued + grammar))


def _used(metrics: Metrics, name: str) -> float:
    """A counter of all versions: missing means never used."""
    return metrics.total(name) or 0.0


def _cached_tokens(metrics: Metrics) -> float:
    # Up to 0.5.9 one source `total`, later one source per tier.
    name = "sglang:cached_tokens_total"
    total = metrics.total(name, cache_source="total")
    return _used(metrics, name) if total is None else total


def _prefill_effective(metrics: Metrics) -> tuple[float | None, float | None]:
    """Tokens looked up and tokens found, from 0.5.18 on; all modes exist from the start."""
    computed = metrics.total(_EFFECTIVE, mode="input")
    if computed is None:
        return None, None
    hits = sum(metrics.total(_EFFECTIVE, mode=mode) or 0.0 for mode in _HIT_MODES)
    return computed + hits, hits


def _retractions(metrics: Metrics) -> float | None:
    total = metrics.total("sglang:num_retracted_requests_total")
    if total is not None:
        return total
    # 0.5.9 has a histogram beside the counter. Versions with the kv_* gauges have the counter.
    by_request = metrics.total("sglang:num_retractions_sum")
    if by_request is not None:
        return by_request
    return 0.0 if metrics.total("sglang:kv_used_tokens") is not None else None
