"""`extra_body` of arms, prompts and questions: what a scenario adds to the bodies of requests.

Pure, and without pydantic: bodies are also made where no scenario is read. The type is in `values.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

#: What raybench sets in every body: the prompt, the request's id and the way of answering, by all their names.
OWN_FIELDS = ("prompt", "messages", "input_ids", "text", "rid", "request_id", "stream")


def merged(under: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """`over` on top of `under`; objects merge key by key, anything else replaces what was there."""
    both = dict(under)
    for key, value in over.items():
        below = both.get(key)
        both[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return both
