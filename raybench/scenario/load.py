"""User files -> frozen models, with every problem at once; scenarios -> what they say in effect.

`load_model` / `read_model` serve every kind of user file; scenarios and clusters are two kinds.
Contacts nothing.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.explain import explain, unclear_texts
from raybench.scenario.schema import Scenario
from raybench.scenario.yamltext import read_yaml

FILE_BYTES_MAX = 1024 * 1024

M = TypeVar("M", bound=BaseModel)


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises ConfigError with all problems."""
    return parse_scenario(read_text(path), str(path))


def parse_scenario(text: str, source: str) -> Scenario:
    """Read a scenario from text; `source` is what errors call it."""
    return read_model(Scenario, text, source)


def load_model(model: type[M], path: Path) -> M:
    """Read one user file as `model`. Raises ConfigError: unreadable, not UTF-8, not YAML, not allowed."""
    return read_model(model, read_text(path), str(path))


def read_model(model: type[M], text: str, source: str) -> M:
    """Read YAML text as `model`. Raises ConfigError with all problems, in the order of the lines."""
    document = read_yaml(text, source)
    if not isinstance(document.value, dict):
        raise ConfigError(
            source,
            ConfigProblem(
                "the file is not a block of keys",
                value=document.raw[()],
                allowed="the keys " + ", ".join(model.model_fields),
            ),
        )
    problems = [*document.problems, *unclear_texts(model, document)]
    try:
        result = model.model_validate(document.value)
    except ValidationError as error:
        problems += explain(model, error.errors(include_url=False), document)
        raise ConfigError(source, _in_order(problems)) from None
    if problems:
        raise ConfigError(source, _in_order(problems))
    return result


def effective(scenario: Scenario) -> dict[str, Any]:
    """What the scenario says once defaults are filled in: plain JSON values, for the manifest.

    It is itself a scenario: `Scenario.model_validate(effective(s))` measures the same.
    """
    values = scenario.model_dump(mode="json")
    for name, arm in scenario.arms.items():
        values["arms"][name]["route"] = arm.effective_route
    for shown, workload in zip(values["workloads"], scenario.workloads, strict=True):
        shown["prewarm_requests"] = scenario.prewarm_requests_of(workload)
        shown["ignore_eos"] = workload.effective_ignore_eos
        requests = workload.effective_requests if workload.prompt_set is None else None
        for name, value in (("requests", requests), ("arrivals", workload.effective_arrivals)):
            shown[name] = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return values


def scenario_sha256(scenario: Scenario) -> str:
    """Hex digest of the effective values: layout, comments and spelt-out defaults do not change it."""
    text = json.dumps(effective(scenario), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_text(path: Path) -> str:
    """The text of a file that a person wrote. Raises ConfigError: unreadable, too large, not UTF-8."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigError(str(path), ConfigProblem("no such file", way_out=similar_file(path))) from None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(str(path), f"larger than {FILE_BYTES_MAX} bytes: not a file that a person wrote")
    return decode(path, data).removeprefix("\ufeff")


def decode(path: Path, data: bytes) -> str:
    """UTF-8 as it stands in the file. Raises ConfigError with the line of what is none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = ConfigProblem("not UTF-8 text", value=repr(data[error.start : error.end]), line=line)
        raise ConfigError(str(path), problem) from None


def similar_file(path: Path) -> str | None:
    """One of almost this name in the same folder, for the way out."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, 1, 0.75)
    return str(path.parent / near[0]) if near else None


def _in_order(problems: list[ConfigProblem]) -> list[ConfigProblem]:
    """By line, those without one first; each once."""
    return sorted(dict.fromkeys(problems), key=lambda problem: (problem.line or 0, problem.path))
