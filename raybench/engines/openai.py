"""The OpenAI routes `/v1/completions` and `/v1/chat/completions`, and engines that speak nothing else.

The reader runs in the load worker and serves vLLM, SGLang and llama.cpp as well. A token is what a
non-empty text, reasoning or tool-call delta brings; role-only and empty deltas and the usage chunk are
none (cases O-S3, O-S4). Counts come from `usage`; without it they are estimated by chunks and say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybench.engines.bodies import PROMPT, make_template
from raybench.engines.contract import (
    Answer,
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
    ToolCall,
)
from raybench.engines.control import model_card
from raybench.engines.decoder import BodyDecoder, StreamDecoder, add_chunk, fail, take_cached_tiers
from raybench.engines.histogram import Histogram
from raybench.engines.loose_json import JsonObject, float_of, int_of, list_of, object_of, seconds_of_ms, str_of
from raybench.engines.skim import SkimmingDecoder
from raybench.errors import ConfigError, ConfigProblem


def openai_template(shape: RequestShape, fields: Mapping[str, object]) -> BodyTemplate:
    """Body of one completions (token ids) or chat (text) request, with an engine's own `fields`.

    Raises ConfigError for the route `generate`, which is SGLang's alone.
    """
    body: dict[str, object] = {}
    if shape.model is not None:
        body["model"] = shape.model
    if shape.route == "completions":
        path = "/v1/completions"
        body["prompt"] = [PROMPT] if shape.prompt == "corpus" else PROMPT
    elif shape.route == "chat":
        path = "/v1/chat/completions"
        message = {"role": "user", "content": PROMPT}
        body["messages"] = [message if shape.prompt == "corpus" else PROMPT]
    else:
        problem = ConfigProblem(
            "this engine has no such route", "route", shape.route, "completions or chat", "engine: sglang"
        )
        raise ConfigError("scenario", problem)
    body |= {
        "max_tokens": shape.output_tokens,
        "temperature": shape.temperature,
        "top_p": 1.0,
        "stream": shape.stream,
    }
    if shape.stream:
        body["stream_options"] = {"include_usage": True}
    return make_template(path, {**body, **fields}, shape.extra_body)


def openai_decoder(shape: RequestShape, *, event_bytes_max: int, skim: bool) -> Decoder:
    """Decoder of both OpenAI routes, streamed or not.

    Completions may be skimmed; a chat delta may hold no token, reasoning or an answer, so each is read.
    """
    if shape.stream and skim and shape.route == "completions":
        return SkimmingDecoder(OpenAIReader(), event_bytes_max=event_bytes_max, by_text=True)
    if shape.stream:
        return StreamDecoder(OpenAIReader(), event_bytes_max=event_bytes_max)
    return BodyDecoder(OpenAIReader(), event_bytes_max=event_bytes_max)


class OpenAIReader:
    """Reads the messages of one completions or chat answer."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.counted: int | None = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, ToolCall] = {}  # by the index that the server gives them
        self._answered = False

    def event(self, message: JsonObject, stamp_ns: int) -> None:
        self._take_totals(message)
        brought_tokens = False
        for choice in list_of(message.get("choices")):
            fields = object_of(choice)
            brought_tokens |= self._take_parts(fields, object_of(fields.get("delta")))
            self._take_finish(fields)
        if brought_tokens:
            add_chunk(self.answer, stamp_ns, self._tokens_since_last_chunk(message))

    def body(self, message: JsonObject) -> None:
        self._take_totals(message)
        for choice in list_of(message.get("choices")):
            fields = object_of(choice)
            self._take_parts(fields, object_of(fields.get("message")))
            self._take_finish(fields)

    def skipped(self, count: int | None) -> None:
        self.counted = count
        if count is not None:
            self.answer.output_tokens = count

    def end(self) -> None:
        answer = self.answer
        answer.text = "".join(self._text)
        answer.reasoning = "".join(self._reasoning)
        answer.tool_calls = list(self._calls.values())
        brought_tokens = bool(answer.output_tokens) or bool(answer.chunk_ns)
        answer.no_answer_text = brought_tokens and not self._answered

    def _take_parts(self, choice: JsonObject, delta: JsonObject) -> bool:
        """Text, reasoning under either name (once), tool calls; False when there is none of them."""
        text = str_of(choice.get("text")) or str_of(delta.get("content"))
        tool_calls = list_of(delta.get("tool_calls"))
        for call in tool_calls:
            self._take_tool_call(object_of(call))
        reasoning = str_of(delta.get("reasoning_content")) or str_of(delta.get("reasoning"))
        if text:
            self._text.append(text)
        if reasoning:
            self._reasoning.append(reasoning)
        if text or tool_calls:
            self._answered = True
        return bool(text or tool_calls or reasoning)

    def _take_tool_call(self, call: JsonObject) -> None:
        """A whole call, or a piece of one: a stream sends the name once and the arguments in pieces."""
        index = int_of(call.get("index"))
        own = -1 - len(self._calls)  # of a call that comes without one
        known = self._calls.setdefault(own if index is None else index, ToolCall())
        function = object_of(call.get("function"))
        known.name = str_of(function.get("name")) or known.name
        known.arguments += str_of(function.get("arguments")) or ""

    def _take_finish(self, choice: JsonObject) -> None:
        reason = str_of(choice.get("finish_reason"))
        if reason is None:
            return
        self.answer.finish_reason = reason
        if reason in ("abort", "error"):
            fail(self.answer, "engine_error", f"the engine ended the request with finish_reason {reason!r}")

    def _tokens_since_last_chunk(self, message: JsonObject) -> int | None:
        """Difference of the server's running count, where each chunk has one (continuous usage)."""
        now = int_of(object_of(message.get("usage")).get("completion_tokens"))
        before, self.counted = self.counted, now
        return now - before if now is not None and before is not None and now >= before else None

    def _take_totals(self, message: JsonObject) -> None:
        usage, answer = message.get("usage"), self.answer
        answer.response_id = answer.response_id or str_of(message.get("id"))
        if isinstance(usage, dict):
            answer.input_tokens = int_of(usage.get("prompt_tokens"))
            answer.output_tokens = int_of(usage.get("completion_tokens"))
            # Absent or null details mean that the server does not report them, not zero (case O-P4).
            cached = int_of(object_of(usage.get("prompt_tokens_details")).get("cached_tokens"))
            answer.cached_tokens = answer.cached_tokens if cached is None else cached
        if "sglext" in message:
            self._take_sglext(object_of(message["sglext"]))
        if "timings" in message:
            self._take_timings(object_of(message["timings"]))
        if "metrics" in message:
            self._take_metrics(object_of(message["metrics"]))

    def _take_sglext(self, sglext: JsonObject) -> None:
        """SGLang's tiers of cached tokens; left out by the server when nothing was cached."""
        details = sglext.get("cached_tokens_details")
        if not isinstance(details, dict):
            return
        answer = self.answer
        take_cached_tiers(answer, details)
        if answer.cached_tokens is None:
            tiers = (answer.cached_tokens_device, answer.cached_tokens_host, answer.cached_tokens_storage)
            answer.cached_tokens = sum(tier or 0 for tier in tiers)

    def _take_timings(self, timings: JsonObject) -> None:
        """llama.cpp's own counts, for what `usage` did not say. `prompt_n` excludes `cache_n`."""
        answer = self.answer
        cached, computed = int_of(timings.get("cache_n")), int_of(timings.get("prompt_n"))
        if answer.cached_tokens is None:
            answer.cached_tokens = cached
        if answer.input_tokens is None and cached is not None and computed is not None:
            answer.input_tokens = cached + computed
        if answer.output_tokens is None:
            answer.output_tokens = int_of(timings.get("predicted_n"))
        answer.engine_prefill_s = seconds_of_ms(timings.get("prompt_ms"))
        answer.engine_decode_s = seconds_of_ms(timings.get("predicted_ms"))
        answer.draft_tokens = int_of(timings.get("draft_n"))
        answer.accepted_tokens = int_of(timings.get("draft_n_accepted"))

    def _take_metrics(self, metrics: JsonObject) -> None:
        """vLLM's per-request metrics; its time to the first token starts when the queue ends."""
        answer = self.answer
        queue_s = answer.engine_queue_s = seconds_of_ms(metrics.get("queue_time_ms"))
        prefill_s = answer.engine_prefill_s = seconds_of_ms(metrics.get("time_to_first_token_ms"))
        gap_s = seconds_of_ms(metrics.get("mean_itl_ms"))
        if gap_s is not None and answer.output_tokens:
            answer.engine_decode_s = gap_s * (answer.output_tokens - 1)
        if queue_s is not None and prefill_s is not None:
            answer.engine_ttft_s = queue_s + prefill_s
        speculation = object_of(metrics.get("speculative_decoding"))
        answer.accept_length = float_of(speculation.get("mean_acceptance_length"))
        answer.draft_tokens = int_of(speculation.get("num_draft_tokens"))
        answer.accepted_tokens = int_of(speculation.get("num_accepted_draft_tokens"))


class OpenAI:
    """A server of which only the OpenAI routes are known; engines that have more of their own build on it."""

    name = "openai"

    def template(self, shape: RequestShape) -> BodyTemplate:
        # Not an OpenAI field: strict servers refuse it, so it is sent only when it is asked for.
        return openai_template(shape, {"ignore_eos": True} if shape.ignore_eos else {})

    def decoder(self, shape: RequestShape, *, event_bytes_max: int, skim: bool = False) -> Decoder:
        return openai_decoder(shape, event_bytes_max=event_bytes_max, skim=skim)

    async def alive(self, http: Http) -> Reply:
        return await http.request("GET", "/v1/models")

    async def queue(self, http: Http) -> QueueState | None:
        return None

    async def flush(self, http: Http, *, timeout_s: float, storage: bool = False) -> FlushReply:
        note = "the OpenAI protocol has no call that empties a prefix cache: switch the cache off on the server"
        return FlushReply(False, Reply(None, error="not sent"), unsupported=True, note=note)

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        return None

    async def latencies(self, http: Http) -> Mapping[str, Histogram]:
        return {}

    async def facts(self, http: Http) -> Facts:
        card = await model_card(http)
        return Facts(engine=self.name, model=card.model, context_tokens=card.context_tokens, raw=card.raw)

    async def abort(self, http: Http, rid: str) -> Reply | None:
        return None

    def read_log_line(self, line: str) -> LogLine | None:
        return None
