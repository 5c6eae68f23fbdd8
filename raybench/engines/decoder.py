"""From the bytes of one answer to an `Answer`: what all engines have in common.

Runs in the load worker. A decoder frames bytes, parses each event and hands the message to a
`MessageReader`, which knows one dialect (`sglang_generate.py`, `openai.py`). Failures that a body can
show are found here (cases O-S5, O-N3): an error object, something that is no JSON object, an event
over the limit, an end that is none. The first failure is kept; tokens seen before it stay counted.
"""

from __future__ import annotations

from typing import Protocol

from raybench.engines.contract import Answer
from raybench.engines.events import EventReader
from raybench.engines.loose_json import JsonObject, int_of, object_of, parse_object, str_of

DONE = b"[DONE]"


class MessageReader(Protocol):
    """Reads the JSON messages of one answer, in one dialect, into `answer`."""

    answer: Answer

    def event(self, message: JsonObject, stamp_ns: int) -> None:
        """One message of a stream, with the stamp of the read that completed it."""

    def body(self, message: JsonObject) -> None:
        """The whole body of an answer that is not streamed."""

    @property
    def counted(self) -> int | None:
        """The server's running token count as of the last chunk; None where it gives none."""

    def skipped(self, count: int | None) -> None:
        """Messages were counted without being read; `count` is what `counted` is after them."""

    def end(self) -> None:
        """No more messages: settle what is known only now."""


class StreamDecoder:
    """Decoder of a streamed answer (server-sent events)."""

    def __init__(self, reader: MessageReader, *, event_bytes_max: int) -> None:
        self._reader = reader
        self._answer = reader.answer
        self._events = EventReader(event_bytes_max)
        self._event_bytes_max = event_bytes_max
        self._start = b""
        self._last_read_ns = 0

    def feed(self, data: bytes, stamp_ns: int) -> None:
        self._answer.bytes_received += len(data)
        self._last_read_ns = stamp_ns
        if self._answer.first_event_ns is None:
            self._start = (self._start + data[:200])[:200]
        for payload in self._events.feed(data):
            self._take(payload, stamp_ns)

    @property
    def overflowed(self) -> bool:
        """An event was over the limit: nothing is read any more."""
        return self._events.overflowed

    def finish(self, *, complete: bool) -> Answer:
        answer = self._answer
        if self._events.overflowed:
            fail(answer, "event_too_large", f"an event is larger than {self._event_bytes_max} bytes")
        if complete:
            for payload in self._events.close():
                self._take_unterminated(payload)
        self._reader.end()
        if not answer.done_marker and not complete:
            fail(answer, "broken_stream", f"the connection broke after {answer.events} events")
        elif not answer.done_marker and answer.finish_reason is None:
            fail(answer, "broken_stream", self._how_it_ended())
        if answer.output_tokens is not None:
            answer.tokens_source = "server"
        else:
            answer.output_tokens = len(answer.chunk_ns)
            answer.tokens_source = "estimated" if answer.chunk_ns else "none"
        return answer

    def _take(self, payload: bytes, stamp_ns: int) -> None:
        answer = self._answer
        if answer.first_event_ns is None:
            answer.first_event_ns = stamp_ns
        if payload.strip() == DONE:
            answer.done_marker = True
            return
        answer.events += 1
        message = parse_object(payload)
        if message is None:
            fail(answer, "bad_event", f"an event is not a JSON object: {_excerpt(payload)}")
        elif not take_error(answer, message):
            self._reader.event(message, stamp_ns)

    def _take_unterminated(self, payload: bytes) -> None:
        """A last event without its blank line counts when it is whole, else the stream was cut in it."""
        if payload.strip() == DONE or parse_object(payload) is not None:
            self._take(payload, self._last_read_ns)
        else:
            fail(self._answer, "broken_stream", f"the stream ends inside an event: {_excerpt(payload)}")

    def _how_it_ended(self) -> str:
        if self._answer.first_event_ns is None:
            return f"the answer holds no event; it starts with: {_excerpt(self._start)}"
        return f"the stream ended after {self._answer.events} events without a finish reason or [DONE]"


class BodyDecoder:
    """Decoder of an answer that is not streamed: one JSON object. It has no token stamps."""

    def __init__(self, reader: MessageReader, *, event_bytes_max: int) -> None:
        self._reader = reader
        self._answer = reader.answer
        self._body_bytes_max = event_bytes_max
        self._parts: list[bytes] = []

    def feed(self, data: bytes, stamp_ns: int) -> None:
        self._answer.bytes_received += len(data)
        if self._answer.bytes_received > self._body_bytes_max:
            fail(self._answer, "event_too_large", f"the body is larger than {self._body_bytes_max} bytes")
            self._parts.clear()
        else:
            self._parts.append(data)

    def finish(self, *, complete: bool) -> Answer:
        answer = self._answer
        if not complete:
            fail(answer, "broken_stream", f"the connection broke after {answer.bytes_received} bytes")
        if answer.error_class is None:
            body = b"".join(self._parts)
            message = parse_object(body)
            if message is None:
                fail(answer, "bad_event", f"the body is not a JSON object: {_excerpt(body)}")
            elif not take_error(answer, message):
                self._reader.body(message)
        self._reader.end()
        answer.tokens_source = "none" if answer.output_tokens is None else "server"
        return answer


def add_chunk(answer: Answer, stamp_ns: int, tokens: int | None) -> None:
    """Tokens arrived. `tokens` None: the server did not say how many (a chunk is not a token, O-T1)."""
    if answer.first_token_ns is None:
        answer.first_token_ns = stamp_ns
    answer.last_token_ns = stamp_ns
    answer.chunk_ns.append(stamp_ns)
    answer.chunk_tokens.append(tokens)


def fail(answer: Answer, error_class: str, message: str) -> None:
    """The answer failed. Only the first failure is kept: what follows it is a consequence."""
    if answer.error_class is None:
        answer.error_class = error_class
        answer.error_message = message


def engine_error_class(code: object) -> str:
    """`engine_503` for a numeric code inside the body, else `engine_error`."""
    if isinstance(code, str) and code.isdecimal():
        return f"engine_{code}"
    number = int_of(code)
    return "engine_error" if number is None else f"engine_{number}"


def take_error(answer: Answer, message: JsonObject) -> bool:
    """Does the message report a failure instead of tokens? `error: null` is none.

    Shapes: `{"error": {"message", "code"}}`, `{"error": "text"}`, `{"object": "error", "message", "code"}`.
    """
    error = message.get("error")
    if error is None and message.get("object") == "error":
        error = message
    if error is None:
        return False
    details = object_of(error)
    text = str_of(error) or str_of(details.get("message")) or _excerpt(str(error).encode())
    fail(answer, engine_error_class(details.get("code")), text)
    return True


def take_cached_tiers(answer: Answer, details: object) -> None:
    """`{"device", "host", "storage"}` as SGLang gives it on /generate and on the OpenAI routes (`sglext`)."""
    tiers = object_of(details)
    answer.cached_tokens_device = int_of(tiers.get("device"))
    answer.cached_tokens_host = int_of(tiers.get("host"))
    answer.cached_tokens_storage = int_of(tiers.get("storage"))


def _excerpt(data: bytes) -> str:
    return data[:200].decode("utf-8", "replace") or "(nothing)"
