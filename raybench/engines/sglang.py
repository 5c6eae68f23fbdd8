"""SGLang, 0.5.3 to 0.5.23: routes, flush, queue, counters and facts under the names of all versions.

Bodies and answers of `/generate` are in `sglang_generate.py`, /metrics in `sglang_metrics.py`. The
procedure's calls run in the coordinator. `/health` is never called: on an idle server it generates.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybench.engines import sglang_metrics
from raybench.engines.bodies import RID
from raybench.engines.contract import (
    BodyTemplate,
    Counters,
    Decoder,
    Facts,
    FlushReply,
    Gauges,
    Http,
    LogLine,
    QueueState,
    Reply,
    RequestShape,
)
from raybench.engines.control import UNKNOWN_PATH, ask_first, instance_id, model_card, read_latencies, read_metrics
from raybench.engines.decoder import BodyDecoder, StreamDecoder
from raybench.engines.histogram import Histogram, LatencyName
from raybench.engines.loose_json import JsonObject, bool_of, int_of, list_of, object_of, str_of
from raybench.engines.openai import openai_decoder, openai_template
from raybench.engines.sglang_generate import GenerateReader, generate_template
from raybench.engines.sglang_log import read_log_line
from raybench.engines.skim import SkimmingDecoder
from raybench.records.redact import redact

#: Longer than the server's own wait for idle, so that its answer is read and not our timeout.
_FLUSH_ANSWER_S = 10.0

_LATENCIES: Mapping[LatencyName, str] = {
    "ttft": "sglang:time_to_first_token_seconds",
    "e2e": "sglang:e2e_request_latency_seconds",
    "tpot": "sglang:request_time_per_output_token_seconds",
    "itl": "sglang:inter_token_latency_seconds",
    "queue": "sglang:queue_time_seconds",
}


class SGLang:
    name = "sglang"

    def template(self, shape: RequestShape) -> BodyTemplate:
        if shape.route == "generate":
            return generate_template(shape)
        fields = {
            "rid": RID,
            "top_k": -1,
            "ignore_eos": shape.ignore_eos,
            "return_cached_tokens_details": True,
        }
        return openai_template(shape, fields)

    def decoder(self, shape: RequestShape, *, event_bytes_max: int, skim: bool = False) -> Decoder:
        if shape.route != "generate":
            return openai_decoder(shape, event_bytes_max=event_bytes_max, skim=skim)
        if shape.stream and skim:
            return SkimmingDecoder(GenerateReader(), event_bytes_max=event_bytes_max, by_text=False)
        if shape.stream:
            return StreamDecoder(GenerateReader(), event_bytes_max=event_bytes_max)
        return BodyDecoder(GenerateReader(), event_bytes_max=event_bytes_max)

    async def alive(self, http: Http) -> Reply:
        return await ask_first(http, "/ping", "/ready", "/v1/models")

    async def queue(self, http: Http) -> QueueState | None:
        """From /v1/loads (0.5.9 may answer 500 there), else /get_load (gone by 0.5.22), else /metrics."""
        loads = await http.request("GET", "/v1/loads", params={"include": "core,queues"})
        state = _queue_of_loads(loads.json())
        if state is None and loads.status is not None:
            state = _queue_of_get_load((await http.request("GET", "/get_load")).json())
        if state is None and loads.status is not None:
            metrics = await read_metrics(http)
            state = None if metrics is None else sglang_metrics.queue_state(metrics)
        return state

    async def flush(self, http: Http, *, timeout_s: float, storage: bool = False) -> FlushReply:
        """Judged by the status alone: the text of a 200 also says "will not be performed".

        From 0.5.12 the server waits up to `timeout_s` for idle; older ones ignore the parameter.
        """
        reply = await http.request(
            "POST",
            "/flush_cache",
            params={"timeout": f"{timeout_s:g}"},
            timeout_s=timeout_s + _FLUSH_ANSWER_S,
        )
        if reply.status in UNKNOWN_PATH:
            note = "the server has no /flush_cache: is it SGLang, and does `url` lead to it and not to a proxy?"
            return FlushReply(False, reply, unsupported=True, note=note)
        if reply.status in (401, 403):
            return FlushReply(False, reply, note="with --admin-api-key only that key may flush")
        note = await _clear_storage(http, timeout_s) if reply.ok and storage else ""
        return FlushReply(reply.ok, reply, note=note)

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        metrics = await read_metrics(http)
        if metrics is None or not sglang_metrics.is_sglang(metrics):
            return None
        return sglang_metrics.counters(metrics), sglang_metrics.gauges(metrics)

    async def latencies(self, http: Http) -> Mapping[str, Histogram]:
        return await read_latencies(http, _LATENCIES)

    async def facts(self, http: Http) -> Facts:
        info = object_of((await ask_first(http, "/server_info", "/get_server_info")).json())
        card = await model_card(http)
        flag = bool_of(info.get("incremental_streaming_output"))
        radix_off = bool_of(info.get("disable_radix_cache"))
        return Facts(
            engine=self.name,
            version=str_of(info.get("version")),
            model=str_of(info.get("served_model_name")) or card.model or str_of(info.get("model_path")),
            instance=_instance(info),
            max_running_requests=_max_running_requests(info),
            kv_pool_tokens=_kv_pool_tokens(info),
            context_tokens=card.context_tokens or int_of(info.get("context_length")),
            max_input_tokens=int_of(info.get("max_req_input_len")),
            page_tokens=int_of(info.get("page_size")),
            dp_size=int_of(info.get("dp_size")),
            prefix_cache=None if radix_off is None else not radix_off,
            host_cache=bool_of(info.get("enable_hierarchical_cache")),
            storage_cache=str_of(info.get("hicache_storage_backend")),
            incremental_stream=bool_of(info.get("stream_output")) if flag is None else flag,
            raw={"server_info": redact(info), **card.raw} if info else card.raw,
        )

    async def abort(self, http: Http, rid: str) -> Reply | None:
        """The server matches by prefix: rids must have one width, or others are aborted as well."""
        return await http.request("POST", "/abort_request", json={"rid": rid, "abort_all": False})

    def read_log_line(self, line: str) -> LogLine | None:
        return read_log_line(line)


async def _clear_storage(http: Http, timeout_s: float) -> str:
    """Ask for an empty storage tier, where the server has one; what it said, for people.

    The old path is gone by 0.5.22. A 200 is no proof: it comes even when the backend failed.
    """
    info = object_of((await ask_first(http, "/server_info", "/get_server_info")).json())
    backend = str_of(info.get("hicache_storage_backend"))
    if backend is None:
        return ""
    paths = ("/hicache/storage-backend/clear", "/clear_hicache_storage_backend")
    reply = await ask_first(http, *paths, method="POST", timeout_s=timeout_s)
    return f"storage tier {backend}: {reply.summary}"


def _queue_of_loads(body: object) -> QueueState | None:
    """/v1/loads, one entry a data-parallel rank. It knows nothing of write-backs to a host tier."""
    loads = list_of(object_of(body).get("loads"))
    running = queued = 0
    for load in map(object_of, loads):
        own_running, own_queued = int_of(load.get("num_running_reqs")), int_of(load.get("num_waiting_reqs"))
        if own_running is None or own_queued is None:
            return None
        # Requests that wait for a grammar, are paused or retracted stand in lists of their own.
        lists = [int_of(length) or 0 for length in object_of(load.get("queues")).values()]
        running += own_running
        queued += max(own_queued, sum(lists))
    return QueueState(running, queued) if loads else None


def _queue_of_get_load(body: object) -> QueueState | None:
    """/get_load, one entry a rank; `num_reqs` holds the waiting ones as well."""
    loads = list_of(body)
    requests = queued = 0
    for load in map(object_of, loads):
        own_requests, own_queued = int_of(load.get("num_reqs")), int_of(load.get("num_waiting_reqs"))
        if own_requests is None or own_queued is None:
            return None
        requests += own_requests
        queued += own_queued
    return QueueState(max(0, requests - queued), queued) if loads else None


def _instance(info: JsonObject) -> str | None:
    """From the seed drawn at each start and, from 0.5.17 on, the measured times of the start.

    A seed fixed by --random-seed on an older version hides a restart; counters that fall show it.
    """
    clues = {key: info[key] for key in ("random_seed", "startup_time") if info.get(key) is not None}
    return instance_id(clues) if clues else None


def _states(info: JsonObject) -> list[JsonObject]:
    return [object_of(state) for state in list_of(info.get("internal_states"))]


def _max_running_requests(info: JsonObject) -> int | None:
    """Of the whole deployment: the ranks' own limits added up."""
    own = [int_of(state.get("effective_max_running_requests_per_dp")) for state in _states(info)]
    known = [limit for limit in own if limit is not None]
    return sum(known) if known else int_of(info.get("max_running_requests"))


def _kv_pool_tokens(info: JsonObject) -> int | None:
    """Of the whole deployment: each data-parallel rank has its own pool."""
    own = [int_of(object_of(state.get("memory_usage")).get("token_capacity")) for state in _states(info)]
    known = [capacity for capacity in own if capacity is not None]
    if known:
        return sum(known)
    pool = int_of(info.get("max_total_num_tokens"))
    return None if pool is None else pool * (int_of(info.get("dp_size")) or 1)
