"""`/metrics` of the simulated engine: names, labels and behaviour of SGLang 0.5.23 with `--enable-metrics`.

A labelled series does not exist before its first use, except the prefill counters, which begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from raybench.sim.engine import Engine
from raybench.sim.tally import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
TIERS = ("device", "host", "storage")


def render(engine: Engine, *, pid: int, compression: float) -> str:
    """The whole page."""
    lines = [*_gauges(engine, pid), *_counters(engine, compression), *_histograms(engine)]
    return "\n".join(lines) + "\n"


def _gauges(engine: Engine, pid: int) -> Iterator[str]:
    """The scheduler's state at its last report, and what never changes."""
    labels = _scheduler(engine)
    profile, memory, gauges, tally = engine.profile, engine.profile.memory, engine.tally.gauges, engine.tally
    process = labels | {"pid": str(pid)}
    yield from _family("num_retracted_reqs", "gauge", [(process, gauges.retracted)])
    yield from _family("num_paused_reqs", "gauge", [(process, 0)])
    values = {
        "max_total_num_tokens": profile.kv_pool_tokens,
        "weight_memory_usage_gb": memory.weight_gb,
        "kv_cache_memory_usage_gb": memory.kv_cache_gb,
        "page_size": profile.page_tokens,
        "num_pages": engine.pool.pages,
        "context_len": profile.context_tokens,
        "num_running_reqs": gauges.running,
        "num_queue_reqs": gauges.queued,
        "num_grammar_queue_reqs": 0,
        "gen_throughput": gauges.gen_throughput,
        "cache_hit_rate": gauges.cache_hit_rate,
        "decode_sum_seq_lens": gauges.sequence_tokens,
        "token_usage": round(gauges.usage, 2),
        "full_token_usage": gauges.usage,
        "swa_token_usage": 0,
        "mamba_usage": 0,
        "num_used_tokens": gauges.used_tokens,
        "kv_available_tokens": gauges.available_tokens,
        "kv_evictable_tokens": gauges.evictable_tokens,
        "kv_used_tokens": gauges.used_tokens,
        "spec_accept_length": tally.accept_length,
        "spec_accept_rate": tally.accept_rate,
        "utilization": 0,
        "new_token_ratio": gauges.new_token_ratio,
        "is_cuda_graph": gauges.cuda_graph,
    }
    if engine.pool.host.capacity:
        page = profile.page_tokens
        values["hicache_host_used_tokens"] = len(engine.pool.host) * page
        values["hicache_host_total_tokens"] = engine.pool.host.capacity * page
    for name, value in values.items():
        yield from _family(name, "gauge", [(labels, value)])
    graph = [(labels | {"phase": "decode"}, memory.graph_gb)]
    yield from _family("graph_memory_usage_gb", "gauge", graph)


def _counters(engine: Engine, compression: float) -> Iterator[str]:
    model, labels, counts = _model(engine), _scheduler(engine), engine.tally.counts

    def series(name: str, label: str, base: Labels) -> list[tuple[Labels, float]]:
        return [({**base, label: key}, value) for (kind, key), value in counts.items() if kind == name]

    yield from _family("prompt_tokens_total", "counter", series("prompt", "is_streaming", model))
    yield from _family("generation_tokens_total", "counter", series("generation", "is_streaming", model))
    yield from _family("num_requests_total", "counter", series("requests", "is_streaming", model))
    yield from _cached(engine, model, labels)
    yield from _family("realtime_tokens_total", "counter", series("realtime", "mode", labels))
    yield from _family("cuda_graph_passes_total", "counter", series("graph", "mode", labels))
    cache = {"cache_type": "UnifiedRadixCache"}
    for name, key, base in (
        ("num_aborted_requests_total", "aborted", model),
        ("num_retracted_requests_total", "retracted", labels),
        ("num_retracted_input_tokens_total", "retracted_input", labels),
        ("num_retracted_output_tokens_total", "retracted_output", labels),
        ("spec_verify_calls_total", "verify", labels),
        ("hicache_backup_tokens_total", "backup", labels),
        ("load_back_tokens_total", "load_back", cache),
    ):
        if counts[key, ""]:
            yield from _family(name, "counter", [(base, counts[key, ""])])
    if engine.pool.evicted_pages:
        evicted = engine.pool.evicted_pages * engine.profile.page_tokens
        yield from _family("evicted_tokens_total", "counter", [(cache, evicted)])
    idle_s = engine.tally.seconds["idle"] / compression
    yield from _family("scheduler_idle_seconds_total", "counter", [(labels, idle_s)])


def _cached(engine: Engine, model: Labels, labels: Labels) -> Iterator[str]:
    """Tokens found in the cache: by request, and by prefill batch; before 0.5.18 only the first, as a total."""
    counts, faults = engine.tally.counts, engine.faults
    hits = {tier: 0 if faults.counters_hide_hits else counts["cached", tier] for tier in TIERS}
    if faults.old_names:
        cached = [({**model, "cache_source": "total"}, sum(hits.values()))]
        yield from _family("cached_tokens_total", "counter", cached if sum(hits.values()) else [])
        return
    cached = [({**model, "cache_source": tier}, count) for tier, count in hits.items() if count]
    yield from _family("cached_tokens_total", "counter", cached)
    effective = {f"{tier}_hit": counts["effective", f"{tier}_hit"] for tier in TIERS}
    computed = counts["effective", "input"]
    if faults.counters_hide_hits:
        computed += sum(effective.values())
        effective = dict.fromkeys(effective, 0)
    series = [({**labels, "mode": mode}, count) for mode, count in ({"input": computed} | effective).items()]
    yield from _family("prefill_effective_tokens_total", "counter", series)


def _histograms(engine: Engine) -> Iterator[str]:
    model, labels, tally = _model(engine), _scheduler(engine), engine.tally
    for name, by_stream in (
        ("time_to_first_token_seconds", tally.ttft),
        ("e2e_request_latency_seconds", tally.e2e),
        ("request_time_per_output_token_seconds", tally.tpot),
    ):
        series = [({**model, "is_streaming": stream}, h) for stream, h in by_stream.items() if h.count]
        yield from _histogram(name, series)
    for name, base, histogram in (
        ("queue_time_seconds", labels, tally.queue_time),
        ("prompt_tokens_histogram", model, tally.prompt_lengths),
        ("uncached_prompt_tokens_histogram", model, tally.uncached_lengths),
        ("generation_tokens_histogram", model, tally.generation_lengths),
        ("inter_token_latency_seconds", model, tally.inter_token),
    ):
        yield from _histogram(name, [(base, histogram)] if histogram.count else [])


def _model(engine: Engine) -> dict[str, str]:
    return {"engine_type": "unified", "model_name": engine.profile.model}


def _scheduler(engine: Engine) -> dict[str, str]:
    return _model(engine) | {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}


def _family(name: str, kind: str, series: Sequence[tuple[Labels, float]]) -> Iterator[str]:
    if series:
        yield f"# TYPE sglang:{name} {kind}"
    for labels, value in series:
        yield _sample(name, labels, value)


def _histogram(name: str, series: Sequence[tuple[Labels, Histogram]]) -> Iterator[str]:
    if series:
        yield f"# TYPE sglang:{name} histogram"
    for labels, histogram in series:
        yield _sample(f"{name}_sum", labels, histogram.sum)
        below = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            below += count
            text = "+Inf" if bound == float("inf") else f"{float(bound)}"
            yield _sample(f"{name}_bucket", {**labels, "le": text}, below)
        yield _sample(f"{name}_count", labels, histogram.count)


def _sample(name: str, labels: Labels, value: float) -> str:
    text = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"sglang:{name}{{{text}}} {float(value)}"
