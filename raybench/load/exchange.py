"""One request and what came of it, as all clients tell it, and the record that is made of it. Pure.

A failed request is a record, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybench.engines.contract import Answer
from raybench.load.order import Order
from raybench.records.schema import Outcome

#: How much of an error body is kept in a record.
ERROR_TEXT_MAX = 500
#: The field of RequestLimits that a timeout ran into.
LIMIT_OF = {
    "timeout_connect": "connect_timeout_s",
    "timeout_idle": "idle_timeout_s",
    "timeout_total": "request_timeout_s",
}


@dataclass(slots=True)
class Stamps:
    """Monotonic ns of one request's way to the socket and back."""

    asked_ns: int
    connected_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    end_ns: int = 0
    reused: bool = False  # it was used before, or had idled long enough for the server to close it
    connect_ns: int | None = None  # how long the set-up of the connection took, whenever that was


@dataclass(frozen=True)
class Failure:
    """Why a request failed: the record's `outcome`, a class to group by, a text."""

    outcome: Outcome
    error_class: str
    message: str

    @classmethod
    def of_answer(cls, answer: Answer) -> Failure | None:
        """What the body itself shows; None when it shows no failure."""
        if answer.error_class is None:
            return None
        stream = answer.error_class in ("broken_stream", "bad_event", "event_too_large")
        return cls(
            "bad_stream" if stream else "engine_error",
            answer.error_class,
            answer.error_message or answer.error_class,
        )


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what came of it. tries: HTTP requests that left; status: None if none came back."""

    stamps: Stamps
    answer: Answer
    failure: Failure | None
    tries: int
    status: int | None


def record(
    order: Order, worker: str, ticket: int, exchange: Exchange, scheduled_ns: int | None = None
) -> dict[str, object]:
    """One row of records.schema.REQUESTS. A failed request keeps its partial tokens apart.

    scheduled_ns: when it was due, monotonic, in an open loop.
    """
    stamps, answer, failure = exchange.stamps, exchange.answer, exchange.failure
    ok = failure is None
    start, shape, prompt = int(order.windows[ticket]), order.shape_of(ticket), order.prompt_of(ticket)
    return {
        "point_id": order.point_id,
        "attempt": order.attempt,
        "phase": order.phase,
        "worker": worker,
        "ticket": ticket,
        "rid": order.rid(ticket),
        "prompt": None if prompt is None else prompt.name,
        "window_start": start if prompt is None else None,
        "window_end": start + shape.input_tokens if prompt is None else None,
        "tries": exchange.tries,
        "scheduled_ns": scheduled_ns,
        "asked_ns": stamps.asked_ns,
        "connected_ns": stamps.connected_ns,
        "connect_ms": None if stamps.connect_ns is None else stamps.connect_ns / 1e6,
        "sent_ns": stamps.sent_ns,
        "headers_ns": stamps.headers_ns,
        "first_event_ns": answer.first_event_ns,
        "first_token_ns": answer.first_token_ns,
        "last_token_ns": answer.last_token_ns,
        "end_ns": stamps.end_ns,
        "outcome": "ok" if failure is None else failure.outcome,
        "error_class": None if failure is None else failure.error_class,
        "error_message": None if failure is None else failure.message,
        "http_status": exchange.status,
        "finish_reason": answer.finish_reason,
        "done_marker": answer.done_marker,
        "input_tokens_asked": shape.input_tokens if prompt is None else None,
        "output_tokens_asked": shape.output_tokens,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens if ok else 0,
        "partial_output_tokens": None if ok else answer.output_tokens or 0,
        "tokens_source": answer.tokens_source,
        "first_chunk_tokens": answer.chunk_tokens[0] if answer.chunk_tokens else None,
        "cached_tokens": answer.cached_tokens,
        "cached_tokens_device": answer.cached_tokens_device,
        "cached_tokens_host": answer.cached_tokens_host,
        "cached_tokens_storage": answer.cached_tokens_storage,
        "retractions": answer.retractions,
        "dp_rank": answer.dp_rank,
        "accept_length": answer.accept_length,
        "no_answer_text": answer.no_answer_text,
        "text_chars": len(answer.text) if answer.text_complete else None,
        "bytes_received": answer.bytes_received,
        "events": answer.events,
        "engine_queue_s": answer.engine_queue_s,
        "engine_ttft_s": answer.engine_ttft_s,
        "engine_e2e_s": answer.engine_e2e_s,
        "engine_prefill_s": answer.engine_prefill_s,
        "engine_decode_s": answer.engine_decode_s,
        "draft_tokens": answer.draft_tokens,
        "accepted_tokens": answer.accepted_tokens,
        "verify_rounds": answer.verify_rounds,
        "response_id": answer.response_id,
        "answer_text": None if prompt is None else answer.text,
        "reasoning_text": None if prompt is None else answer.reasoning,
        "chunk_ns": answer.chunk_ns if order.keep_chunks else None,
        "chunk_tokens": answer.chunk_tokens if order.keep_chunks else None,
    }
