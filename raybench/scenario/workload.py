"""The entries of `workloads`: a shape of request under levels of one kind, and which keys fit together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from raybench.scenario.arrivals import Arrivals, TraceReplay
from raybench.scenario.levels import Level
from raybench.scenario.prompt_set import PromptSet
from raybench.scenario.search_block import SearchBlock
from raybench.scenario.values import Count, Misfit, Model, Name, Positive, Seconds, Tokens, refuse_repeats


class RequestCount(Model):
    """requests = max(minimum, per_concurrency x C); the first seed's rule is the default."""

    minimum: Count = 8
    per_concurrency: Annotated[int, Field(ge=0)] = 2


class Workload(Model):
    """One input length -> output length, under a list of levels of one kind.

    concurrency: a closed loop. rate_per_s: an open loop, whose requests are due as `arrivals` says, for
    `duration_s` or as many as `requests`. trace: an open loop that replays a file; the two lengths are then the
    longest that may occur, and those of entries without one. search: levels come into being one after another.
    over_active_limit: `queue` keeps a concurrency above the active limit as a queueing point,
    `skip` makes it a structural skip (context-boundary rows).
    prompt_set: the requests are its prompts; input_tokens and output_tokens are then the longest that may occur.
    arms: names of the arms that run it; empty means all.
    """

    name: Name
    input_tokens: Tokens
    output_tokens: Tokens
    concurrency: Annotated[list[Count], Field(min_length=1), AfterValidator(refuse_repeats)] | None = None
    rate_per_s: Annotated[list[Positive], Field(min_length=1), AfterValidator(refuse_repeats)] | None = None
    trace: TraceReplay | None = None
    search: SearchBlock | None = None
    prompt_set: PromptSet | None = None
    requests: RequestCount | Count | None = None
    duration_s: Seconds | None = None
    arrivals: Arrivals | None = None
    over_active_limit: Literal["queue", "skip"] = "queue"
    ignore_eos: bool | None = None
    temperature: Annotated[float, Field(ge=0)] = 0.0
    stream: bool = True
    arms: list[Name] = []
    prewarm_requests: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_kind_of_level(self) -> Workload:
        kinds = ("concurrency", "rate_per_s", "trace", "search")
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            had = " and ".join(given) or "none"
            named = "exactly one of `concurrency`, `rate_per_s`, `trace` and `search`"
            raise ValueError(f"{named} is needed; there is {had}")
        return self

    @model_validator(mode="after")
    def _concurrency_can_be_reached(self) -> Workload:
        for level in self.outermost_levels if self.closed_loop else []:
            count, concurrency = self.request_count(level), level.concurrency or 0
            if count < concurrency:
                raise Misfit(f"{count} requests can never be {concurrency} at once: ask for more", "requests")
        return self

    @model_validator(mode="after")
    def _open_loop_fits(self) -> Workload:
        """What belongs to one kind of level only stands with it."""
        if not self.has_rates:
            for name in ("duration_s", "arrivals"):
                if getattr(self, name) is not None:
                    raise Misfit("belongs to a workload with `rate_per_s`", name)
        if self.closed_loop:
            return self
        if self.over_active_limit != "queue":
            raise Misfit("belongs to a workload with `concurrency`", "over_active_limit")
        if isinstance(self.requests, RequestCount):
            raise Misfit("depends on the concurrency, which an open loop has none of: give a number", "requests")
        if self.trace is not None and self.requests is None:
            raise Misfit("a trace needs it: how many of its entries are sent", "requests")
        if self.has_rates and (self.requests is None) == (self.duration_s is None):
            raise Misfit("a rate needs exactly one of `duration_s` and `requests`", "duration_s")
        return self

    @model_validator(mode="after")
    def _prompts_can_be_sent(self) -> Workload:
        if self.prompt_set is None:
            return self
        if self.concurrency is None:
            raise Misfit("a prompt set is sent in a closed loop: give `concurrency`", "prompt_set")
        if self.requests is not None:
            raise Misfit("the prompt set says how many requests there are: use `prompt_set.repeats`", "requests")
        if self.prewarm_requests:
            raise Misfit("a prompt set has no other text to prewarm with", "prewarm_requests")
        for index, prompt in enumerate(self.prompt_set.prompts):
            if prompt.output_tokens is not None and prompt.output_tokens > self.output_tokens:
                raise Misfit(
                    f"more than output_tokens of the workload, the longest that may occur: {self.output_tokens}",
                    *("prompt_set", "prompts", index, "output_tokens"),
                )
        return self

    @model_validator(mode="after")
    def _search_can_be_judged(self) -> Workload:
        for metric in (self.search and self.search.slo) or {}:
            if not self.stream and not metric.startswith(("e2e_", "failure_share")):
                raise Misfit(f"`{metric}` of the search is not known without a stream", "stream")
            if self.output_tokens == 1 and metric.startswith("tpot_ms"):
                raise Misfit(f"`{metric}` of the search is not defined for one output token", "output_tokens")
        return self

    @property
    def levels(self) -> list[Level]:
        """Those listed, in the order of the file; none of a search."""
        if self.rate_per_s is not None:
            return [Level(rate_per_s=rate) for rate in self.rate_per_s]
        if self.trace is not None:
            return [Level(trace_speed=speed) for speed in self.trace.speeds]
        return [Level(concurrency) for concurrency in self.concurrency or ()]

    @property
    def outermost_levels(self) -> list[Level]:
        """Those listed, or the lowest and the highest that the search may try."""
        if self.search is None:
            return self.levels
        return [self.search.question.level(bound) for bound in (self.search.minimum, self.search.maximum)]

    @property
    def closed_loop(self) -> bool:
        return self.concurrency is not None or (self.search is not None and self.search.over == "concurrency")

    @property
    def has_rates(self) -> bool:
        """Whether its levels are rates of an open loop."""
        return self.rate_per_s is not None or (self.search is not None and self.search.over == "rate_per_s")

    @property
    def effective_requests(self) -> RequestCount | int | None:
        """`requests` with the default of a closed loop; None where `duration_s` says how many."""
        if self.prompt_set is not None:
            return self.prompt_set.sendings
        return RequestCount() if self.requests is None and self.closed_loop else self.requests

    @property
    def effective_ignore_eos(self) -> bool:
        """Answers of a prompt set end where the model ends them."""
        return self.prompt_set is None if self.ignore_eos is None else self.ignore_eos

    @property
    def effective_arrivals(self) -> Arrivals | None:
        """`arrivals` with its default; None where the arrivals of a rate are not asked for."""
        return Arrivals() if self.arrivals is None and self.has_rates else self.arrivals

    def request_count(self, level: Level) -> int:
        """How many requests the point at this level sends."""
        count = self.effective_requests
        if isinstance(count, int):
            return count
        if isinstance(count, RequestCount):
            return max(count.minimum, count.per_concurrency * (level.concurrency or 0), 1)
        arrivals = self.effective_arrivals
        assert arrivals is not None and self.duration_s is not None and level.rate_per_s is not None
        return max(1, round(arrivals.requests_by(self.duration_s, level.rate_per_s)))
