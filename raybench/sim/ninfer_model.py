"""What the simulated ninfer-like engine knows: artifacts, memory, speculative rounds, answers. Pure.

Numbers of the shipped artifacts are shaped like those of the second seed's report.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from raybench.errors import ConfigError
from raybench.scenario.values import Model
from raybench.sim.questions import SHORT, Said, say, text_of, understood

_WORDS = (
    "the",
    "queue",
    "holds",
    "a",
    "lock",
    "größe",
    "then",
    "队列",
    "returns",
    "value",
    "when",
    "é",
    "done",
    "→",
)
#: Share of an answer's natural length that is thought, by the request's `reasoning_effort`.
_EFFORT = {"low": 0.35, "medium": 0.65, "high": 0.8}

Backend = Literal["none", "mtp", "dflash2"]


class Drafting(Model):
    """accept: chance that a drafted token is taken, if all before it were. round_ms: one verify step."""

    accept: float = Field(ge=0, le=1)
    round_ms: float = Field(gt=0)
    companion_mib: float = Field(default=0.0, ge=0)


class Artifact(Model):
    """A model file of the simulated engine. Sizes are of one device, speculative companions apart.

    answer_tokens: shortest and longest natural length of an answer to a long question.
    """

    name: str
    seed: int
    load_s: float = Field(ge=0)
    prefill_tokens_per_s: float = Field(gt=0)
    device_mib: float = Field(gt=0)
    weights_mib: float = Field(gt=0)
    context_mib_per_1k: float = Field(gt=0)
    answer_tokens: tuple[int, int]
    tool_parser: bool = True
    drafting: dict[Backend, Drafting]

    @classmethod
    def read(cls, path: Path) -> Artifact:
        """Raises ConfigError for what is no artifact."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigError(str(path), f"cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(str(path), f"not an artifact of the simulated engine: {error}") from None

    def slack_mib(self, max_context: int, backend: Backend) -> float:
        """Memory that is left on a device once the context is reserved; negative when it does not fit."""
        resident = self.weights_mib + self.drafting[backend].companion_mib
        return self.device_mib - resident - self.context_mib_per_1k * max_context / 1024


@dataclass(frozen=True)
class Decoding:
    """How an answer came about. ms: of all rounds."""

    rounds: int
    drafted: int
    accepted: int
    ms: float


@dataclass(frozen=True)
class Reply:
    """What is said; tokens counts both texts, or the words of the call. finish: OpenAI's word."""

    reasoning: str
    content: str
    call: Mapping[str, str] | None
    tokens: int
    finish: Literal["stop", "length", "tool_calls"]


def decode(
    artifact: Artifact, backend: Backend, draft_tokens: int, tokens: int, context: int, key: str
) -> Decoding:
    """Rounds until all tokens but the first are there; a longer context makes each a little slower."""
    drafting = artifact.drafting[backend]
    drafts = 0 if backend == "none" else draft_tokens
    chance = random.Random(f"{artifact.seed}/{backend}/{key}")
    rounds = accepted = made = 0
    while made < tokens - 1:
        taken = 0
        while taken < drafts and chance.random() < drafting.accept:
            taken += 1
        taken = min(taken, tokens - 2 - made)
        made += taken + 1
        accepted += taken
        rounds += 1
    slower = 1 + 0.0012 * context / 1024
    return Decoding(rounds, rounds * drafts, accepted, rounds * drafting.round_ms * slower)


def reply(artifact: Artifact, body: Mapping[str, Any], budget: int) -> Reply:
    """The answer to a chat request: what it asks for where that is understood, else words.

    Raises ValueError for a body that cannot be read and a budget without a token.
    """
    if budget < 1:
        raise ValueError(f"a budget of {budget} tokens")
    said = understood(body, thinks=True, tool_parser=artifact.tool_parser) or _at_length(artifact, body)
    reasoning, content = said.shown(0, budget)
    if said.tokens > budget:
        return Reply(reasoning, content, None, budget, "length")
    return Reply(reasoning, content, said.call, max(said.tokens, 1), "stop" if said.call is None else "tool_calls")


def _at_length(artifact: Artifact, body: Mapping[str, Any]) -> Said:
    """Reasoning and an answer, of a length that the prompt and the artifact decide."""
    prompt = text_of(body)
    digest = hashlib.sha256(f"{artifact.seed}/{prompt}".encode()).digest()
    chance = random.Random(digest)
    shortest, longest = artifact.answer_tokens
    total = chance.randint(shortest, longest) if len(prompt) > SHORT else chance.randint(20, 60)
    thought = round(total * _EFFORT.get(str(body.get("reasoning_effort")), 0.5) * chance.uniform(0.8, 1.25))
    words = " ".join(chance.choices(_WORDS, k=total)).split(" ")
    return say(" ".join(words[:thought]), " ".join(words[thought:]), body.get("stop"))
