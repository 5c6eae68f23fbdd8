"""The block `gate`: what a deployment must be able to do before it is loaded; `protocol/gate.py` does it."""

from __future__ import annotations

from typing import Annotated, Literal

import jsonschema
from pydantic import AfterValidator, Field, model_validator

from raybench.scenario.values import (
    Count,
    ExtraBody,
    Misfit,
    Model,
    Name,
    Pattern,
    Seconds,
    Tokens,
    refuse_shared_names,
)

CheckKind = Literal["answer", "json", "tool_call", "needle", "reasoning", "stop", "determinism"]

#: Fields of a check that belong to some kinds only: field -> kinds.
_OWN_FIELDS: dict[str, tuple[CheckKind, ...]] = {
    "equals": ("answer",),
    "matches": ("answer",),
    "json_schema": ("json", "tool_call"),
    "tool": ("tool_call",),
    "input_tokens": ("needle",),
    "depth": ("needle",),
    "stop": ("stop",),
    "times": ("determinism",),
}


def check_schema(schema: dict[str, object]) -> dict[str, object]:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"not a JSON Schema: {error.message}") from None
    return schema


JsonSchema = Annotated[dict[str, object], AfterValidator(check_schema)]


class GateCheck(Model):
    """One question with an answer that can be judged. `extra_body` goes into its request, over the arm's.

    answer: the answer text without outer white space equals `equals`, or `matches` is found in it.
    json: the whole answer is JSON, and valid under `json_schema` where there is one.
    tool_call: the first call is of `tool`, its arguments are JSON and valid under `json_schema`.
    needle: a code word is found again in a text of about `input_tokens`, `depth` of the way in.
    reasoning: reasoning text came beside an answer. stop: the answer ended by `stop`, which is not in it.
    determinism: the same answer `times` times at temperature 0.
    """

    name: Name
    kind: CheckKind
    prompt: Annotated[str, Field(min_length=1)] | None = None
    equals: str | None = None
    matches: Pattern | None = None
    json_schema: JsonSchema | None = None
    tool: Name | None = None
    input_tokens: Tokens | None = None
    depth: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: Annotated[str, Field(min_length=1)] | None = None
    times: Annotated[int, Field(ge=2, le=20)] | None = None
    output_tokens: Tokens = 512
    extra_body: ExtraBody = {}

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> GateCheck:
        for name, kinds in _OWN_FIELDS.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                raise Misfit(f"belongs to a check of kind {' or '.join(kinds)}", name)
        if (self.prompt is None) != (self.kind == "needle"):
            told = "makes its own text" if self.kind == "needle" else f"of kind {self.kind} needs a prompt"
            raise Misfit(f"a check {told}", "prompt")
        if self.kind == "answer" and (self.equals is None) == (self.matches is None):
            raise Misfit("a check of kind answer needs exactly one of `equals` and `matches`", "kind")
        for kind, name in (("tool_call", "tool"), ("needle", "input_tokens"), ("stop", "stop")):
            if self.kind == kind and getattr(self, name) is None:
                raise Misfit(f"a check of kind {kind} needs it", name)
        return self


class Gate(Model):
    """Checks of every arm once it is ready, before its first point. needed: how many must pass; None = all.

    on_failure: `stop` measures nothing on that arm and ends the run, `mark` measures and says so everywhere.
    """

    checks: Annotated[list[GateCheck], Field(min_length=1)]
    needed: Count | None = None
    on_failure: Literal["stop", "mark"] = "stop"
    request_timeout_s: Seconds = 300.0

    @model_validator(mode="after")
    def _checks_can_be_counted(self) -> Gate:
        refuse_shared_names((check.name for check in self.checks), "check", "checks")
        if self.needed is not None and self.needed > len(self.checks):
            raise Misfit(f"more than there are checks, which is {len(self.checks)}", "needed")
        return self

    @property
    def effective_needed(self) -> int:
        return len(self.checks) if self.needed is None else self.needed
