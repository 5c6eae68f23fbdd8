"""What was probably meant by a value or a key that was refused: the `try:` of an error. Pure guesses."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from raybench.scenario.fields import Shape, accepts, children, constraint, literals, models_below
from raybench.scenario.values import parse_tokens
from raybench.scenario.yamltext import KeyPath, format_path

#: Seconds of a unit that people write behind a time.
_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
_NO_LIMIT = ("inf", "infinity", "none", "off", "unlimited")
_TRUTH = {"on": "true", "yes": "true", "off": "false", "no": "false"}
#: How alike two choices are (difflib): `sgland` is 0.83 like sglang, trtllm 0.6 like vllm.
_ALIKE = 0.7


def of_value(kind: str, path: KeyPath, shape: Shape, value: object, raw: str) -> str | None:
    """kind: pydantic's name of what is wrong. shape: what may stand at `path`. raw: what stands there."""
    scalar = not isinstance(value, (dict, list))
    text = raw.strip("\"'")
    if kind == "list_type":
        return f"[{raw}]" if scalar else "begin each entry with `- `"
    if kind == "string_type" and scalar:
        return f'quote it: "{raw}"' if accepts(shape, raw) else None
    if kind == "bool_type":
        return _TRUTH.get(text.lower())
    if kind in ("model_type", "dict_type"):
        return _of_block(path, shape, value)
    if kind == "literal_error":
        choices = {word.lower(): word for word in literals(shape)}
        near = difflib.get_close_matches(text.lower(), choices, 1, _ALIKE)
        return choices[near[0]] if near else None
    if kind not in ("int_type", "float_type"):
        return None
    if shape.nullable and text.lower().strip(".+-") in _NO_LIMIT:
        return "null"
    if kind == "int_type" and isinstance(size := parse_tokens(text), int):
        return f"{size} (sizes such as {text} are for token counts only)"
    return _of_quantity(path, shape, text) or number(raw)


def _of_block(path: KeyPath, shape: Shape, value: object) -> str | None:
    last = path[-1] if path else ""
    if isinstance(value, list):
        return "write each entry as `key: value`, without `- `"
    if shape.model is not None and last in shape.model.model_fields:
        return f"put `{last}` one level lower, under a name of your choice"
    return None


def _of_quantity(path: KeyPath, shape: Shape, text: str) -> str | None:
    """`5m` where seconds are asked, `5%` where a share is."""
    words = next((str(step) for step in reversed(path) if isinstance(step, str)), "").split("_")
    unit = next((unit for unit in ("ms", "s") if unit in words and "per" not in words), None)
    measured = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]+|%)", text)
    if measured is None:
        return None
    amount, written = float(measured[1]), measured[2]
    if unit is not None and written in _SECONDS:
        return _plain(amount * _SECONDS[written] / _SECONDS[unit])
    if written == "%" and constraint(shape.choices[0], "le") == 1:
        return _plain(amount / 100)
    return None


def number(raw: str) -> str | None:
    """How to write the number that was probably meant."""
    text = raw.strip("\"'").replace("_", "")
    if re.fullmatch(r"[0-9]+(:[0-9]+)+", text):
        return "one plain number, in the unit that the key names"
    if re.fullmatch(r"[0-9]+", text):
        return str(int(text)) if len(text) <= 18 else None
    if not re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,2})?", text):
        return None
    plain = _plain(float(text))
    return plain if plain != raw and float(plain) == float(text) else None


def _plain(value: float) -> str:
    """In plain digits, as the reader takes it."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.10f}".rstrip("0")


def of_key(models: Sequence[tuple[KeyPath, type[BaseModel]]], key: str) -> tuple[str | None, KeyPath]:
    """(what to do with an unknown key, path of the key that it was probably meant to be, or the empty path).

    models: those on the way to it, each with its path, the innermost last.
    """
    path, model = models[-1]
    lower = [format_path(path) + "." * bool(path) + way for way in _ways_down(model, key)]
    upper = [format_path((*p, key)) for p, outer in reversed(models[:-1]) if key in outer.model_fields]
    near = difflib.get_close_matches(key, model.model_fields, 1)
    root = models[0][1]
    everywhere = {name for known in models_below(root) for name in known.model_fields}
    likely = difflib.get_close_matches(key, sorted(everywhere), 1)
    if lower or upper:
        return _move(lower or upper[:1]), ()
    if near:
        return f"`{near[0]}`", (*path, near[0])
    if likely:
        top = likely if likely[0] in root.model_fields else []
        return _move(top or list(_ways_down(root, likely[0]))), ()
    return None, ()


def _move(places: list[str]) -> str:
    if "." in places[0]:
        return "move it to " + " or ".join(f"`{place}`" for place in places)
    return f"move it to the top level, as `{places[0]}`"


def _ways_down(model: type[BaseModel], key: str) -> Iterator[str]:
    """Where `key` stands below `model`, the least deep places only: `limits.context_tokens`."""
    level = [(way, below) for _, below, way in children(model)]
    while level:
        found = [f"{way}.{key}" for way, below in level if key in below.model_fields]
        if found:
            yield from found
            return
        level = [(f"{way}.{deeper}", m) for way, below in level for _, m, deeper in children(below)]
