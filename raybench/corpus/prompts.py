"""Prompt sets: named prompts from files, byte for byte as they stand there.

Read by the coordinator, which puts them into its orders; read before that by the command line, to refuse what
cannot be sent. UTF-8 is never decoded to anything else: no byte-order mark, line end or blank is taken away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.extra_body import merged
from raybench.scenario.load import decode
from raybench.scenario.prompt_set import PromptFile
from raybench.scenario.schema import Scenario
from raybench.scenario.workload import Workload

MESSAGES_SUFFIX = ".json"

PromptKind = Literal["text", "messages"]


@dataclass(frozen=True)
class Prompt:
    """One prompt, ready to be sent.

    body: as it goes into a request: JSON-escaped text without quotes, or chat messages joined by commas without
    brackets. sha256: of the file's bytes. extra_body: of its request, the set's included.
    """

    name: str
    kind: PromptKind
    body: bytes
    output_tokens: int
    extra_body: Mapping[str, object]
    sha256: str
    size_bytes: int

    @property
    def as_messages(self) -> bytes:
        """The chat messages that it is: text is one message of the user."""
        if self.kind == "messages":
            return self.body
        return b'{"role":"user","content":"%b"}' % self.body


def read_prompt_sets(scenario: Scenario, base: Path, *, here_only: bool = False) -> dict[str, tuple[Prompt, ...]]:
    """By workload, the prompts of one round of its set; relative paths start at `base`.

    here_only: leave out a set whose absolute paths this machine does not have: they are the coordinator's.
    Raises ConfigError for a file that cannot be read or sent, and for chat messages on a route that takes none.
    """
    sets = {}
    for workload in scenario.workloads:
        if workload.prompt_set is None:
            continue
        paths = [Path(prompt.path) for prompt in workload.prompt_set.prompts]
        if here_only and any(path.is_absolute() and not path.exists() for path in paths):
            continue
        sets[workload.name] = tuple(_read(workload, prompt, base) for prompt in workload.prompt_set.prompts)
        _refuse_messages_without_chat(scenario, workload, sets[workload.name])
    return sets


def digests(prompts: tuple[Prompt, ...]) -> list[dict[str, object]]:
    """The manifest's entries of a set."""
    return [{"name": one.name, "size_bytes": one.size_bytes, "sha256": one.sha256} for one in prompts]


def _read(workload: Workload, prompt: PromptFile, base: Path) -> Prompt:
    path = base / prompt.path
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            str(path),
            ConfigProblem("no such prompt file", path=f"prompt {prompt.name} of workload {workload.name}"),
        ) from None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from None
    text = decode(path, data)
    if not text.strip():
        raise ConfigError(str(path), "an empty prompt")
    kind: PromptKind = "messages" if path.suffix == MESSAGES_SUFFIX else "text"
    body = _messages(path, data) if kind == "messages" else orjson.dumps(text)[1:-1]
    assert workload.prompt_set is not None
    return Prompt(
        prompt.name,
        kind,
        body,
        prompt.output_tokens or workload.output_tokens,
        merged(workload.prompt_set.extra_body, prompt.extra_body),
        hashlib.sha256(data).hexdigest(),
        len(data),
    )


def _messages(path: Path, data: bytes) -> bytes:
    """The messages of a JSON file, joined by commas; texts in them stay as they are."""
    allowed = 'a list of {"role", "content"}, or an object with that list under `messages`'
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        problem = ConfigProblem(f"not JSON: {error.msg}", line=error.lineno, allowed=allowed)
        raise ConfigError(str(path), problem) from None
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages:
        raise ConfigError(str(path), ConfigProblem("no chat messages", allowed=allowed))
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            problem = ConfigProblem("not a chat message", path=f"messages[{index}]", allowed=allowed)
            raise ConfigError(str(path), problem)
    return orjson.dumps(messages)[1:-1]


def _refuse_messages_without_chat(scenario: Scenario, workload: Workload, prompts: tuple[Prompt, ...]) -> None:
    with_messages = [prompt.name for prompt in prompts if prompt.kind == "messages"]
    for name, arm in scenario.arms.items():
        if with_messages and arm.effective_route != "chat" and workload in scenario.workloads_of(name):
            raise ConfigError(
                "scenario",
                ConfigProblem(
                    f"prompt {with_messages[0]} of workload {workload.name} is made of chat messages",
                    f"arms.{name}.route",
                    arm.effective_route,
                    "chat",
                    "write `route: chat`, or the prompt as plain text",
                ),
            )
