"""The block `prompt_set` of a workload: named prompts from files. What is in the files is `corpus/prompts.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from raybench.scenario.values import Count, ExtraBody, Misfit, Model, Name, Tokens, refuse_shared_names

#: How a prompt that was sent before is kept from being found in a prefix cache.
ColdBy = Literal["flush", "no_prefix_reuse"]


class PromptFile(Model):
    """One named prompt. path: UTF-8 text, or `.json` with chat messages (a list, or an object with `messages`).

    output_tokens: its own budget; None takes the workload's. extra_body: of its request only, over the set's.
    """

    name: Name
    path: Annotated[str, Field(min_length=1)]
    output_tokens: Tokens | None = None
    extra_body: ExtraBody = {}


class PromptSet(Model):
    """What is sent instead of corpus text: the prompts in this order, all of them `repeats` times.

    cold_by: the guard that applies to a prompt which the server has been sent before. extra_body: of every
    request, as `reasoning_effort`, over the arm's.
    """

    prompts: Annotated[list[PromptFile], Field(min_length=1)]
    cold_by: ColdBy
    repeats: Count = 1
    extra_body: ExtraBody = {}

    @model_validator(mode="after")
    def _prompts_can_be_told_apart(self) -> PromptSet:
        refuse_shared_names((prompt.name for prompt in self.prompts), "prompt of the set", "prompts")
        if self.repeats > 1 and self.cold_by == "flush":
            raise Misfit(
                "nothing is flushed within a point: a second sending would be a cache hit. Switch prefix reuse off"
                " on the server and write `cold_by: no_prefix_reuse`",
                "repeats",
            )
        return self

    @property
    def sendings(self) -> int:
        """Requests of one point."""
        return len(self.prompts) * self.repeats
