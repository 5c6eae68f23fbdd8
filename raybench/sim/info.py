"""What the simulated engine says of itself: `/server_info`, `/model_info`, `/v1/models`, `/v1/loads`, `/sim/gpus`.

The same keys, in the same order, as SGLang 0.5.23 (but for the last, which no engine has); of the hundreds of
server arguments those that tell something about a deployment.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from raybench.sim.engine import Engine
from raybench.sim.profiles import GRAPH_PHASES

VERSION = "0.5.23"
#: Of `/v1/loads`: sections that stand under another key than the name that asks for them.
SECTION_KEYS = {"disagg": "disaggregation", "spec": "speculative"}
MIB = 1024 * 1024
_NAMESPACE = uuid.UUID("6f2d1c36-5b0e-4c7e-9a55-8c0f0b6f3a10")


@dataclass(frozen=True)
class Identity:
    """What is fixed when the server starts. `random_seed` and the start-up times differ from start to start."""

    incremental: bool
    host: str
    port: int
    pid: int
    random_seed: int
    startup_s: float


def server_info(engine: Engine, identity: Identity) -> dict[str, object]:
    arguments = _server_arguments(engine, identity)
    startup = _startup_time(identity)
    hicache = bool(engine.pool.host.capacity)
    return arguments | {
        "launch_command": f"--model-path {engine.profile.model} --port {identity.port} --enable-metrics",
        "status": "ready",
        "max_total_num_tokens": engine.profile.kv_pool_tokens,
        "max_req_input_len": engine.profile.input_tokens_max,
        "startup_time": startup | {"tokenizer_e2e": identity.startup_s},
        "hicache_object_layout": {
            "enabled": hicache,
            "backend": None,
            "page_size": engine.profile.page_tokens,
            "hicache_object_layout": {"pools": []},
            "reason": None if hicache else "Hierarchical cache is disabled",
        },
        "kv_events": None,
        "internal_states": [arguments | _internal_state(engine, startup)],
        "version": VERSION,
        "frontend": "python",
    }


def model_info(engine: Engine) -> dict[str, object]:
    return {
        "model_path": engine.profile.model,
        "served_model_name": engine.profile.model,
        "tokenizer_path": engine.profile.model,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": engine.profile.reasoning_parser,
        "tool_call_parser": engine.profile.tool_call_parser,
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }


def models(engine: Engine, unix_s: float) -> dict[str, object]:
    name = engine.profile.model
    model = {"id": name, "object": "model", "created": int(unix_s), "owned_by": "sglang", "root": name}
    return {
        "object": "list",
        "data": [model | {"parent": None, "max_model_len": engine.profile.context_tokens}],
    }


def loads(engine: Engine, unix_s: float, include: frozenset[str]) -> dict[str, object]:
    """The live state. `include` names sections beside the core: memory, spec, disagg, queues, or all."""
    profile, gauges, memory = engine.profile, engine.gauges(), engine.profile.memory
    pending = engine.queue.pending_tokens
    running, queued = engine.faults.told_queue(gauges.running, gauges.queued)
    load: dict[str, object] = {
        "timestamp": unix_s,
        "dp_rank": 0,
        "num_running_reqs": running,
        "num_waiting_reqs": queued,
        "num_waiting_uncached_tokens": pending,
        "num_used_tokens": gauges.used_tokens,
        "num_total_tokens": gauges.used_tokens + pending,
        "num_active_tokens": gauges.used_tokens + pending,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": profile.kv_pool_tokens,
        "max_running_requests": profile.max_running_requests,
        "token_usage": round(gauges.usage, 4),
        "gen_throughput": round(engine.tally.gauges.gen_throughput, 2),
        "cache_hit_rate": round(engine.tally.gauges.cache_hit_rate, 4),
        "utilization": 0.0,
        "total_prefill_uncached_tokens": engine.tally.counts["realtime_tokens_total", "prefill_compute"],
        "total_prefill_busy_us": int(engine.tally.seconds["prefill"] * 1e6),
    }
    for name, section in _sections(engine, queued).items():
        if "all" in include or name in include:
            load[SECTION_KEYS.get(name, name)] = section
    return {
        "timestamp": datetime.fromtimestamp(unix_s, UTC).isoformat(),
        "version": VERSION,
        "accelerator": memory.name,
        "num_accelerators": memory.devices,
        "loads": [load],
    }


def _sections(engine: Engine, queued: int) -> dict[str, dict[str, object]]:
    """Sections of a load, by the name that asks for one."""
    memory = engine.profile.memory
    sections: dict[str, dict[str, object]] = {
        "memory": {
            "weight_gb": memory.weight_gb,
            "kv_cache_gb": memory.kv_cache_gb,
            "graph_gb": memory.graph_gb,
            "token_capacity": engine.profile.kv_pool_tokens,
        },
        "disagg": {
            "mode": "null",
            "prefill_bootstrap_queue_reqs": 0,
            "prefill_inflight_queue_reqs": 0,
            "decode_prealloc_queue_reqs": 0,
            "decode_transfer_queue_reqs": 0,
            "decode_retracted_queue_reqs": 0,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        },
        "queues": {"waiting": queued, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
    }
    if engine.profile.speculation is not None:
        tally = engine.tally
        sections["spec"] = {"accept_length": tally.accept_length, "accept_rate": tally.accept_rate}
    return sections


def get_load(engine: Engine) -> list[dict[str, object]]:
    """The live state in the shape of /get_load, which is gone by 0.5.22; `num_reqs` holds the waiting ones."""
    gauges = engine.gauges()
    running, queued = engine.faults.told_queue(gauges.running, gauges.queued)
    load: dict[str, object] = {"dp_rank": None, "num_reqs": running + queued, "num_waiting_reqs": queued}
    return [load | {"num_tokens": gauges.used_tokens}]


def gpus(engine: Engine) -> list[dict[str, object]]:
    """Device memory, as NVML would show it: memory in bytes (used = total - free, reserved in it), utilization in
    percent, power in watts.

    Memory in use = idle level + a share that follows the highest use of the KV pool since the last flush + one
    that follows the highest number of running requests: the allocator gives nothing back before a flush.
    """
    profile, memory = engine.profile, engine.profile.memory
    grown_mib = memory.kv_full_mib * engine.pages_peak / engine.pool.pages
    grown_mib += memory.running_full_mib * engine.running_peak / profile.max_running_requests
    active, power_w = engine.next_time is not None, memory.idle_power_w
    if active:
        busy = min(engine.admitted / profile.max_running_requests, 1.0)
        power_w += (memory.full_power_w - memory.idle_power_w) * (0.6 + 0.4 * busy)
    total = memory.total_mib * MIB
    devices: list[dict[str, object]] = []
    for index in range(memory.devices):
        # Ranks differ a little, always in the same way: the first one also holds what rank 0 does alone.
        spread_mib = 96 if index == 0 else 8 * (index % 4)
        used = min(int((memory.idle_mib + grown_mib + spread_mib) * MIB), total)
        devices.append(
            {
                "index": index,
                "uuid": f"GPU-{uuid.uuid5(_NAMESPACE, f'{profile.name}/{index}')}",
                "name": memory.name,
                "memory_total_bytes": total,
                "memory_free_bytes": total - used,
                "memory_used_bytes": used,
                "memory_reserved_bytes": memory.reserved_mib * MIB,
                "utilization_gpu_percent": 100.0 if active else 0.0,
                "power_w": power_w,
            }
        )
    return devices


def _server_arguments(engine: Engine, identity: Identity) -> dict[str, object]:
    profile, speculation = engine.profile, engine.profile.speculation
    return {
        "model_path": profile.model,
        "tokenizer_path": profile.model,
        "skip_tokenizer_init": False,
        "context_length": profile.context_tokens,
        "dtype": "auto",
        "quantization": None,
        "kv_cache_dtype": profile.kv_cache_dtype,
        "mem_fraction_static": profile.mem_fraction_static,
        "max_running_requests": profile.max_running_requests,
        "max_queued_requests": profile.max_queued_requests,
        "max_total_tokens": None,
        "chunked_prefill_size": profile.chunk_tokens,
        "max_prefill_tokens": 16_384,
        "schedule_policy": "fcfs",
        "schedule_conservativeness": 1.0,
        "page_size": profile.page_tokens,
        "radix_eviction_policy": "lru",
        "disable_radix_cache": not profile.radix_cache,
        "disable_overlap_schedule": False,
        "tp_size": profile.tensor_parallel,
        "pp_size": profile.pipeline_stages,
        "dp_size": engine.faults.dp_ranks,
        "device": "cuda",
        "random_seed": identity.random_seed + engine.faults.restarts,
        "host": identity.host,
        "port": identity.port,
        "api_key": None,
        "admin_api_key": None,
        "served_model_name": profile.model,
        "weight_version": "default",
        "enable_cache_report": True,
        "stream_interval": 1,
        "stream_response_default_include_usage": False,
        "incremental_streaming_output": identity.incremental,
        "enable_metrics": True,
        "enable_metrics_for_all_schedulers": False,
        "decode_log_interval": 40,
        "cuda_graph_max_bs_decode": profile.graph_batch_max,
        "disable_cuda_graph": False,
        "speculative_algorithm": None if speculation is None else speculation.algorithm,
        "speculative_num_steps": None if speculation is None else speculation.steps,
        "speculative_eagle_topk": None if speculation is None else 1,
        "speculative_num_draft_tokens": None if speculation is None else speculation.draft_tokens,
        "enable_hierarchical_cache": bool(engine.pool.host.capacity),
        "hicache_ratio": engine.pool.host.capacity / engine.pool.pages or 2.0,
        "hicache_size": 0,
        "hicache_write_policy": "write_through",
        "hicache_storage_backend": "file" if engine.faults.lower_tier == "storage" else None,
        "disaggregation_mode": "null",
    }


def _startup_time(identity: Identity) -> dict[str, object]:
    return {
        "load_weight": identity.startup_s * 0.1,
        "kv_cache_allocation": identity.startup_s * 0.2,
        "scheduler_e2e": identity.startup_s * 0.9,
        "cuda_graph": dict.fromkeys(GRAPH_PHASES, 0.0),
    }


def _internal_state(engine: Engine, startup: dict[str, object]) -> dict[str, object]:
    profile, memory = engine.profile, engine.profile.memory
    state: dict[str, object] = {
        "world_size": profile.tensor_parallel * profile.pipeline_stages,
        "startup_time": startup,
        "effective_max_running_requests_per_dp": profile.max_running_requests,
        "last_gen_throughput": engine.tally.gauges.gen_throughput,
        "memory_usage": {
            "weight": memory.weight_gb,
            "kvcache": memory.kv_cache_gb,
            "startup_available": memory.startup_available_gb,
            "token_capacity": profile.kv_pool_tokens,
            "token_capacity_swa": None,
            "graph": memory.graph_gb_by_phase,
        },
    }
    if engine.tally.accept_length:
        state["avg_spec_accept_length"] = engine.tally.accept_length
    return state
