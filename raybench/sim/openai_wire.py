"""Bytes of SGLang's OpenAI routes: chunks, plain answers, usage. As version 0.5.23 sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import orjson

from raybench.sim.asking import Ask
from raybench.sim.faults import Faults
from raybench.sim.replies import refusal_object
from raybench.sim.request import Request
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
        if (refusal := request.refusal) is not None:
            return _event({"error": refusal_object(refusal)})
        shown = self._completion(request, begin) if self._kind == "completion" else self._chat(request, begin)
        return shown + self._closing(request)

    def answer(self) -> bytes:
        """The body without streaming."""
        request = self._ask.request
        shown: dict[str, object] = {"text": self._text(0)}
        if self._kind == "chat":
            reasoning, content = self._shown(0)
            message: dict[str, object] = {"role": "assistant", "content": content, "reasoning_content": reasoning}
            if calls := self._calls():
                message |= {"content": None, "tool_calls": calls}
            shown = {"message": message}
        spans = [{"version": "default", "start": 0, "end": request.output}]
        return orjson.dumps(
            self._head("chat.completion" if self._kind == "chat" else "text_completion")
            | {
                "choices": [_choice(shown, self._reason())],
                "usage": self._usage(request),
                "metadata": {"weight_version": "default", "weight_versions": spans},
            }
        )

    def _chat(self, request: Request, begin: int) -> bytes:
        events = b""
        if begin == 0 and request.output:
            events += self._delta({"reasoning_content": None, "role": "assistant", "content": ""}, usage=False)
        reasoning, content = self._shown(begin)
        if reasoning:
            events += self._delta({"reasoning_content": reasoning, "content": None})
        if content:
            events += self._delta({"reasoning_content": None, "content": content})
        if request.finish is not None:
            if calls := self._calls():
                events += self._delta({"reasoning_content": None, "tool_calls": calls})
            events += self._delta({"reasoning_content": None}, self._reason(), usage=False)
        return events

    def _completion(self, request: Request, begin: int) -> bytes:
        if request.output == begin and request.finish is None:
            return b""
        choice = _choice({"text": self._text(begin)}, self._reason())
        usage = self._usage(request) if self._ask.continuous_usage else None
        return _event(self._head("text_completion") | {"choices": [choice], "usage": usage})

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

    def _reason(self) -> str | None:
        """How it ended; None before it did."""
        if self._calls():
            return "tool_calls"
        finish = self._ask.request.finish
        return None if finish is None else finish.kind

    def _delta(self, delta: Mapping[str, object], reason: str | None = None, *, usage: bool = True) -> bytes:
        """One event of a chat. usage: it tells the usage so far where every event is to."""
        body = self._head("chat.completion.chunk") | {"choices": [_choice({"delta": delta}, reason)]}
        if usage and self._ask.continuous_usage:
            body["usage"] = self._usage(self._ask.request)
        return _event(body)

    def _closing(self, request: Request) -> bytes:
        """After the last choice: tiers of the cache hits, usage, each only if asked for."""
        if request.finish is None:
            return b""
        head = self._head("chat.completion.chunk" if self._kind == "chat" else "text_completion")
        events = b""
        if self._ask.cache_details and self._faults.told_cached(request):
            tiers = self._faults.told_tiers(request)
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


def _choice(shown: Mapping[str, object], reason: str | None) -> dict[str, object]:
    return {"index": 0, **shown, "logprobs": None, "finish_reason": reason, "matched_stop": None}


def _event(body: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(body)
