"""One request and what came of it, as all clients tell it, and the record that is made of it. No sockets.

A failed request is a record, never an exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields

from raybench.engines.contract import Answer, Decoder
from raybench.load.order import Order
from raybench.records.schema import REQUESTS, Outcome

#: How much of an error body is kept in a record.
ERROR_TEXT_MAX = 500
#: The field of RequestLimits that a timeout ran into.
LIMIT_OF = {
    "timeout_connect": "connect_timeout_s",
    "timeout_idle": "idle_timeout_s",
    "timeout_total": "request_timeout_s",
}
#: What a record has of its answer under the same name: as it stands there, where `record` does not say otherwise.
OF_ANSWER = tuple(field.name for field in fields(Answer) if field.name in REQUESTS.names)


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
class Try:
    """One HTTP request. complete: the response came to its end. silent: no byte of it is known to have come."""

    stamps: Stamps
    status: int | None
    failure: Failure | None
    complete: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what came of it. tries: HTTP requests that left; status: None if none came back."""

    stamps: Stamps
    answer: Answer
    failure: Failure | None
    tries: int
    status: int | None


async def send_with_retry(send: Callable[[bool], Awaitable[Try]], decoder: Decoder) -> Exchange:
    """One request, to its end; `send` is told whether it has to take a new connection.

    A connection that was used before, or has waited since it was opened, and on which not one response byte came
    is tried again once, openly (`tries` 2) and on a new one: the server closed it while it was idle.
    """
    one, tries = await send(False), 1
    if one.failure is not None and one.failure.outcome == "disconnected" and one.silent and one.stamps.reused:
        one, tries = await send(True), 2
    answer = decoder.finish(complete=one.complete)
    return Exchange(one.stamps, answer, one.failure or Failure.of_answer(answer), tries, one.status)


def record(
    order: Order, worker: str, ticket: int, exchange: Exchange, scheduled_ns: int | None = None
) -> dict[str, object]:
    """One row of records.schema.REQUESTS. A failed request keeps its partial tokens apart.

    scheduled_ns: when it was due, monotonic, in an open loop.
    """
    stamps, answer, failure = exchange.stamps, exchange.answer, exchange.failure
    ok = failure is None
    start, shape, prompt = int(order.windows[ticket]), order.shape_of(ticket), order.prompt_of(ticket)
    return {name: getattr(answer, name) for name in OF_ANSWER} | {
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
        "end_ns": stamps.end_ns,
        "outcome": "ok" if failure is None else failure.outcome,
        "error_class": None if failure is None else failure.error_class,
        "error_message": None if failure is None else failure.message,
        "http_status": exchange.status,
        "input_tokens_asked": shape.input_tokens if prompt is None else None,
        "output_tokens_asked": shape.output_tokens,
        "output_tokens": answer.output_tokens if ok else 0,
        "partial_output_tokens": None if ok else answer.output_tokens or 0,
        "first_chunk_tokens": answer.chunk_tokens[0] if answer.chunk_tokens else None,
        "text_chars": len(answer.text) if answer.text_complete else None,
        "answer_text": None if prompt is None else answer.text,
        "reasoning_text": None if prompt is None else answer.reasoning,
        "chunk_ns": answer.chunk_ns if order.load.keep_chunks else None,
        "chunk_tokens": answer.chunk_tokens if order.load.keep_chunks else None,
    }
