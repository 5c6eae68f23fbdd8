"""The scenario file: what a user may write, with units, defaults and limits.

Everything is a frozen, strict pydantic model; unknown keys are refused. Reading YAML and turning pydantic's
complaints into `ConfigError` is in `scenario/load.py`; making points is in `scenario/plan.py`. Nothing edits a
Scenario after it was read.

Here are the file as a whole and its plain blocks. Blocks with much to say have a module of their own:
`workload.py` (with `arrivals.py`, `search_block.py`, `prompt_set.py`), `launch.py`, `sim_block.py`, `gate.py`.
What single values may be is in `values.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from raybench.scenario.gate import Gate
from raybench.scenario.launch import Command, HostPath, Inventory, Launch, ServiceCheck
from raybench.scenario.sim_block import Sim
from raybench.scenario.values import (
    BaseUrl,
    Count,
    ExtraBody,
    Headers,
    IpAddress,
    Misfit,
    Model,
    Name,
    Positive,
    Seconds,
    Tokens,
    VariableName,
    Words,
    refuse_repeats,
    refuse_shared_names,
)
from raybench.scenario.workload import Workload

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
    url: BaseUrl | None = None
    control_urls: Annotated[list[BaseUrl], AfterValidator(refuse_repeats)] = []
    load_urls: Annotated[list[BaseUrl], AfterValidator(refuse_repeats)] = []
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
    extra_body: ExtraBody = {}
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
        for place, url in enumerate(self.load_urls):
            if url == self.url:
                raise Misfit("is the arm's `url` already, and load goes to each address once", "load_urls", place)
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


class RequestLimits(Model):
    """Explicit limits of one request. None means no limit; all are written into the results."""

    connect_timeout_s: Seconds = 30.0
    idle_timeout_s: Seconds | None = 1800.0
    request_timeout_s: Seconds | None = None
    event_bytes_max: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024


def check_client_nodes(nodes: int | None, least: int | None) -> None:
    """The least number of client nodes to go on with cannot exceed the number that is asked."""
    if nodes is not None and least is not None and least > nodes:
        raise Misfit(f"more than client_nodes, which is {nodes}", "client_nodes_min")


class Load(Model):
    """How the concurrency is spread.

    client_nodes: None means every node that may carry load. client_nodes_min: go on with as few as
    these, and record it; None insists on client_nodes (at least one node). starts_per_ms: streams that
    one worker starts in a millisecond, so that a burst does not keep it from reading. client: `plain` sends
    through aiohttp also where the cheaper client could. source_addresses: a node sends from those that are
    its own; each has its own range of local ports.
    """

    client_nodes: Count | None = None
    client_nodes_min: Count | None = None
    workers_per_node: Count | Literal["auto"] = "auto"
    starts_per_ms: Count = 8
    client: Literal["auto", "plain"] = "auto"
    source_addresses: Annotated[list[IpAddress], AfterValidator(refuse_repeats)] = []
    request: RequestLimits = RequestLimits()
    keep_chunks: bool = True

    @model_validator(mode="after")
    def _nodes_fit(self) -> Load:
        check_client_nodes(self.client_nodes, self.client_nodes_min)
        return self


class Placement(Model):
    """Which Ray nodes do what, by node label or custom resource (`key: value` / `resource: name`).

    client / target None: clients may be any node; the target is the coordinator's own node.
    """

    client_resource: str | None = None
    client_labels: dict[str, str] = {}
    target_resource: str | None = None
    target_labels: dict[str, str] = {}
    start_timeout_s: Seconds = 60.0


class GpuMonitoring(Model):
    """`source: none` turns it off; `sim` reads the simulated engine's devices; `auto` picks by arm."""

    source: Literal["auto", "nvml", "sim", "none"] = "auto"
    interval_s: Annotated[float, Field(ge=0.02, le=60)] = 0.5
    required: bool = False


class ServerMonitoring(Model):
    enabled: bool = True
    interval_s: Annotated[float, Field(ge=0.1, le=60)] = 1.0


class Monitors(Model):
    gpu: GpuMonitoring = GpuMonitoring()
    server: ServerMonitoring = ServerMonitoring()


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
        for name in ("control_urls", "load_urls", "inventory", "limits", "log", "request_log"):
            if getattr(self.deployment, name) != Arm.model_fields[name].default:
                raise Misfit("says nothing of a service, which is only reached: leave it out", "deployment", name)
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
            raise Misfit(
                "required key is missing: workloads without a `prompt_set` take their text from it;"
                " `corpus: {synthetic: {}}` is random text",
                "corpus",
            )
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
