"""pydantic's complaints -> problems that a person can act on: place, line, raw text, allowed, way out.

Pure. One function for every kind of user file; the words come from `scenario/fields.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from raybench.errors import ConfigProblem
from raybench.scenario.fields import Shape, children, describe, models_below
from raybench.scenario.values import Misfit, parse_tokens
from raybench.scenario.yamltext import Document, KeyPath, format_path

_MESSAGES = {
    "bool_type": "not true or false",
    "int_type": "not a whole number",
    "float_type": "not a number",
    "string_type": "not text",
    "list_type": "not a list",
    "dict_type": "not a block of keys",
    "model_type": "not a block of keys",
    "literal_error": "not one of the choices",
    "string_pattern_mismatch": "not in the right form",
    "too_short": "the list is empty",
    "greater_than": "out of range",
    "greater_than_equal": "out of range",
    "less_than": "out of range",
    "less_than_equal": "out of range",
}


@dataclass(frozen=True)
class _Spot:
    """Where a complaint points: path and value in the document, the shape there (None under an unknown
    key), and the models passed on the way down with their paths, innermost last."""

    path: KeyPath
    shape: Shape | None
    value: object
    models: tuple[tuple[KeyPath, type[BaseModel]], ...] = ()


def explain(model: type[BaseModel], errors: Sequence[ErrorDetails], document: Document) -> list[ConfigProblem]:
    """All problems of a refused document. A required key that is only misspelt is one problem, not two."""
    spots = [(error["type"], error, _complained_of(model, error["loc"], document)) for error in errors]
    unreadable = document.unreadable
    meant: set[KeyPath] = set()
    problems = []
    for kind, _, spot in spots:
        if kind == "extra_forbidden" and spot is not None:
            way_out, meant_path = _where_it_belongs(spot)
            meant.add(meant_path)
            problems.append(_unknown_key(spot, way_out, document))
    for kind, error, spot in spots:
        if spot is None or kind == "extra_forbidden" or (spot.value is None and spot.path in unreadable):
            continue
        if kind != "missing":
            problems.append(_wrong_value(error, spot, document))
        elif spot.path not in meant:
            problems.append(_missing_key(spot, document))
    return problems


def unclear_texts(model: type[BaseModel], document: Document) -> list[ConfigProblem]:
    """Texts such as `1e3` or `on` in places that take anything, where no schema would refuse them."""
    problems = []
    for path in document.traps:
        spot = _follow(model, path, document.value, tagged=False)
        if spot is not None and spot.shape is not None and spot.shape.plain.annotation is object:
            raw = document.raw[path]
            problems.append(
                ConfigProblem(
                    "unclear: text here, but a number, a truth value or a date to other YAML readers",
                    path=format_path(path),
                    value=raw,
                    way_out=_number_way_out(raw) or f'"{raw}" if text is meant',
                    line=document.lines[path],
                )
            )
    return problems


def _complained_of(model: type[BaseModel], loc: tuple[int | str, ...], document: Document) -> _Spot | None:
    """The spot of one pydantic error; None when it is about a union's member that was not meant."""
    if loc and loc[-1] == "[key]":
        spot = _follow(model, loc[:-2], document.value, tagged=True)
        if spot is None or spot.shape is None:
            return None
        mapping = _choose(spot.shape.choices, spot.value)
        return replace(spot, path=(*spot.path, loc[-2]), shape=mapping.key, value=loc[-2])
    return _follow(model, loc, document.value, tagged=True)


def _follow(model: type[BaseModel], steps: Sequence[str | int], value: object, *, tagged: bool) -> _Spot | None:
    """Walk down `steps`. With `tagged` they are pydantic's: a union adds a step that names its member."""
    spot = _Spot((), Shape(model), value)
    remaining = list(steps)
    while remaining:
        if spot.shape is None or spot.shape.plain.annotation is object:
            return replace(spot, path=(*spot.path, *remaining))
        choices = spot.shape.choices
        chosen = _choose(choices, spot.value)
        if tagged and len(choices) > 1:
            tag = remaining.pop(0)
            tagged_models = [c.model for c in choices if c.model is not None and c.model.__name__ == tag]
            if tagged_models != ([chosen.model] if chosen.model is not None else []):
                return None
            if not remaining:
                return spot
        spot = _step(spot, chosen, remaining.pop(0))
    return spot


def _choose(choices: Sequence[Shape], value: object) -> Shape:
    """The member of a union that a value is meant to be: a block for a mapping, else something plain."""
    is_block = isinstance(value, dict)
    return next((c for c in choices if (c.model is not None or c.key is not None) == is_block), choices[0])


def _step(spot: _Spot, chosen: Shape, step: str | int) -> _Spot:
    path, value = (*spot.path, step), None
    if isinstance(spot.value, dict):
        value = spot.value.get(step)
    elif isinstance(spot.value, list) and isinstance(step, int) and step < len(spot.value):
        value = spot.value[step]
    if chosen.model is None:
        return _Spot(path, chosen.item, value, spot.models)
    info = chosen.model.model_fields.get(str(step))
    shape = Shape.of_field(info) if info is not None else None
    return _Spot(path, shape, value, (*spot.models, (spot.path, chosen.model)))


def _unknown_key(spot: _Spot, way_out: str | None, document: Document) -> ConfigProblem:
    _, model = spot.models[-1]
    return ConfigProblem(
        "unknown key",
        path=format_path(spot.path),
        value=document.raw.get(spot.path),
        allowed="the keys " + ", ".join(model.model_fields),
        way_out=way_out,
        line=document.lines.get(spot.path),
    )


def _missing_key(spot: _Spot, document: Document) -> ConfigProblem:
    return ConfigProblem(
        "required key is missing",
        path=format_path(spot.path),
        allowed=describe(spot.shape) if spot.shape is not None else None,
        line=document.lines.get(spot.path[:-1]) if len(spot.path) > 1 else None,
    )


def _wrong_value(error: ErrorDetails, spot: _Spot, document: Document) -> ConfigProblem:
    kind, path = error["type"], spot.path
    is_key = bool(path) and spot.value == path[-1]
    raw = str(spot.value) if is_key else document.raw.get(path)
    allowed = describe(spot.shape) if spot.shape is not None else None
    way_out = None
    if kind == "value_error":
        cause = error["ctx"]["error"]
        message, allowed = str(cause), None
        path = (*path, *cause.path) if isinstance(cause, Misfit) else path
        raw = None if isinstance(spot.value, dict) and path == spot.path else document.raw.get(path)
    elif spot.value is None:
        message = "nothing is given"
        way_out = "give a value, or leave the key out to get the default"
    else:
        message = _MESSAGES.get(kind, error["msg"])
        way_out = _way_out(kind, spot, raw or "")
    return ConfigProblem(
        message,
        path=format_path(path),
        value=raw,
        allowed=allowed,
        way_out=way_out,
        line=document.lines.get(path),
    )


def _way_out(kind: str, spot: _Spot, raw: str) -> str | None:
    assert spot.shape is not None
    scalar = not isinstance(spot.value, (dict, list))
    last = str(spot.path[-1]) if spot.path else ""
    if kind == "list_type":
        return f"[{raw}]" if scalar else "begin each entry with `- `"
    if kind == "string_type" and scalar:
        return f'quote it: "{raw}"'
    if kind == "bool_type":
        return {"on": "true", "yes": "true", "off": "false", "no": "false"}.get(raw.strip("\"'").lower())
    if kind == "model_type" and spot.shape.model is not None and last in spot.shape.model.model_fields:
        return f"`{last}` belongs one level lower, under a name of your choice"
    if kind == "literal_error":
        words = describe(spot.shape).removeprefix("one of ").removesuffix(", or null").split(", ")
        return next((f"{near}" for near in difflib.get_close_matches(raw, words, 1)), None)
    if kind not in ("int_type", "float_type"):
        return None
    if spot.shape.nullable and raw.lower().strip("\"'.+-") in ("inf", "infinity", "none", "off", "unlimited"):
        return "null"
    return _number_way_out(raw)


def _number_way_out(raw: str) -> str | None:
    """How to write the number that was probably meant."""
    text = raw.strip("\"'").replace("_", "")
    if re.fullmatch(r"[0-9]+(:[0-9]+)+", text):
        return "one plain number, in the unit that the key names"
    if isinstance(size := parse_tokens(text), int):
        return f"{size} (sizes such as {text} are for token counts only)"
    if re.fullmatch(r"[0-9]+", text):
        return str(int(text)) if len(text) <= 18 else None
    if not re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,2})?", text):
        return None
    number = float(text)
    plain = str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.10f}".rstrip("0")
    return plain if plain != raw else None


def _where_it_belongs(spot: _Spot) -> tuple[str | None, KeyPath]:
    """(way out, path that an unknown key was probably meant to be, or the empty path)."""
    key = str(spot.path[-1])
    path, model = spot.models[-1]
    lower = [format_path(path) + "." * bool(path) + way for way in _ways_down(model, key)]
    upper = [format_path((*p, key)) for p, outer in reversed(spot.models[:-1]) if key in outer.model_fields]
    near = difflib.get_close_matches(key, model.model_fields, 1)
    root = spot.models[0][1]
    everywhere = {name for known in models_below(root) for name in known.model_fields}
    likely = difflib.get_close_matches(key, sorted(everywhere), 1)
    if lower or upper:
        return _belongs(lower or upper[:1]), ()
    if near:
        return f"did you mean `{near[0]}`?", (*path, near[0])
    if likely:
        top = likely if likely[0] in root.model_fields else []
        return _belongs(top or list(_ways_down(root, likely[0]))), ()
    return None, ()


def _belongs(places: list[str]) -> str:
    if "." in places[0]:
        return "it belongs at " + " or ".join(f"`{place}`" for place in places)
    return f"it belongs at the top level, as `{places[0]}`"


def _ways_down(model: type[BaseModel], key: str) -> Iterator[str]:
    """Where `key` stands below `model`, the least deep places only: `limits.context_tokens`."""
    level = [(way, below) for _, below, way in children(model)]
    while level:
        found = [f"{way}.{key}" for way, below in level if key in below.model_fields]
        if found:
            yield from found
            return
        level = [(f"{way}.{deeper}", m) for way, below in level for _, m, deeper in children(below)]
