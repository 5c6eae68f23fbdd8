"""Values out of an engine's JSON, which may be present, absent, null or of another type.

Pure; used by everything in this room that reads what a server wrote. A value that does not have the
expected type counts as absent: engines change their fields, and unknown is never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

JsonObject = Mapping[str, Any]

_NO_OBJECT: JsonObject = {}


def parse_object(data: bytes) -> JsonObject | None:
    """The JSON object in `data`, or None when there is none (bad JSON, a list, a number)."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def int_of(value: object) -> int | None:
    """A count: not negative, and within the 32 bits of a column."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def float_of(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def bool_of(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def str_of(value: object) -> str | None:
    return value if isinstance(value, str) else None


def object_of(value: object) -> JsonObject:
    return value if isinstance(value, dict) else _NO_OBJECT


def list_of(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def seconds_of_ms(value: object) -> float | None:
    milliseconds = float_of(value)
    return None if milliseconds is None else milliseconds / 1000
