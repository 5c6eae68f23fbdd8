"""Reads the bodies of generation requests: what is asked, or the error that SGLang would answer.

Pure. SGLang has a shape of error for each place where a body is looked at; `Refused` names the shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal
from uuid import uuid4

import numpy as np
import orjson
from numpy.typing import NDArray

from raybench.sim.profiles import Profile
from raybench.sim.questions import Said, understood
from raybench.sim.request import Request
from raybench.sim.tokens import tokenize

#: What a chat template adds around one message, in text.
_CHAT_OPENING, _CHAT_CLOSING = "<|{role}|>\n", "\n<|end|>\n"
_DEFAULT_NEW_TOKENS = 128
_DEFAULT_COMPLETION_TOKENS = 16


class Refused(Exception):
    """The body is not acceptable. shape: `validation` (before all else), or `value` (the values in it)."""

    def __init__(self, message: str, shape: Literal["validation", "value"] = "value") -> None:
        super().__init__(message)
        self.message = message
        self.shape = shape


@dataclass(frozen=True)
class Ask:
    """One request as the routes need it. usage / continuous_usage: what a stream of OpenAI's ends with.

    said: the answer to a question that is understood; None: random words to the end of the budget.
    """

    request: Request
    model: str
    usage: bool = False
    continuous_usage: bool = False
    cache_details: bool = False
    said: Said | None = None


def read_object(data: bytes) -> dict[str, object]:
    """The body of any of the routes. Raises Refused."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}", "validation") from None
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object", "validation")
    return body


def read_generate(body: dict[str, object], profile: Profile) -> Ask:
    """What `/generate` is asked. Raises Refused."""
    ids = body.get("input_ids")
    if ids is not None:
        prompt = _ids(ids, "input_ids")
    elif isinstance(text := body.get("text"), str):
        prompt = tokenize(text)
    else:
        raise Refused("Either text, input_ids or input_embeds should be provided.")
    sampling = body.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise Refused("a list of sampling_params needs a batch, which this simulated engine does not take")
    limit = sampling.get("max_new_tokens", _DEFAULT_NEW_TOKENS)
    return Ask(_request(body, prompt, limit, sampling, profile), profile.model)


def read_completion(body: dict[str, object], profile: Profile) -> Ask:
    """What `/v1/completions` is asked. Raises Refused."""
    prompt = body.get("prompt")
    ids = tokenize(prompt) if isinstance(prompt, str) else _ids(prompt, "prompt")
    return _openai(body, ids, body.get("max_tokens", _DEFAULT_COMPLETION_TOKENS), profile)


def read_chat(body: dict[str, object], profile: Profile) -> Ask:
    """What `/v1/chat/completions` is asked; without max_tokens the answer may fill the context. Raises Refused."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("Messages cannot be empty.", "validation")
    text = ""
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise Refused("a message needs a role and a content of text", "validation")
        text += _CHAT_OPENING.format(role=message.get("role", "user")) + message["content"] + _CHAT_CLOSING
    ids = tokenize(text + _CHAT_OPENING.format(role="assistant"))
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if limit is None:
        limit = max(profile.request_tokens_max - len(ids) - 1, 1)
    ask = _openai(body, ids, limit, profile)
    if ask.request.ignore_eos:
        return ask
    thinks, tool_parser = profile.reasoning_parser is not None, profile.tool_call_parser is not None
    try:
        said = understood(body, thinks=thinks, tool_parser=tool_parser)
    except ValueError as error:
        raise Refused(str(error), "validation") from None
    ask.request.stops_at = None if said is None else said.tokens
    return replace(ask, said=said)


def _openai(body: dict[str, object], ids: NDArray[np.uint32], limit: object, profile: Profile) -> Ask:
    if not isinstance(limit, int) or limit <= 0:
        raise Refused("max_tokens must be positive", "validation")
    options = body.get("stream_options")
    options = options if isinstance(options, dict) else {}
    return Ask(
        _request(body, ids, limit, body, profile),
        str(body.get("model") or profile.model),
        usage=options.get("include_usage") is True,
        continuous_usage=options.get("continuous_usage_stats") is True,
        cache_details=body.get("return_cached_tokens_details") is True,
    )


def _request(
    body: dict[str, object],
    prompt: NDArray[np.uint32],
    new_tokens: object,
    sampling: dict[str, object],
    profile: Profile,
) -> Request:
    temperature = sampling.get("temperature", 1.0)
    if not isinstance(temperature, int | float) or not math.isfinite(temperature) or temperature < 0:
        raise Refused(f"temperature must be a non-negative finite number, got {temperature}.")
    if not isinstance(new_tokens, int) or isinstance(new_tokens, bool) or new_tokens < 0:
        raise Refused(f"max_new_tokens must be at least 0, got {new_tokens}.")
    context = profile.context_tokens
    if len(prompt) == 0:
        raise Refused("input_ids cannot be empty.")
    if len(prompt) >= context:
        raise Refused(
            f"The input ({len(prompt)} tokens) is longer than the model's context length ({context} tokens)."
        )
    if len(prompt) + new_tokens > context:
        raise Refused(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. "
            f"You requested a total of {len(prompt) + new_tokens} tokens: {len(prompt)} tokens from the "
            f"input messages and {new_tokens} tokens for the completion. Please reduce the number of tokens "
            "in the input messages or the completion to fit within the limit."
        )
    rid = body.get("rid")
    return Request(
        rid=rid if isinstance(rid, str) and rid else uuid4().hex,
        prompt=prompt,
        max_new_tokens=new_tokens,
        ignore_eos=sampling.get("ignore_eos") is True,
        stream=body.get("stream") is True,
    )


def _ids(value: object, name: str) -> NDArray[np.uint32]:
    if not isinstance(value, list):
        raise Refused(f"{name}: must be list or null; got {type(value).__name__}", "validation")
    try:
        ids = np.array(value, dtype=np.uint32) if value else np.empty(0, np.uint32)
    except (ValueError, TypeError, OverflowError) as error:
        raise Refused(f"{name}: {error}", "validation") from None
    if ids.ndim != 1:
        raise Refused(f"{name}: a batch, which this simulated engine does not take", "validation")
    return ids
