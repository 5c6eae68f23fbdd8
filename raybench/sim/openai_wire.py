"""Bytes of SGLang's OpenAI routes: chunks, plain answers, usage. As version 0.5.23 sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import orjson

from raybench.sim.asking import Ask
from raybench.sim.faults import Faults
from raybench.sim.replies import refusal_object
from raybench.sim.request import Finish, Request
from raybench.sim.tokens import TokenRing

Kind = Literal["chat", "completion"]


class OpenAIWire:
    """One answer of one of the two routes. `created` is unix seconds."""

    def __init__(self, kind: Kind, ask: Ask, ring: TokenRing, faults: Faults, created: int) -> None:
        self._faults = faults
        self._kind = kind
        self._ask = ask
        self._ring = ring
        self._created = created

    def chunks(self, begin: int) -> bytes:
        """The events that show output tokens [begin, now); all the closing ones when the request ended."""
        request = self._ask.request
        if request.finish is not None and request.finish.status is not None:
            return _event({"error": refusal_object(request.finish)})
        if self._kind == "completion":
            return self._completion_chunks(request, begin)
        events = []
        if begin == 0 and request.output:
            events.append(self._choice({"reasoning_content": None, "role": "assistant", "content": ""}, None))
        reasoning, content = self._shown(begin)
        if reasoning:
            events.append(self._delta({"reasoning_content": reasoning, "content": None}))
        if content:
            events.append(self._delta({"reasoning_content": None, "content": content}))
        if request.finish is not None:
            if calls := self._calls():
                events.append(self._delta({"reasoning_content": None, "tool_calls": calls}))
            events.append(self._choice({"reasoning_content": None}, self._reason(request.finish)))
        return b"".join(events) + self._closing(request)

    def answer(self) -> bytes:
        """The body without streaming."""
        request = self._ask.request
        assert request.finish is not None
        said: dict[str, object]
        if self._kind == "chat":
            reasoning, content = self._shown(0)
            message: dict[str, object] = {"role": "assistant", "content": content, "reasoning_content": reasoning}
            if calls := self._calls():
                message |= {"content": None, "tool_calls": calls}
            said = {"message": message}
        else:
            said = {"text": self._text(0)}
        choice = (
            {"index": 0}
            | said
            | {
                "logprobs": None,
                "finish_reason": self._reason(request.finish),
                "matched_stop": None,
            }
        )
        spans = [{"version": "default", "start": 0, "end": request.output}]
        return orjson.dumps(
            self._head("chat.completion" if self._kind == "chat" else "text_completion")
            | {
                "choices": [choice],
                "usage": self._usage(request),
                "metadata": {"weight_version": "default", "weight_versions": spans},
            }
        )

    def _completion_chunks(self, request: Request, begin: int) -> bytes:
        reason = None if request.finish is None else request.finish.kind
        event = b""
        if request.output > begin or reason is not None:
            choice = {
                "index": 0,
                "text": self._text(begin),
                "logprobs": None,
                "finish_reason": reason,
                "matched_stop": None,
            }
            usage = self._usage(request) if self._ask.continuous_usage else None
            event = _event(self._head("text_completion") | {"choices": [choice], "usage": usage})
        return event + self._closing(request)

    def _shown(self, begin: int) -> tuple[str | None, str]:
        """Reasoning, where the model thinks aloud, and content of the output tokens [begin, now)."""
        said = self._ask.said
        if said is None:
            return None, self._text(begin)
        reasoning, content = said.shown(begin, self._ask.request.output)
        return reasoning or None, content

    def _calls(self) -> list[dict[str, object]]:
        """The call of a tool, once it is said to its end."""
        said, request = self._ask.said, self._ask.request
        if said is None or said.call is None or request.output < said.tokens:
            return []
        call_id = f"call_{request.rid[:24]}"
        return [{"id": call_id, "index": 0, "type": "function", "function": dict(said.call)}]

    def _reason(self, finish: Finish) -> str:
        return "tool_calls" if self._calls() else finish.kind

    def _delta(self, delta: Mapping[str, object]) -> bytes:
        return self._choice(delta, None, usage=self._ask.continuous_usage)

    def _choice(self, delta: Mapping[str, object], reason: str | None, *, usage: bool = False) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": reason,
            "matched_stop": None,
        }
        body = self._head("chat.completion.chunk") | {"choices": [choice]}
        if usage:
            body["usage"] = self._usage(self._ask.request)
        return _event(body)

    def _closing(self, request: Request) -> bytes:
        """After the last choice: tiers of the cache hits, usage, each only if asked for."""
        if request.finish is None:
            return b""
        head = self._head("chat.completion.chunk" if self._kind == "chat" else "text_completion")
        events = b""
        if self._ask.cache_details and self._faults.told_cached(request):
            tiers = self._faults.told_tiers(request.cached_device, request.cached_host)
            events += _event(head | {"choices": [], "sglext": {"cached_tokens_details": tiers}})
        if self._ask.usage:
            usage = self._usage(request)
            if self._kind == "completion":
                del usage["completion_tokens_details"]
            events += _event(head | {"choices": [], "usage": usage})
        return events

    def _usage(self, request: Request) -> dict[str, object]:
        cached = self._faults.told_cached(request)
        return {
            "prompt_tokens": self._faults.told_input(request),
            "total_tokens": request.length,
            "completion_tokens": self._faults.told_output(request),
            "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
            "reasoning_tokens": 0 if self._ask.said is None else min(len(self._ask.said.thought), request.output),
            "completion_tokens_details": None,
        }

    def _head(self, kind: str) -> dict[str, object]:
        return {
            "id": self._ask.request.rid,
            "object": kind,
            "created": self._created,
            "model": self._ask.model,
        }

    def _text(self, begin: int) -> str:
        request = self._ask.request
        return self._ring.text_bytes(request.ring_start + begin, request.output - begin).decode()


def _event(body: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(body)
