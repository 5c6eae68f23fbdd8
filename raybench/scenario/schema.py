"""The scenario file: what a user may write, with units, defaults and limits.

Everything is a frozen, strict pydantic model; unknown keys are refused. Reading YAML and turning
pydantic's complaints into `ConfigError` is in `scenario/load.py`; making points is in
`scenario/plan.py`. Nothing edits a Scenario after it was read.

Units stand last in the names: `_s` seconds, `_tokens`, `_bytes`. Token sizes may be written
`16k` (= 16 x 1024 = 16384) or `1m` (= 1024 x 1024), as serving people do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from raybench.scenario.faults import SimFaults

_SIZE = re.compile(r"([1-9][0-9]*)([kKmM])")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def parse_tokens(value: object) -> object:
    """`16k` -> 16384, `1m` -> 1048576; anything else is left for the strict integer check."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(match[1]) * (1024 if match[2] in "kK" else 1024 * 1024)
    return value


@dataclass(frozen=True)
class Words:
    """What may stand in a field, said for people: errors and docs/SCENARIOS.md show it, not a pattern."""

    text: str


class Misfit(ValueError):
    """Two places of a file do not fit together; `path` leads from the model that noticed to the wrong one."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


def refuse_credentials(headers: dict[str, str]) -> dict[str, str]:
    """Headers are written into the manifest, so the credentials that have a place elsewhere are refused."""
    for name in headers:
        if name.lower() in ("authorization", "proxy-authorization", "cookie"):
            raise ValueError(
                f"the header {name} carries a credential, and headers are written into the run directory: "
                "put the key into an environment variable and give the variable's name instead"
            )
    return headers


def check_header_text(headers: dict[str, str]) -> dict[str, str]:
    """Names and values as RFC 9110, section 5, has them, so that none ends its line; no framing of one's own."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a header's name: letters, digits and `-` make one")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"the value of the header {name} may hold printable ASCII only, no line end")
        if name.lower() in ("content-length", "transfer-encoding"):
            raise ValueError(f"the header {name} is made for each request and cannot be given")
    return headers


def refuse_repeats(levels: list[int]) -> list[int]:
    """A level that is listed twice would make two points of one name."""
    if len(set(levels)) != len(levels):
        raise ValueError("a concurrency is listed twice")
    return levels


Tokens = Annotated[
    int,
    BeforeValidator(parse_tokens),
    Field(ge=1),
    Words("a token count from 1: 16384, 16k (x 1024) or 1m (x 1024 x 1024)"),
]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$"),
    Words("a name of 1 to 64 letters, digits and `_ . + -`, beginning with a letter or a digit"),
]
Url = Annotated[
    str,
    Field(pattern=r"^https?://[^\s/@]+(/\S*)?$"),
    Words("an address such as http://host:30000 (no user name or password in it)"),
]
VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), Words("the name of an environment variable")
]
Headers = Annotated[dict[str, str], AfterValidator(refuse_credentials), AfterValidator(check_header_text)]
EngineName = Literal["sglang", "vllm", "openai", "llamacpp"]
Route = Literal["generate", "completions", "chat"]
SimProfile = Literal["small", "tp2pp4", "tp8_eagle3"]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Limits(Model):
    """What the deployment can hold. Declared here, they serve `plan`; facts read from the engine win."""

    max_running_requests: Count | None = None
    kv_pool_tokens: Tokens | None = None
    context_tokens: Tokens | None = None
    max_input_tokens: Tokens | None = None
    page_tokens: Count | None = None
    reserved_tokens_per_request: Annotated[int, Field(ge=0)] = 0


class EngineLog(Model):
    """The log file that the engine writes on the target's host, absolute there."""

    path: Annotated[str, Field(pattern="^/"), Words("an absolute path on the target's host")]


class Sim(Model):
    """Start the built-in simulated engine for this arm instead of reaching a real one.

    `time_compression` 50 means that fifty simulated seconds pass in one.
    """

    profile: SimProfile = "small"
    time_compression: Annotated[float, Field(gt=0, le=1000)] = 1.0
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    incremental: bool = False
    seed: Annotated[int, Field(ge=0)] = 0
    max_running_requests: Count | None = None
    kv_pool_tokens: Tokens | None = None
    page_tokens: Count | None = None
    faults: SimFaults = SimFaults()


class Tls(Model):
    verify: bool = True
    ca_file: str | None = None


class Arm(Model):
    """One deployment under comparison: exactly one of `url` (reach it) or `sim` (start it)."""

    engine: EngineName = "sglang"
    url: Url | None = None
    control_urls: list[Url] = []
    sim: Sim | None = None
    route: Route | None = None
    model: str | None = None
    api_key_env: VariableName | None = None
    admin_api_key_env: VariableName | None = None
    headers: Headers = {}
    tls: Tls = Tls()
    limits: Limits = Limits()
    extra_body: dict[str, object] = {}
    log: EngineLog | None = None

    @model_validator(mode="after")
    def _one_way_to_the_target(self) -> Arm:
        if (self.url is None) == (self.sim is None):
            raise ValueError("an arm needs exactly one of `url` and `sim`")
        if self.sim is not None and self.engine != "sglang":
            raise ValueError("the simulated engine speaks SGLang: leave `engine` out or write sglang")
        if self.log is not None and self.engine != "sglang":
            raise Misfit(f"only SGLang's log tells cached tokens, not that of {self.engine}", "log")
        if self.log is not None and self.sim is not None:
            raise Misfit("the simulated engine's log is known already: leave `log` out", "log")
        if self.route == "generate" and self.engine != "sglang":
            raise ValueError("the route `generate` exists on sglang only")
        return self

    @property
    def effective_route(self) -> Route:
        return self.route or ("generate" if self.engine == "sglang" else "completions")


class RequestCount(Model):
    """requests = max(minimum, per_concurrency x C); the first seed's rule is the default."""

    minimum: Count = 8
    per_concurrency: Annotated[int, Field(ge=0)] = 2


class Workload(Model):
    """One input length -> output length, under a list of concurrencies (closed loop).

    over_active_limit: `queue` keeps a concurrency above the active limit as a queueing point,
    `skip` makes it a structural skip (context-boundary rows).
    arms: names of the arms that run it; empty means all.
    """

    name: Name
    input_tokens: Tokens
    output_tokens: Tokens
    concurrency: Annotated[list[Count], Field(min_length=1), AfterValidator(refuse_repeats)]
    requests: RequestCount | Count = RequestCount()
    over_active_limit: Literal["queue", "skip"] = "queue"
    ignore_eos: bool = True
    temperature: Annotated[float, Field(ge=0)] = 0.0
    stream: bool = True
    arms: list[Name] = []
    prewarm_requests: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _concurrency_can_be_reached(self) -> Workload:
        for level in self.concurrency:
            count = self.request_count(level)
            if count < level:
                raise Misfit(f"{count} requests can never be {level} at once: ask for more", "requests")
        return self

    def request_count(self, concurrency: int) -> int:
        """How many requests the point at this concurrency sends."""
        if isinstance(self.requests, int):
            return self.requests
        return max(self.requests.minimum, self.requests.per_concurrency * concurrency, 1)


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
    """Limits of the procedure and of validity (design section 4). Every wait has one."""

    strict: bool = True
    hit_rate_max: Annotated[float, Field(ge=0, le=1)] = 0.01
    success_rate_min: Annotated[float, Field(ge=0, le=1)] = 1.0
    in_flight_share_min: Annotated[float, Field(ge=0, le=1)] = 0.0
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
    clock_uncertainty_ms_max: Seconds = 50.0


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
    through aiohttp also where the cheaper client could.
    """

    client_nodes: Count | None = None
    client_nodes_min: Count | None = None
    workers_per_node: Count | Literal["auto"] = "auto"
    starts_per_ms: Count = 8
    client: Literal["auto", "plain"] = "auto"
    request: RequestLimits = RequestLimits()
    keep_chunks: bool = True

    @model_validator(mode="after")
    def _nodes_fit(self) -> Load:
        check_client_nodes(self.client_nodes, self.client_nodes_min)
        return self


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


class Placement(Model):
    """Which Ray nodes do what, by node label or custom resource (`key: value` / `resource: name`).

    client / target None: clients may be any node; the target is the coordinator's own node.
    """

    client_resource: str | None = None
    client_labels: dict[str, str] = {}
    target_resource: str | None = None
    target_labels: dict[str, str] = {}
    start_timeout_s: Seconds = 60.0


class Scenario(Model):
    """One YAML file: arms x workloads under guards, with monitors."""

    name: Name
    description: str = ""
    arms: Annotated[dict[Name, Arm], Field(min_length=1)]
    workloads: Annotated[list[Workload], Field(min_length=1)]
    corpus: Corpus
    guards: Guards = Guards()
    load: Load = Load()
    monitors: Monitors = Monitors()
    placement: Placement = Placement()

    @model_validator(mode="after")
    def _names_fit(self) -> Scenario:
        names: list[str] = []
        for index, workload in enumerate(self.workloads):
            if workload.name in names:
                raise Misfit("another workload has this name", "workloads", index, "name")
            names.append(workload.name)
            for place, arm in enumerate(workload.arms):
                if arm not in self.arms:
                    arms = ", ".join(self.arms)
                    raise Misfit(f"no such arm: the scenario has {arms}", "workloads", index, "arms", place)
        return self

    def prewarm_requests_of(self, workload: Workload) -> int:
        """How many untimed requests go before each attempt of this workload's points."""
        if workload.prewarm_requests is None:
            return self.guards.prewarm_requests
        return workload.prewarm_requests

    def points_of(self, arm: str) -> list[Workload]:
        """The workloads that this arm runs, in the order of the file."""
        return [w for w in self.workloads if not w.arms or arm in w.arms]
