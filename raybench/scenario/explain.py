"""pydantic's complaints -> problems that a person can act on: place, line, raw text, allowed, way out.

Pure. One function for every kind of user file; words come from `scenario/fields.py`, guesses from `way_out.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from raybench.errors import ConfigProblem
from raybench.scenario import way_out
from raybench.scenario.fields import Shape, describe
from raybench.scenario.values import Misfit
from raybench.scenario.yamltext import DIGITS_MAX, Document, KeyPath, format_path

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
    "too_short": "empty",
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
    told: set[KeyPath] = set()
    problems = []
    for kind, _, spot in spots:
        if kind == "extra_forbidden" and spot is not None:
            guess, meant = way_out.of_key(spot.models, str(spot.path[-1]))
            told |= {spot.path, meant}
            problems.append(_unknown_key(spot, guess, document))
    for kind, error, spot in spots:
        if spot is None or spot.path in told or (spot.value is None and spot.path in unreadable):
            continue
        told.add(spot.path)  # a union complains once for each of its members
        problem = _missing_key(spot, document) if kind == "missing" else _wrong_value(error, spot, document)
        problems.append(problem)
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
                    way_out=way_out.number(raw) or f'"{raw}" if text is meant',
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


def _unknown_key(spot: _Spot, guess: str | None, document: Document) -> ConfigProblem:
    _, model = spot.models[-1]
    return ConfigProblem(
        "unknown key",
        path=format_path(spot.path),
        value=document.raw.get(spot.path),
        allowed="the keys " + ", ".join(model.model_fields),
        way_out=guess,
        line=document.lines.get(spot.path),
    )


def _missing_key(spot: _Spot, document: Document) -> ConfigProblem:
    return ConfigProblem(
        "required key is missing",
        path=format_path(spot.path),
        allowed=describe(spot.shape) if spot.shape is not None else None,
        line=_line(spot.path, document),
    )


def _wrong_value(error: ErrorDetails, spot: _Spot, document: Document) -> ConfigProblem:
    kind, path, shape = error["type"], spot.path, spot.shape
    is_key = bool(path) and spot.value == path[-1]
    raw = str(spot.value) if is_key else document.raw.get(path)
    allowed = describe(shape) if shape is not None else None
    guess = None
    if kind == "value_error":
        cause = error["ctx"]["error"]
        message = str(cause)
        path = (*path, *cause.path) if isinstance(cause, Misfit) else path
        if isinstance(spot.value, (dict, list)):  # its parts are right by themselves
            allowed, raw = None, document.raw.get(path) if path != spot.path else None
    elif spot.value is None:
        message = "nothing is given"
        guess = None if _is_required(spot) else "give a value, or leave the key out to get the default"
    elif kind in ("int_type", "float_type") and re.fullmatch(rf"-?[0-9]{{{DIGITS_MAX + 1},}}", raw or ""):
        message = f"a number of more than {DIGITS_MAX} digits"
    else:
        assert shape is not None
        message = _MESSAGES.get(kind, error["msg"])
        guess = way_out.of_value(kind, path, shape, spot.value, raw or "")
        if kind == "model_type":
            [model] = [choice.model for choice in shape.choices if choice.model is not None]
            allowed = "a block with the keys " + ", ".join(model.model_fields)
    return ConfigProblem(
        message,
        path=format_path(path),
        value=raw,
        allowed=allowed,
        way_out=guess,
        line=_line(path, document),
    )


def _is_required(spot: _Spot) -> bool:
    """Whether the key that leads here has no default."""
    _, model = spot.models[-1]
    info = model.model_fields.get(str(spot.path[-1]))
    return info is None or info.is_required()


def _line(path: KeyPath, document: Document) -> int | None:
    """Where the value stands, or what it is missing from; None when that is the whole file."""
    while path and path not in document.lines:
        path = path[:-1]
    return document.lines[path] if path else None
