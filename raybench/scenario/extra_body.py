"""`extra_body` of arms, prompts and questions: what a scenario adds to the bodies of requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from raybench.scenario.values import Misfit

#: The prompt, the request's id and the way of answering, by the names that engines have for them.
OWN_FIELDS = ("prompt", "messages", "input_ids", "text", "rid", "request_id", "stream")


def refuse_own_fields(extra_body: dict[str, object]) -> dict[str, object]:
    """What raybench sets in every body: another value there would be another measurement, or none."""
    for name in OWN_FIELDS:
        if name in extra_body:
            raise Misfit("raybench sets this field itself: leave it out", name)
    return extra_body


ExtraBody = Annotated[dict[str, object], AfterValidator(refuse_own_fields)]


def merged(under: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """`over` on top of `under`; objects merge key by key, anything else replaces what was there."""
    both = dict(under)
    for key, value in over.items():
        below = both.get(key)
        both[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return both
