"""`/metrics` of the simulated engine: names, labels and behaviour of SGLang 0.5.23 with `--enable-metrics`.

A labelled series does not exist before its first use, except the prefill counters, which begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from raybench.sim.engine import Engine
from raybench.sim.metric_names import FAMILIES
from raybench.sim.tally import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
#: name -> its series.
Families = dict[str, list[tuple[Labels, float | Histogram]]]
TIERS = ("device", "host", "storage")
#: How SGLang names the tier of a storage backend in `cached_tokens_total`, with the backend `file`.
STORAGE_SOURCE = "storage_HiCacheFile"
#: Gauges of features that the simulated engine has not: there from the start, and never moved.
UNUSED = (
    *("swa_token_usage", "swa_available_tokens", "swa_evictable_tokens", "swa_used_tokens"),
    *("mamba_usage", "mamba_available_tokens", "mamba_evictable_tokens", "mamba_used_tokens"),
    *("spec_cap_length", "spec_block_accept_length", "num_grammar_queue_reqs", "utilization"),
    *("num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs", "num_decode_prealloc_queue_reqs"),
    *("num_decode_transfer_queue_reqs", "num_decode_host_receive_queue_reqs"),
    *("num_decode_deferred_kv_release_reqs", "pending_prealloc_token_usage", "prealloc_full_token_usage"),
    *("prealloc_swa_token_usage", "num_unique_running_routing_keys"),
)
#: Counters and histograms with the labels of the scheduler; the others have those of the model.
OF_SCHEDULER = {
    *("realtime_tokens_total", "cuda_graph_passes_total", "spec_verify_calls_total", "queue_time_seconds"),
    *("num_retracted_requests_total", "num_retracted_input_tokens_total", "num_retracted_output_tokens_total"),
    "hicache_backup_tokens_total",
}
#: Those whose series are told apart by `mode`; the others by `is_streaming`, if by anything.
OF_MODES = {"realtime_tokens_total", "cuda_graph_passes_total"}
#: Counters of cache hits, which faults may hide or rename.
HITS = {"cached_tokens_total", "prefill_effective_tokens_total"}


def render(engine: Engine, pid: int) -> str:
    """The whole page. A family without series is left out, its type and text with it."""
    found = _gauges(engine, pid) | _counted(engine)
    lines = []
    for name, (kind, text) in FAMILIES.items():
        if series := found.pop(name, None):
            lines += [f"# HELP sglang:{name} {text}"] if text else []
            lines += [f"# TYPE sglang:{name} {kind}", *_samples(name, series)]
    assert not found, f"families without a name: {', '.join(found)}"
    return "\n".join(lines) + "\n"


def _gauges(engine: Engine, pid: int) -> Families:
    """The scheduler's state at its last report, and what never changes."""
    labels = _scheduler(engine)
    profile, memory, gauges, tally = engine.profile, engine.profile.memory, engine.tally.gauges, engine.tally
    speculation = profile.speculation
    values = dict.fromkeys(UNUSED, 0.0) | {
        "max_total_num_tokens": profile.kv_pool_tokens,
        "weight_memory_usage_gb": memory.weight_gb,
        "kv_cache_memory_usage_gb": memory.kv_cache_gb,
        "startup_available_gpu_memory_gb": memory.startup_available_gb,
        "page_size": profile.page_tokens,
        "num_pages": engine.pool.pages,
        "context_len": profile.context_tokens,
        "num_running_reqs": gauges.running,
        "num_queue_reqs": gauges.queued,
        "gen_throughput": gauges.gen_throughput,
        "cache_hit_rate": gauges.cache_hit_rate,
        "decode_sum_seq_lens": gauges.sequence_tokens,
        "token_usage": round(gauges.usage, 2),
        "full_token_usage": gauges.usage,
        "num_used_tokens": gauges.used_tokens,
        "kv_available_tokens": gauges.available_tokens,
        "kv_evictable_tokens": gauges.evictable_tokens,
        "kv_used_tokens": gauges.used_tokens,
        "spec_accept_length": tally.accept_length,
        "spec_accept_rate": tally.accept_rate,
        "spec_num_steps": 0 if speculation is None else speculation.steps,
        "spec_num_draft_tokens": 0 if speculation is None else speculation.draft_tokens,
        "fwd_occupancy": float("nan"),
        "new_token_ratio": gauges.new_token_ratio,
        "is_cuda_graph": gauges.cuda_graph,
    }
    if engine.pool.host.capacity:
        page = profile.page_tokens
        values["hicache_host_used_tokens"] = len(engine.pool.host) * page
        values["hicache_host_total_tokens"] = engine.pool.host.capacity * page
    process = labels | {"pid": str(pid)}
    families: Families = {name: [(labels, value)] for name, value in values.items()}
    return families | {
        "num_retracted_reqs": [(process, gauges.retracted)],
        "num_paused_reqs": [(process, 0)],
        "graph_memory_usage_gb": [
            (labels | {"phase": phase}, gb) for phase, gb in memory.graph_gb_by_phase.items()
        ],
        "routing_keys_active": [({}, 0)],
    }


def _counted(engine: Engine) -> Families:
    """Counters and histograms, as the tally has them by name and label."""
    model, scheduler, tally = _model(engine), _scheduler(engine), engine.tally
    cache = {"cache_type": "UnifiedRadixCache", "dp_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    values: dict[tuple[str, str], float | Histogram] = {**tally.counts, **tally.histograms}
    families: Families = {}
    for (name, key), value in values.items():
        if name not in HITS:
            base = scheduler if name in OF_SCHEDULER else cache if name == "load_back_tokens_total" else model
            label = "mode" if name in OF_MODES else "is_streaming"
            families.setdefault(name, []).append(({**base, label: key} if key else base, value))
    families["scheduler_idle_seconds_total"] = [(scheduler, tally.seconds["idle"])]
    if evicted := engine.pool.evicted_pages * engine.profile.page_tokens:
        families["evicted_tokens_total"] = [(cache, evicted)]
    return families | _cached(engine, model, scheduler)


def _cached(engine: Engine, model: Labels, labels: Labels) -> Families:
    """Tokens found in the cache: by request, and by prefill batch; before 0.5.18 only the first, as a total."""
    counts, faults = engine.tally.counts, engine.faults
    hits = {tier: 0 if faults.counters_hide_hits else counts["cached_tokens_total", tier] for tier in TIERS}
    if faults.old_names:
        total = sum(hits.values())
        return {"cached_tokens_total": [({**model, "cache_source": "total"}, total)] if total else []}
    effective = {f"{tier}_hit": counts["prefill_effective_tokens_total", f"{tier}_hit"] for tier in TIERS}
    computed = counts["prefill_effective_tokens_total", "input"]
    if faults.counters_hide_hits:
        computed += sum(effective.values())
        effective = dict.fromkeys(effective, 0)
    sources = {"storage": STORAGE_SOURCE}
    return {
        "cached_tokens_total": [
            ({**model, "cache_source": sources.get(tier, tier)}, count) for tier, count in hits.items() if count
        ],
        "prefill_effective_tokens_total": [
            ({**labels, "mode": mode}, count) for mode, count in ({"input": computed} | effective).items()
        ],
    }


def _model(engine: Engine) -> dict[str, str]:
    return {"engine_type": "unified", "model_name": engine.profile.model}


def _scheduler(engine: Engine) -> dict[str, str]:
    return _model(engine) | {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}


def _samples(name: str, series: Iterable[tuple[Labels, float | Histogram]]) -> Iterator[str]:
    for labels, value in series:
        if not isinstance(value, Histogram):
            yield _sample(name, labels, value)
            continue
        yield _sample(f"{name}_sum", labels, value.sum)
        below = 0
        for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
            below += count
            yield _sample(f"{name}_bucket", {**labels, "le": _number(bound)}, below)
        yield _sample(f"{name}_count", labels, value.count)


def _sample(name: str, labels: Labels, value: float) -> str:
    text = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"sglang:{name}{{{text}}} {_number(value)}" if labels else f"sglang:{name} {_number(value)}"


def _number(value: float) -> str:
    """As the Prometheus client writes it: an exponent from a million on."""
    text = repr(float(value))
    whole = text.find(".")
    if text in ("inf", "nan"):
        return {"inf": "+Inf", "nan": "NaN"}[text]
    if value > 0 and whole > 6 and "e" not in text:
        digits = f"{text[0]}.{text[1:whole]}{text[whole + 1 :]}".rstrip("0.")
        return f"{digits}e+{whole - 1:02d}"
    return text
