"""Request bodies: written once a point, cut open at the prompt and at the request id.

Runs where a point's load is prepared; pure. A request then is head + prompt bytes + tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import orjson

from raybench.engines.contract import BodyTemplate
from raybench.scenario.extra_body import merged

#: Stand-ins in a body for the prompt and for the request id.
PROMPT = "@@raybench-prompt@@"
RID = "@@raybench-rid@@"


def make_template(path: str, body: Mapping[str, object], extra_body: Mapping[str, object]) -> BodyTemplate:
    """Cut `body` open where PROMPT and RID stand; `extra_body` is merged over it first.

    `[PROMPT]` (a list) takes token ids, or chat messages under `messages`; PROMPT (a string) takes text.
    """
    data = orjson.dumps(merged(body, extra_body))
    listed, text = f'["{PROMPT}"]'.encode(), PROMPT.encode()
    kind: Literal["ids", "text", "messages"] = "text"
    if listed in data:
        kind = "messages" if "messages" in body else "ids"
    head, _, tail = data.partition(text if kind == "text" else listed)
    if kind != "text":
        head, tail = head + b"[", b"]" + tail
    rid = RID.encode()
    return BodyTemplate(path, kind, head, tail, rid if rid in data else None)
