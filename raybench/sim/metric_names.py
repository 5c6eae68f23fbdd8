"""The names of the simulated engine's `/metrics`, with type and text, in the order of a page of SGLang 0.5.23."""

from __future__ import annotations

from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

#: name without its prefix -> (type, text). No page with the last two was ever recorded: their texts are unknown.
FAMILIES: dict[str, tuple[Kind, str]] = {
    "num_retracted_reqs": ("gauge", "The number of retracted requests."),
    "num_paused_reqs": ("gauge", "The number of paused requests by async weight sync."),
    "queue_time_seconds": ("histogram", "Histogram of queueing time in seconds."),
    "max_total_num_tokens": ("gauge", "Maximum total number of tokens in the KV cache pool."),
    "weight_memory_usage_gb": ("gauge", "Memory used by model weights in GB."),
    "kv_cache_memory_usage_gb": ("gauge", "Memory used by the KV cache pools in GB."),
    "graph_memory_usage_gb": ("gauge", "Memory used by captured device graphs in GB."),
    "page_size": ("gauge", "KV cache page size in tokens."),
    "num_pages": ("gauge", "Number of KV cache pages."),
    "context_len": ("gauge", "Maximum context length."),
    "startup_available_gpu_memory_gb": ("gauge", "Available GPU memory in GB at startup."),
    "num_running_reqs": ("gauge", "The number of running requests."),
    "num_queue_reqs": ("gauge", "The number of requests in the waiting queue."),
    "num_grammar_queue_reqs": ("gauge", "The number of requests in the grammar waiting queue."),
    "gen_throughput": ("gauge", "The generation throughput (token/s)."),
    "cache_hit_rate": ("gauge", "The prefix cache hit rate."),
    "decode_sum_seq_lens": ("gauge", "The sum of all sequence lengths in decode."),
    "token_usage": ("gauge", "The token usage."),
    "full_token_usage": ("gauge", "The token usage for full attention layers."),
    "swa_token_usage": ("gauge", "The token usage for SWA layers."),
    "mamba_usage": ("gauge", "The token usage for Mamba layers."),
    "num_used_tokens": ("gauge", "The number of used tokens."),
    "kv_available_tokens": ("gauge", "Number of free token slots in the KV cache pool."),
    "kv_evictable_tokens": ("gauge", "Number of evictable (radix-cached) token slots in the KV cache pool."),
    "kv_used_tokens": ("gauge", "Number of actively used token slots in the KV cache pool."),
    "swa_available_tokens": ("gauge", "Number of free token slots in the SWA pool (hybrid-SWA only)."),
    "swa_evictable_tokens": ("gauge", "Number of evictable (radix-cached) token slots in the SWA pool."),
    "swa_used_tokens": ("gauge", "Number of actively used token slots in the SWA pool."),
    "mamba_available_tokens": ("gauge", "Number of free state slots in the mamba SSM pool (hybrid-SSM only)."),
    "mamba_evictable_tokens": ("gauge", "Number of evictable (radix-cached) state slots in the mamba SSM pool."),
    "mamba_used_tokens": ("gauge", "Number of actively used state slots in the mamba SSM pool."),
    "spec_accept_length": (
        "gauge",
        "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
    ),
    "spec_accept_rate": ("gauge", "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch)."),
    "spec_cap_length": (
        "gauge",
        "Mean DSpark confidence-scheduled verify window per verify step, incl the bonus slot (0 when no cap "
        "is scheduled).",
    ),
    "spec_block_accept_length": (
        "gauge",
        "Mean uncapped full-block accept length per verify step (accept + cap-trimmed drafts; exact only in "
        "DSpark cap-accept mode).",
    ),
    "spec_num_steps": ("gauge", "Currently active speculative_num_steps."),
    "spec_num_draft_tokens": (
        "gauge",
        "Currently active speculative_num_draft_tokens (decouples from steps under topk>1).",
    ),
    "num_prefill_bootstrap_queue_reqs": ("gauge", "The number of requests in the prefill bootstrap queue."),
    "num_prefill_inflight_queue_reqs": ("gauge", "The number of requests in the prefill inflight queue."),
    "num_decode_prealloc_queue_reqs": ("gauge", "The number of requests in the decode prealloc queue."),
    "num_decode_transfer_queue_reqs": ("gauge", "The number of requests in the decode transfer queue."),
    "num_decode_host_receive_queue_reqs": (
        "gauge",
        "Requests in the decode transfer queue receiving into host memory or waiting for device admission.",
    ),
    "num_decode_deferred_kv_release_reqs": (
        "gauge",
        "The number of failed decode requests whose KV allocations are held pending transfer drain "
        "acknowledgement or timeout.",
    ),
    "pending_prealloc_token_usage": (
        "gauge",
        "The token usage for pending preallocated tokens (not preallocated yet).",
    ),
    "prealloc_full_token_usage": (
        "gauge",
        "Share of the full-attention KV pool held by decode requests whose KV transfer is pending "
        "(preallocated, not yet running); same capacity basis as sglang:full_token_usage.",
    ),
    "prealloc_swa_token_usage": (
        "gauge",
        "Share of the SWA KV pool held by decode requests whose KV transfer is pending; same capacity basis "
        "as sglang:swa_token_usage.",
    ),
    "utilization": ("gauge", "The utilization."),
    "fwd_occupancy": ("gauge", "Forward pass GPU occupancy percentage."),
    "new_token_ratio": ("gauge", "The new token ratio."),
    "is_cuda_graph": ("gauge", "Whether the batch is using CUDA graph."),
    "num_unique_running_routing_keys": ("gauge", "Number of unique routing keys in running batch."),
    "prompt_tokens_total": ("counter", "Number of prefill tokens processed."),
    "generation_tokens_total": ("counter", "Number of generation tokens processed."),
    "num_requests_total": ("counter", "Number of requests processed."),
    "cached_tokens_total": ("counter", "Number of cached prompt tokens by source (device/host/storage)."),
    "num_aborted_requests_total": ("counter", "Number of requests aborted."),
    "routing_keys_active": ("gauge", "Number of unique routing keys with active requests"),
    "time_to_first_token_seconds": ("histogram", "Histogram of time to first token in seconds."),
    "e2e_request_latency_seconds": ("histogram", "Histogram of End-to-end request latency in seconds"),
    "request_time_per_output_token_seconds": (
        "histogram",
        "Per-request TPOT in seconds: (finished_time - first_token_time) / (completion_tokens - 1).",
    ),
    "prompt_tokens_histogram": ("histogram", "Histogram of prompt token length."),
    "uncached_prompt_tokens_histogram": ("histogram", "Histogram of uncached (compute) prompt token length."),
    "generation_tokens_histogram": ("histogram", "Histogram of generation token length."),
    "inter_token_latency_seconds": ("histogram", "Histogram of inter-token latency in seconds."),
    "prefill_effective_tokens_total": (
        "counter",
        "Effective prefill tokens with retracted-request re-counts excluded, updated on each log interval. "
        "mode: device_hit, host_hit, storage_hit, input. Windowed prefix cache hit rate = rate(sum of *_hit) "
        "/ rate(sum of all modes); per-tier rate uses a single *_hit mode in the numerator.",
    ),
    "scheduler_idle_seconds_total": (
        "counter",
        "Total wall time while the scheduler has no runnable or queued work.",
    ),
    "cuda_graph_passes_total": ("counter", "Total number of forward passes categorized by CUDA graph."),
    "realtime_tokens_total": (
        "counter",
        "Total number of tokens processed (updated on each log interval). mode: prefill_compute, "
        "prefill_cache, decode.",
    ),
    "evicted_tokens_total": (
        "counter",
        "The number of device KV token slots freed by eviction, regardless of whether the data was backed up "
        "to host (see sglang:hicache_backup_tokens_total) or destroyed (see "
        "sglang:hicache_dropped_tokens_total).",
    ),
    "num_retracted_requests_total": ("counter", "Total number of retracted requests."),
    "num_retracted_input_tokens_total": ("counter", "Total number of retracted input tokens."),
    "num_retracted_output_tokens_total": ("counter", "Total number of retracted output tokens."),
    "load_back_tokens_total": ("counter", "The number of tokens loaded from CPU to GPU."),
    "hicache_host_used_tokens": ("gauge", "Number of tokens currently used in the host KV cache."),
    "hicache_host_total_tokens": ("gauge", "Total capacity of the host KV cache in tokens."),
    "hicache_backup_tokens_total": ("counter", ""),
    "spec_verify_calls_total": ("counter", ""),
}
