"""What raybench needs from a serving engine: bodies, answers, and the control calls of the procedure.

Engines are pure: they make bytes and read bytes. Sockets belong to the callers, which pass in an
`Http` for control calls and feed read bytes with their stamps to a `Decoder`. One class an engine,
chosen from a plain dict in `engines/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import orjson

from raybench.engines.histogram import Histogram

if TYPE_CHECKING:  # the merge works without pydantic
    from raybench.scenario.schema import Route


@dataclass(frozen=True)
class Reply:
    """Answer to one control call. A failed connection is a Reply with status None and `error`."""

    status: int | None
    body: bytes = b""
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def summary(self) -> str:
        """Status and the start of the body on one line, for the journal and for messages."""
        if self.status is None:
            return self.error or "no answer"
        return f"HTTP {self.status} {' '.join(self.body[:200].decode('utf-8', 'replace').split())}".rstrip()

    def json(self) -> Any:
        """The JSON of a 200; None for any other status and for a body that is no JSON."""
        if not self.ok:
            return None
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


class Http(Protocol):
    """Control-plane HTTP. Never raises for what the network or the server does. Never resends a POST."""

    async def request(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: object = None,
        timeout_s: float = 10.0,
    ) -> Reply: ...


@dataclass(frozen=True)
class RequestShape:
    """What all requests of a point have in common; the prompt and the rid differ.

    prompt: `corpus` = what the route takes of a corpus (token ids, or text on chat), `text` = text on any route,
    as chat messages on chat.
    """

    route: Route
    input_tokens: int
    output_tokens: int
    model: str | None = None
    temperature: float = 0.0
    ignore_eos: bool = True
    stream: bool = True
    extra_body: Mapping[str, object] = field(default_factory=dict)
    prompt: Literal["corpus", "text"] = "corpus"


@dataclass(frozen=True)
class BodyTemplate:
    """A request body cut open at the prompt and at the request id.

    prompt: `ids` = comma-separated decimal token ids go between head and tail (no brackets), `text` =
    JSON-escaped text goes there (no quotes), `messages` = chat messages joined by commas (no brackets).
    rid_slot: bytes in `head` or `tail` that are replaced by the rid, or None where the engine takes none.
    """

    path: str
    prompt: Literal["ids", "text", "messages"]
    head: bytes
    tail: bytes
    rid_slot: bytes | None = None

    def render(self, rid: str, prompt: bytes) -> bytes:
        """The body of one request."""
        head, tail = self.head, self.tail
        if self.rid_slot is not None:
            head = head.replace(self.rid_slot, rid.encode())
            tail = tail.replace(self.rid_slot, rid.encode())
        return b"".join((head, prompt, tail))


@dataclass
class ToolCall:
    """One call that an answer asks for. arguments: JSON as text, put together from the pieces of a stream."""

    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """What a decoder knows after the end of a body. Stamps are the caller's monotonic ns.

    error_class None means that the body itself shows no failure. Tokens come from the server's own
    counts; `tokens_source` is `estimated` when it gave none (then output_tokens = chunks seen), `none` when
    no token was seen either. After a failure output_tokens holds what was seen before it. `events` leaves
    [DONE] out. An answer that is not streamed has no token stamps, and output_tokens None without a count.
    cached_tokens None = not reported. chunk_ns and chunk_tokens have equal length; chunk_tokens are
    the differences of the server's cumulative count where it gives one, else None for that chunk.
    response_id: the answer's own `id`. engine_decode_s: from the first token to the last by the engine's clock;
    engine_prefill_s: before that, without the queue. draft_tokens, accepted_tokens: of speculative decoding,
    the bonus token of a round in neither.
    """

    first_event_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    chunk_ns: list[int] = field(default_factory=list)
    chunk_tokens: list[int | None] = field(default_factory=list)
    events: int = 0
    bytes_received: int = 0
    text: str = ""
    text_complete: bool = True
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    response_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens_source: Literal["server", "estimated", "none"] = "none"
    cached_tokens: int | None = None
    cached_tokens_device: int | None = None
    cached_tokens_host: int | None = None
    cached_tokens_storage: int | None = None
    retractions: int | None = None
    dp_rank: int | None = None
    accept_length: float | None = None
    finish_reason: str | None = None
    done_marker: bool = False
    no_answer_text: bool = False
    # engine_error | engine_<code>, as engine_503 | broken_stream | bad_event | event_too_large
    error_class: str | None = None
    error_message: str | None = None
    engine_queue_s: float | None = None
    engine_ttft_s: float | None = None
    engine_e2e_s: float | None = None
    engine_prefill_s: float | None = None
    engine_decode_s: float | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    verify_rounds: int | None = None


class Decoder(Protocol):
    """Reads the body of one answer. Independent of where reads begin and end."""

    def feed(self, data: bytes, stamp_ns: int) -> None:
        """Body bytes as read from the socket (HTTP framing removed), with the stamp of the read."""

    def finish(self, *, complete: bool) -> Answer:
        """The end of the body; complete False when the connection broke before it."""


@dataclass(frozen=True)
class QueueState:
    """Requests inside the engine by its own numbers."""

    running: int
    queued: int

    @property
    def idle(self) -> bool:
        return self.running == 0 and self.queued == 0


@dataclass(frozen=True)
class FlushReply:
    """accepted: the engine says that it did it (which proves nothing). unsupported: it cannot.

    note: why it cannot and what to do about it, for people; empty when there is nothing to say.
    """

    accepted: bool
    reply: Reply
    unsupported: bool = False
    note: str = ""


@dataclass(frozen=True)
class Counters:
    """The engine's counters since its start. None = the engine has no such counter.

    prefix_queried_tokens / prefix_hit_tokens: prompt tokens looked up in the prefix cache, and found in
    any tier. SGLang: `prefill_effective_tokens_total` (input + hits, hits; retractions excluded) where it
    exists; vLLM: `prefix_cache_queries/hits` plus external hits.
    """

    requests: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float | None = None
    prefix_queried_tokens: float | None = None
    prefix_hit_tokens: float | None = None
    preemptions: float | None = None


@dataclass(frozen=True)
class Gauges:
    """What the server monitor keeps of one scrape, beside the counters."""

    running_requests: float | None = None
    queued_requests: float | None = None
    kv_used_tokens: float | None = None
    kv_usage: float | None = None
    output_tokens_per_s: float | None = None
    accept_length: float | None = None

    @property
    def queue(self) -> QueueState | None:
        """None when one of its numbers is not known."""
        if self.running_requests is None or self.queued_requests is None:
            return None
        return QueueState(int(self.running_requests), int(self.queued_requests))


@dataclass(frozen=True)
class Facts:
    """What the engine says of itself. `raw` is redacted before it leaves this class's maker.

    instance: changes when the server process was started anew; None when the engine gives no clue.
    """

    engine: str
    version: str | None = None
    model: str | None = None
    instance: str | None = None
    max_running_requests: int | None = None
    kv_pool_tokens: int | None = None
    context_tokens: int | None = None
    max_input_tokens: int | None = None
    page_tokens: int | None = None
    dp_size: int | None = None
    prefix_cache: bool | None = None
    host_cache: bool | None = None
    storage_cache: str | None = None
    incremental_stream: bool | None = None
    raw: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class LogLine:
    """One line of the engine's log that tells something about its cache: columns of `records.schema.SERVER_LOG`.

    dp_group, stage, twins: which process printed it; twins tells those apart that do the same work (tensor,
    expert and context ranks).
    """

    kind: Literal["prefill", "retraction", "flush", "flush_refused"]
    dp_group: int | None = None
    stage: int = 0
    twins: str = ""
    requests: int | None = None
    new_tokens: int | None = None
    cached_tokens: int | None = None
    told_hit_rate: float | None = None


class Engine(Protocol):
    """One serving engine's dialect. Stateless."""

    name: str

    def template(self, shape: RequestShape) -> BodyTemplate: ...

    def decoder(self, shape: RequestShape, *, event_bytes_max: int, skim: bool = False) -> Decoder:
        """A reader of one answer. `skim`: count tokens without keeping the text, where the route allows it."""

    async def alive(self, http: Http) -> Reply:
        """A passive probe (never one that generates)."""

    async def queue(self, http: Http) -> QueueState | None:
        """None when the engine gives no such numbers."""

    async def flush(self, http: Http, *, timeout_s: float, storage: bool = False) -> FlushReply:
        """One request to empty the prefix cache. `timeout_s` is passed on where the engine can wait.

        storage: also ask to empty the storage tier, where the engine says that it has one.
        """

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        """Counters and gauges of one /metrics read; None when there is none."""

    async def latencies(self, http: Http) -> Mapping[str, Histogram]:
        """Its own latency histograms since its start, by `LatencyName`; empty when it keeps none."""

    async def facts(self, http: Http) -> Facts: ...

    async def abort(self, http: Http, rid: str) -> Reply | None:
        """Ask the engine to drop one request; None when it has no such call."""

    def read_log_line(self, line: str) -> LogLine | None:
        """What one line of the engine's own log tells; None for all other lines."""
