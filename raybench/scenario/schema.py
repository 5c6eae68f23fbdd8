"""The scenario file: what a user may write, with units, defaults and limits.

Everything is a frozen, strict pydantic model; unknown keys are refused. Reading YAML and turning
pydantic's complaints into `ConfigError` is in `scenario/load.py`; making points is in
`scenario/plan.py`. Nothing edits a Scenario after it was read.

What single values may be is in `scenario/values.py`. Units stand last in the names: `_s` seconds,
`_tokens`, `_bytes`. Token sizes may be written `16k` (= 16 x 1024 = 16384) or `1m` (= 1024 x 1024), as
serving people do.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from raybench.scenario.arrivals import Arrivals, TraceReplay
from raybench.scenario.gate import Gate
from raybench.scenario.launch import Command, HostPath, Inventory, Launch, ServiceCheck
from raybench.scenario.levels import Level
from raybench.scenario.load_block import Load, Placement
from raybench.scenario.monitors_block import Monitors
from raybench.scenario.prompt_set import PromptSet
from raybench.scenario.search_block import SearchBlock
from raybench.scenario.sim_block import Sim
from raybench.scenario.values import (
    Count,
    Headers,
    Misfit,
    Model,
    Name,
    Positive,
    Seconds,
    Tokens,
    Url,
    VariableName,
    Words,
    refuse_repeats,
    refuse_shared_names,
)

EngineName = Literal["sglang", "vllm", "openai", "llamacpp"]
Route = Literal["generate", "completions", "chat"]


class Limits(Model):
    """What the deployment can hold. Declared here, they serve `plan`; facts read from the engine win.

    reserved_context_tokens: of the context, beside input and output; None means what the engine is known to keep.
    reserved_tokens_per_request: of the KV pool, beside input and output.
    """

    max_running_requests: Count | None = None
    kv_pool_tokens: Tokens | None = None
    context_tokens: Tokens | None = None
    max_input_tokens: Tokens | None = None
    page_tokens: Count | None = None
    reserved_context_tokens: Annotated[int, Field(ge=0)] | None = None
    reserved_tokens_per_request: Annotated[int, Field(ge=0)] = 0


class EngineLog(Model):
    """The log file that the engine writes on the target's host, absolute there."""

    path: Annotated[str, Field(pattern="^/"), Words("an absolute path on the target's host")]


class Tls(Model):
    verify: bool = True
    ca_file: str | None = None


class Arm(Model):
    """One deployment under comparison: exactly one of `url` (reached, or launched there) and `sim` (started)."""

    engine: EngineName = "sglang"
    url: Url | None = None
    control_urls: list[Url] = []
    load_urls: list[Url] = []
    sim: Sim | None = None
    launch: Launch | None = None
    inventory: Inventory = Inventory()
    route: Route | None = None
    model: str | None = None
    api_key_env: VariableName | None = None
    admin_api_key_env: VariableName | None = None
    headers: Headers = {}
    tls: Tls = Tls()
    limits: Limits = Limits()
    extra_body: dict[str, object] = {}
    log: EngineLog | None = None
    request_log: HostPath | None = None

    @model_validator(mode="after")
    def _one_way_to_the_target(self) -> Arm:
        if (self.url is None) == (self.sim is None):
            raise ValueError("an arm needs exactly one of `url` and `sim`")
        if self.launch is not None and self.url is None:
            raise Misfit("what is launched answers at an address: give `url`, not `sim`", "launch")
        if self.sim is not None and self.engine != "sglang":
            raise ValueError("the simulated engine speaks SGLang: leave `engine` out or write sglang")
        if self.log is not None and self.engine != "sglang":
            raise Misfit(f"only SGLang's log tells cached tokens, not that of {self.engine}", "log")
        if self.log is not None and self.sim is not None:
            raise Misfit("the simulated engine's log is known already: leave `log` out", "log")
        if self.route == "generate" and self.engine != "sglang":
            raise ValueError("the route `generate` exists on sglang only")
        return self

    @model_validator(mode="after")
    def _load_urls_are_further_ones(self) -> Arm:
        if self.load_urls and self.url is None:
            raise Misfit("a simulated engine has one address only", "load_urls")
        targets = [self.url, *self.load_urls]
        for place, url in enumerate(self.load_urls):
            if url in targets[: place + 1]:
                raise Misfit("is listed already, and load goes to each address once", "load_urls", place)
            if str(self.url).partition(":")[0] != url.partition(":")[0]:
                raise Misfit("http and https cannot be mixed: they are sent by two clients", "load_urls", place)
        return self

    @property
    def is_started(self) -> bool:
        """Whether raybench starts it and ends it; else it is only reached."""
        return self.sim is not None or self.launch is not None

    @property
    def tells_its_log(self) -> bool:
        """Whether the engine's own log is read: the one that is named, or SGLang's where raybench starts it."""
        return self.log is not None or (self.is_started and self.engine == "sglang")

    @property
    def effective_route(self) -> Route:
        return self.route or ("generate" if self.engine == "sglang" else "completions")


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


class SyntheticCorpus(Model):
    """A seeded random corpus for rehearsals: no real text, so no statement about a real tokenizer."""

    tokens: Tokens = 4 * 1024 * 1024
    vocabulary: Annotated[int, Field(ge=64)] = 32000
    seed: Annotated[int, Field(ge=0)] = 0


class Corpus(Model):
    """Where the prompts' token ids come from: exactly one of a file and `synthetic`.

    path: `.npy` (1-D integers), `.arrow`/`.parquet` (column `ids`), `.json` (a list, or an object
    with a list under `ids`), or a directory made by `raybench corpus build`. A relative path is
    relative to the scenario file; an absolute one is a path on the node of the coordinator.
    """

    path: str | None = None
    synthetic: SyntheticCorpus | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Corpus:
        if (self.path is None) == (self.synthetic is None):
            raise ValueError("a corpus needs exactly one of `path` and `synthetic`")
        return self


class Guards(Model):
    """Limits of the procedure and of validity. Every wait has one."""

    strict: bool = True
    hit_rate_max: Annotated[float, Field(ge=0, le=1)] = 0.01
    success_rate_min: Annotated[float, Field(ge=0, le=1)] = 1.0
    in_flight_share_min: Annotated[float, Field(ge=0, le=1)] = 0.0
    late_share_max: Annotated[float, Field(ge=0, le=1)] = 0.1
    attempts_max: Annotated[int, Field(ge=1, le=10)] = 2
    on_void: Literal["stop", "next"] = "stop"
    flush: bool = True
    flush_storage: bool = True
    alive_timeout_s: Seconds = 30.0
    idle_timeout_s: Seconds = 300.0
    idle_stable_s: Annotated[float, Field(ge=0)] = 1.0
    flush_timeout_s: Seconds = 120.0
    flush_retry_s: Seconds = 1.0
    ghost_grace_s: Annotated[float, Field(ge=0)] = 5.0
    prewarm_requests: Annotated[int, Field(ge=0)] = 2
    start_lead_s: Seconds = 0.25
    counters_settle_s: Annotated[float, Field(ge=0)] = 10.0
    clock_uncertainty_ms_max: Positive = 50.0
    clock_offset_ms_max: Positive = 1000.0
    clock_change_ms_max: Positive = 50.0


class Service(Model):
    """The deployment in use on the target's host: down while arms are measured, brought back and verified after.

    Its commands run there, in order, each with a limit. One that fails while bringing back does not end it: what
    counts is the verification.
    """

    deployment: Arm
    take_down: Annotated[list[Command], Field(min_length=1)]
    bring_back: Annotated[list[Command], Field(min_length=1)]
    command_timeout_s: Seconds = 300.0
    ready_timeout_s: Seconds = 1800.0
    verify: ServiceCheck = ServiceCheck()

    @model_validator(mode="after")
    def _it_is_only_reached(self) -> Service:
        if self.deployment.is_started:
            raise Misfit("the service is reached by `url` alone: `bring_back` starts it", "deployment")
        return self


class Scenario(Model):
    """One YAML file: arms x workloads under guards, with monitors."""

    name: Name
    description: str = ""
    arms: Annotated[dict[Name, Arm], Field(min_length=1)]
    workloads: Annotated[list[Workload], Field(min_length=1)]
    corpus: Corpus | None = None
    gate: Gate | None = None
    guards: Guards = Guards()
    load: Load = Load()
    monitors: Monitors = Monitors()
    placement: Placement = Placement()
    service: Service | None = None

    @model_validator(mode="after")
    def _names_fit(self) -> Scenario:
        refuse_shared_names((workload.name for workload in self.workloads), "workload", "workloads")
        for index, workload in enumerate(self.workloads):
            for place, arm in enumerate(workload.arms):
                if arm not in self.arms:
                    arms = ", ".join(self.arms)
                    raise Misfit(f"no such arm: the scenario has {arms}", "workloads", index, "arms", place)
        return self

    @model_validator(mode="after")
    def _prompts_have_a_source(self) -> Scenario:
        if self.corpus is None and any(workload.prompt_set is None for workload in self.workloads):
            raise Misfit("workloads that are no prompt sets take their text from it", "corpus")
        for index, workload in enumerate(self.workloads):
            if (
                workload.prompt_set is not None
                and workload.prompt_set.cold_by == "flush"
                and not self.guards.flush
            ):
                raise Misfit(
                    "guards.flush is false; where the server has prefix reuse off, write no_prefix_reuse",
                    *("workloads", index, "prompt_set", "cold_by"),
                )
        return self

    @model_validator(mode="after")
    def _failing_requests_are_seen(self) -> Scenario:
        for index, workload in enumerate(self.workloads):
            limit = ((workload.search and workload.search.slo) or {}).get("failure_share")
            if limit is not None and 1 - self.guards.success_rate_min <= limit:
                raise Misfit(
                    f"a level never fails by it: guards.success_rate_min {self.guards.success_rate_min:g} voids a"
                    " point with more failed requests than that; lower success_rate_min, or leave the limit out",
                    *("workloads", index, "search", "slo", "failure_share"),
                )
        return self

    def prewarm_requests_of(self, workload: Workload) -> int:
        """How many untimed requests go before each attempt of this workload's points."""
        if workload.prompt_set is not None:
            return 0
        if workload.prewarm_requests is None:
            return self.guards.prewarm_requests
        return workload.prewarm_requests

    def workloads_of(self, arm: str) -> list[Workload]:
        """The workloads that this arm runs, in the order of the file."""
        return [w for w in self.workloads if not w.arms or arm in w.arms]
