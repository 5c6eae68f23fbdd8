"""vLLM: the OpenAI routes, reset of the prefix cache, /metrics and what it says of itself.

The procedure's calls run in the coordinator. /health is passive here. The reset exists only on a server
started with VLLM_SERVER_DEV_MODE=1 and answers 200 even when it refuses: its body is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from raybench.engines.bodies import RID
from raybench.engines.contract import (
    BodyTemplate,
    Counters,
    Facts,
    FlushReply,
    Gauges,
    Http,
    QueueState,
    Reply,
    RequestShape,
)
from raybench.engines.control import UNKNOWN_PATH, ask_first, instance_id, model_card, read_latencies, read_metrics
from raybench.engines.histogram import Histogram, LatencyName
from raybench.engines.loose_json import object_of, str_of
from raybench.engines.metrics import Labels, Metrics
from raybench.engines.openai import OpenAI, openai_template

_NO_RESET = (
    "the server has no /reset_prefix_cache: start vLLM with VLLM_SERVER_DEV_MODE=1, or with "
    "--no-enable-prefix-caching and `flush: false`"
)

_LATENCIES: Mapping[LatencyName, str] = {
    "ttft": "vllm:time_to_first_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "itl": "vllm:inter_token_latency_seconds",
    "queue": "vllm:request_queue_time_seconds",
}


class VLLM(OpenAI):
    """It drops a request when its connection closes: the call to do so is for developers only."""

    name = "vllm"

    def template(self, shape: RequestShape) -> BodyTemplate:
        # Sampling fields that are left out come from the model's generation_config.
        fields = {"request_id": RID, "top_k": -1, "ignore_eos": shape.ignore_eos}
        return openai_template(shape, fields)

    async def alive(self, http: Http) -> Reply:
        return await ask_first(http, "/health", "/ping", "/v1/models")

    async def queue(self, http: Http) -> QueueState | None:
        metrics = await read_metrics(http)
        return None if metrics is None else _gauges(metrics).queue

    async def flush(self, http: Http, *, timeout_s: float, storage: bool = False) -> FlushReply:
        """Resets a connector's tiers as well, where there is one. vLLM never waits for idle.

        A server without a connector refuses `reset_external` even though it reset the rest, so a refusal
        is asked once more without it.
        """
        everything = await _reset(http, timeout_s, {"reset_external": "true"})
        if everything.accepted or everything.unsupported or not everything.reply.ok:
            return everything
        local = await _reset(http, timeout_s, {})
        if local.accepted and not local.note:
            return replace(local, note="a KV connector, if there is one, did not reset its own tiers")
        return local

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        metrics = await read_metrics(http)
        if metrics is None or not metrics.has_prefix("vllm:"):
            return None
        return _counters(metrics), _gauges(metrics)

    async def latencies(self, http: Http) -> Mapping[str, Histogram]:
        return await read_latencies(http, _LATENCIES)

    async def facts(self, http: Http) -> Facts:
        version = object_of((await http.request("GET", "/version")).json())
        card = await model_card(http)
        metrics = await read_metrics(http)
        configs = [] if metrics is None else [labels for labels, _ in metrics.series("vllm:cache_config_info")]
        config = configs[0] if configs else {}
        pools = [_pool_tokens(labels) for labels in configs]
        known_pools = [pool for pool in pools if pool is not None]
        started = None if metrics is None else metrics.total("process_start_time_seconds")
        offloading = config.get("kv_offloading_size")
        return Facts(
            engine=self.name,
            version=str_of(version.get("version")),
            model=card.model,
            instance=None if started is None else instance_id(started),
            kv_pool_tokens=sum(known_pools) if known_pools else None,
            context_tokens=card.context_tokens,
            page_tokens=_number(config, "block_size"),
            dp_size=len(configs) or None,
            prefix_cache=_flag(config, "enable_prefix_caching"),
            host_cache=None if offloading is None else offloading != "None",
            raw={"version": dict(version), "cache_config_info": [dict(c) for c in configs], **card.raw},
        )


async def _reset(http: Http, timeout_s: float, params: dict[str, str]) -> FlushReply:
    reply = await http.request("POST", "/reset_prefix_cache", params=params, timeout_s=timeout_s)
    if reply.status in UNKNOWN_PATH:
        return FlushReply(False, reply, unsupported=True, note=_NO_RESET)
    if not reply.ok:
        return FlushReply(False, reply)
    success = object_of(reply.json()).get("success")
    if success is None:
        # Versions before 0.26 answer an empty 200 whatever happened.
        return FlushReply(True, reply, note="the server does not say whether it did it")
    return FlushReply(success is True, reply)


def _counters(metrics: Metrics) -> Counters:
    """Sums over engines; hits in the local cache and in a connector's tiers together."""
    hits = metrics.total("vllm:prefix_cache_hits_total")
    external = metrics.total("vllm:external_prefix_cache_hits_total")
    return Counters(
        requests=metrics.total("vllm:request_success_total"),
        input_tokens=metrics.total("vllm:prompt_tokens_total"),
        output_tokens=metrics.total("vllm:generation_tokens_total"),
        cached_tokens=metrics.total("vllm:prompt_tokens_cached_total"),
        prefix_queried_tokens=metrics.total("vllm:prefix_cache_queries_total"),
        prefix_hit_tokens=None if hits is None else hits + (external or 0.0),
        preemptions=metrics.total("vllm:num_preemptions_total"),
    )


def _gauges(metrics: Metrics) -> Gauges:
    """The share of the fullest engine; older releases call it gpu_cache_usage_perc."""
    usage = metrics.highest("vllm:kv_cache_usage_perc")
    return Gauges(
        running_requests=metrics.total("vllm:num_requests_running"),
        queued_requests=metrics.total("vllm:num_requests_waiting"),
        kv_used_tokens=_used_tokens(metrics),
        kv_usage=metrics.highest("vllm:gpu_cache_usage_perc") if usage is None else usage,
    )


def _used_tokens(metrics: Metrics) -> float | None:
    """Share x pool of each engine; None when one of the two is missing for any of them."""
    pools = {c.get("engine"): _pool_tokens(c) for c, _ in metrics.series("vllm:cache_config_info")}
    used = 0.0
    shares = metrics.series("vllm:kv_cache_usage_perc")
    for labels, share in shares:
        pool = pools.get(labels.get("engine"))
        if pool is None:
            return None
        used += share * pool
    return used if shares else None


def _pool_tokens(config: Labels) -> int | None:
    given = _number(config, "kv_cache_size_tokens")
    blocks, block_tokens = _number(config, "num_gpu_blocks"), _number(config, "block_size")
    if given is None and blocks is not None and block_tokens is not None:
        return blocks * block_tokens
    return given


def _number(config: Labels, name: str) -> int | None:
    text = config.get(name, "")
    return int(text) if text.isdecimal() else None


def _flag(config: Labels, name: str) -> bool | None:
    return {"True": True, "False": False}.get(config.get(name, ""))
