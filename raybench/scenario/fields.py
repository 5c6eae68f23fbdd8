"""What the models say of their own fields, in words: for errors; a test holds docs/SCENARIOS.md to them.

Pure reflection over pydantic models; serves every kind of user file (scenarios, clusters).
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from raybench.scenario.values import Words

_BASIC_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    object: "anything",
}


@dataclass(frozen=True)
class Shape:
    """The type of one place in a file: an annotation and the constraints beside it."""

    annotation: object
    constraints: tuple[object, ...] = ()

    @classmethod
    def of_field(cls, info: FieldInfo) -> Shape:
        return cls(info.annotation, tuple(info.metadata))

    @property
    def plain(self) -> Shape:
        """Without `Annotated[...]` around the annotation."""
        shape = self
        while get_origin(shape.annotation) is Annotated:
            inner, *extra = get_args(shape.annotation)
            shape = Shape(inner, (*shape.constraints, *_flat(extra)))
        return shape

    @property
    def choices(self) -> tuple[Shape, ...]:
        """The members of a union without null; the shape itself when it is no union."""
        plain = self.plain
        if get_origin(plain.annotation) not in (Union, types.UnionType):
            return (plain,)
        members = [m for m in get_args(plain.annotation) if m is not type(None)]
        if len(members) == 1:
            return (Shape(members[0], plain.constraints).plain,)
        return tuple(Shape(member).plain for member in members)

    @property
    def nullable(self) -> bool:
        plain = self.plain.annotation
        return get_origin(plain) in (Union, types.UnionType) and type(None) in get_args(plain)

    @property
    def model(self) -> type[BaseModel] | None:
        """The model, when the annotation is one."""
        found = self.plain.annotation
        return found if isinstance(found, type) and issubclass(found, BaseModel) else None

    @property
    def item(self) -> Shape | None:
        """The shape of a list's items or of a mapping's values."""
        plain = self.plain.annotation
        if get_origin(plain) in (list, dict):
            return Shape(get_args(plain)[-1]).plain
        return None

    @property
    def key(self) -> Shape | None:
        """The shape of a mapping's keys."""
        plain = self.plain.annotation
        return Shape(get_args(plain)[0]).plain if get_origin(plain) is dict else None


def _flat(metadata: Sequence[object]) -> list[object]:
    flat: list[object] = []
    for entry in metadata:
        flat.extend(entry.metadata if isinstance(entry, FieldInfo) else [entry])
    return flat


def describe(shape: Shape) -> str:
    """What may stand there, in words: `a whole number from 1 to 10, or null`."""
    words = " or ".join(_describe_choice(choice) for choice in shape.choices)
    return f"{words}, or null" if shape.nullable else words


def _describe_choice(shape: Shape) -> str:
    for one in shape.constraints:
        if isinstance(one, Words):
            return one.text
    kind = shape.annotation
    if shape.model is not None:
        return f"a block ({shape.model.__name__})"
    if get_origin(kind) is Literal:
        choices = literals(shape)
        return "one of " + ", ".join(choices) if len(choices) > 1 else choices[0]
    if shape.item is not None:
        each, entries = describe(shape.item), constraint(shape, "min_length")
        if shape.key is not None:
            least = f", at least {entries}" if entries else ""
            return f"a mapping of {_noun(describe(shape.key))} to {each}{least}"
        least = f" of at least {entries}" if entries else ""
        return f"a list{least}, each {each}"
    words = next((words for basic, words in _BASIC_WORDS.items() if kind is basic), "a value")
    return words + _bounds(shape)


def _noun(words: str) -> str:
    return "names" if words.startswith("a name") else words


def _bounds(shape: Shape) -> str:
    least, above, most = (constraint(shape, name) for name in ("ge", "gt", "le"))
    if least is not None:
        return f" from {least}" + (f" to {most}" if most is not None else "")
    low = f" above {above}" if above is not None else ""
    return low + (f", at most {most}" if most is not None else "")


def constraint(shape: Shape, name: str) -> object:
    """A bound by pydantic's name for it: `ge`, `gt`, `le`, `min_length`."""
    values = (getattr(one, name, None) for one in shape.constraints)
    return next((value for value in values if value is not None), None)


def literals(shape: Shape) -> list[str]:
    """The words that may stand there, where only some may."""
    return [
        str(word)
        for one in shape.choices
        if get_origin(one.annotation) is Literal
        for word in get_args(one.annotation)
    ]


def accepts(shape: Shape, value: object) -> bool:
    """Whether the value may stand there."""
    plain, annotated = shape.plain, cast(Any, Annotated)
    try:
        TypeAdapter(annotated[plain.annotation, None, *plain.constraints]).validate_python(value)
    except ValidationError:
        return False
    return True


def children(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel], str]]:
    """(field, model below it, how to write the way down: `limits`, `arms.<name>`, `workloads[]`)."""
    for name, info in model.model_fields.items():
        for choice in Shape.of_field(info).choices:
            below = choice if choice.item is None else choice.item
            if below.model is not None:
                way = name if choice.item is None else f"{name}.<name>" if choice.key else f"{name}[]"
                yield name, below.model, way


def models_below(model: type[BaseModel]) -> list[type[BaseModel]]:
    """The model and all models inside it, each once, outermost first."""
    found = [model]
    for known in found:
        found.extend(below for _, below, _ in children(known) if below not in found)
    return found
