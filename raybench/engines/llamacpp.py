"""llama.cpp's server: the OpenAI routes, erase of every slot, /props and /metrics. ninfer's too, which has only
the chat route and a list of models: neither queue numbers nor a flush.

The procedure's calls run in the coordinator. A prefix lives in a slot, and a copy of it may live in the
server's own memory (--cache-ram, on by default), which no call empties: cached tokens must be checked.
"""

from __future__ import annotations

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
from raybench.engines.control import UNKNOWN_PATH, instance_id, model_card, read_metrics
from raybench.engines.loose_json import int_of, list_of, object_of, str_of
from raybench.engines.metrics import Metrics
from raybench.engines.openai import OpenAI, openai_template
from raybench.records.redact import redact

_NOT_IMPLEMENTED = 501
_NO_ERASE = "the server does not erase slots: start it with --slot-save-path DIR, or with --no-cache-prompt"
#: Constant in old versions, drawn anew at each start in later ones.
_OLD_MEDIA_MARKER = "<__media__>"


class LlamaCpp(OpenAI):
    """It has no call that drops a request, no latency histograms, and its log tells nothing of the cache."""

    name = "llamacpp"

    def template(self, shape: RequestShape) -> BodyTemplate:
        return openai_template(shape, {"ignore_eos": shape.ignore_eos})

    async def alive(self, http: Http) -> Reply:
        return await http.request("GET", "/health")

    async def queue(self, http: Http) -> QueueState | None:
        """From /metrics, else from the slots: while one is free, nothing waits."""
        metrics = await read_metrics(http)
        if metrics is not None and (state := _gauges(metrics).queue) is not None:
            return state
        slots = list_of((await http.request("GET", "/slots")).json())
        busy = sum(object_of(slot).get("is_processing") is True for slot in slots)
        return QueueState(busy, 0) if slots else None

    async def flush(self, http: Http, *, timeout_s: float, storage: bool = False) -> FlushReply:
        """Erases every slot, one after the other; the first refusal is the answer."""
        props = await http.request("GET", "/props")
        slots = int_of(object_of(props.json()).get("total_slots"))
        if slots is None:
            return FlushReply(False, props, note="/props does not say how many slots there are")
        reply = props
        for slot in range(slots):
            reply = await http.request(
                "POST", f"/slots/{slot}", params={"action": "erase"}, json={}, timeout_s=timeout_s
            )
            if reply.status in (*UNKNOWN_PATH, _NOT_IMPLEMENTED):
                return FlushReply(False, reply, unsupported=True, note=_NO_ERASE)
            if not reply.ok:
                return FlushReply(False, reply)
        return FlushReply(True, reply)

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        metrics = await read_metrics(http)
        if metrics is None or not metrics.has_prefix("llamacpp:"):
            return None
        computed = metrics.total("llamacpp:prompt_tokens_total")
        cached = metrics.total("llamacpp:prompt_tokens_cached_total")
        # The first counter leaves cached tokens out; builds without the second cannot say the sum.
        prompt = None if computed is None or cached is None else computed + cached
        counters = Counters(
            input_tokens=prompt,
            output_tokens=metrics.total("llamacpp:tokens_predicted_total"),
            cached_tokens=cached,
            prefix_queried_tokens=prompt,
            prefix_hit_tokens=cached,
        )
        return counters, _gauges(metrics)

    async def facts(self, http: Http) -> Facts:
        props = object_of((await http.request("GET", "/props")).json())
        card = await model_card(http)
        marker = str_of(props.get("media_marker"))
        settings = object_of(props.get("default_generation_settings"))
        return Facts(
            engine=self.name,
            version=str_of(props.get("build_info")),
            model=card.model or str_of(props.get("model_alias")) or str_of(props.get("model_path")),
            instance=None if marker in (None, _OLD_MEDIA_MARKER) else instance_id(marker),
            max_running_requests=int_of(props.get("total_slots")),
            context_tokens=int_of(settings.get("n_ctx")) or card.context_tokens,
            raw={"props": redact(props), **card.raw} if props else card.raw,
        )


def _gauges(metrics: Metrics) -> Gauges:
    return Gauges(
        running_requests=metrics.total("llamacpp:requests_processing"),
        queued_requests=metrics.total("llamacpp:requests_deferred"),
    )
