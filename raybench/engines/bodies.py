"""Request bodies: written once a point, cut open at the prompt and at the request id.

Runs where a point's load is prepared; pure. A request then is head + prompt bytes + tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import orjson

from raybench.engines.contract import BodyTemplate
from raybench.errors import ConfigError, ConfigProblem

#: Stand-ins in a body for the prompt and for the request id.
PROMPT = "@@raybench-prompt@@"
RID = "@@raybench-rid@@"


def make_template(path: str, body: Mapping[str, object], extra_body: Mapping[str, object]) -> BodyTemplate:
    """Cut `body` open where PROMPT and RID stand; `extra_body` is merged over it first.

    `[PROMPT]` (a list) takes token ids, or chat messages under `messages`; PROMPT (a string) takes text. Objects
    merge key by key.
    Raises ConfigError when extra_body replaces the prompt, the request id or `stream`.
    """
    merged = _merge(body, extra_body)
    for key, value in body.items():
        if merged[key] != value and (key == "stream" or _holds_stand_in(value)):
            problem = ConfigProblem(
                "raybench sets this field itself", path=f"extra_body.{key}", way_out="leave it out"
            )
            raise ConfigError("scenario", problem)
    try:
        data = orjson.dumps(merged)
    except TypeError as error:
        problem = ConfigProblem(f"cannot be written as JSON: {error}", path="extra_body")
        raise ConfigError("scenario", problem) from error
    listed, text = f'["{PROMPT}"]'.encode(), PROMPT.encode()
    kind: Literal["ids", "text", "messages"] = "text"
    if listed in data:
        kind = "messages" if "messages" in body else "ids"
    head, _, tail = data.partition(text if kind == "text" else listed)
    if kind != "text":
        head, tail = head + b"[", b"]" + tail
    rid = RID.encode()
    return BodyTemplate(path, kind, head, tail, rid if rid in data else None)


def _holds_stand_in(value: object) -> bool:
    data = orjson.dumps(value)
    return PROMPT.encode() in data or RID.encode() in data


def _merge(under: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(below, value)
        else:
            merged[key] = value
    return merged
