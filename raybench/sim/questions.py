"""What the simulated engines understand: a small set of questions, answered from the text of the question alone.

Pure. A quality gate asks such questions; an engine that cannot read its prompt to the end, or is started without
a parser, fails them as a real one does. Whatever else is asked is answered by each engine in its own words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Characters of a prompt that is a question, and not a text with figures in it.
SHORT = 200
_THOUGHT = "Let me see. Simple enough."
_LOOKED_UP = re.compile(r"[Ww]hat is (the [^?\n]+)\? Answer with the \w+ alone\.$")


@dataclass(frozen=True)
class Said:
    """An answer, a piece of text a token. call: the function (`name`, `arguments`) that `spoken` calls in the
    model's own words; the engine's parser shows the call in their place."""

    thought: tuple[str, ...]
    spoken: tuple[str, ...]
    call: Mapping[str, str] | None = None

    @property
    def tokens(self) -> int:
        return len(self.thought) + len(self.spoken)

    def shown(self, begin: int, end: int) -> tuple[str, str]:
        """Reasoning and answer text among the tokens [begin, end)."""
        before = len(self.thought)
        content = "" if self.call else "".join(self.spoken[max(begin - before, 0) : max(end - before, 0)])
        return "".join(self.thought[begin:end]), content


def say(thought: str, spoken: str, stop: object = None) -> Said:
    """stop: a request's stop text, or a list of them; what is spoken ends before the first that it holds."""
    stops = stop if isinstance(stop, list) else [stop]
    ends = [spoken.index(one) for one in stops if isinstance(one, str) and one and one in spoken]
    return Said(_pieces(thought), _pieces(spoken[: min(ends, default=len(spoken))]))


def text_of(body: Mapping[str, Any]) -> str:
    """All messages as one text, as a template would join them."""
    return "\n".join(str(message.get("content") or "") for message in body["messages"])


def understood(body: Mapping[str, Any], *, thinks: bool, tool_parser: bool) -> Said | None:
    """The answer to a chat request; None when it asks for something else.

    thinks: the model thinks before it answers. tool_parser: what it says of a tool becomes a call. Raises
    ValueError where the body cannot be read.
    """
    thought = _THOUGHT if thinks else ""
    try:
        if body.get("tools"):
            function = body["tools"][0]["function"]
            call = {"name": function["name"], "arguments": json.dumps(_sample(function.get("parameters") or {}))}
            words = f"<tool_call>{call['name']} {call['arguments']}</tool_call>"
            return Said(_pieces(thought), _pieces(words), call if tool_parser else None)
        answer = _answer(body)
    except (AttributeError, IndexError, KeyError, TypeError):
        raise ValueError("tools or response_format cannot be read") from None
    return None if answer is None else say(thought, answer, body.get("stop"))


def _answer(body: Mapping[str, Any]) -> str | None:
    form = body.get("response_format") or {}
    if form.get("type") in ("json_schema", "json_object"):
        return json.dumps(_sample((form.get("json_schema") or {}).get("schema") or {"type": "object"}))
    prompt = text_of(body)
    if asked := _LOOKED_UP.search(prompt):
        found = re.search(rf"(?i){re.escape(asked[1])} is (\S+)\.", prompt)
        return "It is not told." if found is None else found[1]
    if len(prompt) > SHORT:
        return None
    if factors := re.search(r"(\d+) \* (\d+)", prompt):
        return str(int(factors[1]) * int(factors[2]))
    if ends := re.search(r"[Cc]ount from (\d+) to (\d+)", prompt):
        return " ".join(map(str, range(int(ends[1]), int(ends[2]) + 1)))
    return None


def _sample(schema: Mapping[str, Any]) -> object:
    """A value that is valid under a simple JSON Schema, as a grammar would force it."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "string":
            return "text"
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "array":
            return [_sample(schema.get("items") or {"type": "string"})]
        case _:
            return {name: _sample(inner) for name, inner in (schema.get("properties") or {}).items()}


def _pieces(text: str) -> tuple[str, ...]:
    """A token a word, with the blanks before it; those at the end belong to the last."""
    return tuple(re.findall(r"\s*\S+(?:\s+$)?", text))
