"""`--simulate`: any scenario with simulated engines in the place of its deployments.

Pure. What is measured stays (workloads, guards, order); what is reached, started or read from a large disk is
replaced, so that a night's run can be tried in minutes on a laptop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from pydantic import ValidationError

from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.fields import Shape, describe
from raybench.scenario.launch import Inventory
from raybench.scenario.limits import SIM_LIMITS
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Arm, Corpus, Placement, Route, Scenario, Service, SyntheticCorpus
from raybench.scenario.sim_block import Sim, SimProfile
from raybench.scenario.workload import Workload

#: Name of a rehearsal's run, so that nobody takes it for the real one.
SUFFIX = "-simulated"
IDLE_STABLE_S = 0.2
_CORPUS_TOKENS_MIN = 256 * 1024
#: Repeated pages of a random corpus, and second attempts.
_CORPUS_RESERVE = 1.1

#: Corpus tokens for so many requests by input tokens (`corpus.windows.corpus_need`).
CorpusNeed = Callable[[Mapping[int, int]], int]


def rehearse(
    scenario: Scenario,
    time_compression: float,
    service: Service | None,
    exists: Callable[[str], bool],
    corpus_need: CorpusNeed,
) -> Scenario:
    """service: what stands in for the scenario's. exists: whether this host has an artifact.

    Raises ConfigError for a time compression that no simulated engine may have.
    """
    try:
        Sim(time_compression=time_compression)
    except ValidationError:
        allowed = describe(Shape.of_field(Sim.model_fields["time_compression"]))
        problem = ConfigProblem("out of range", value=f"{time_compression:g}", allowed=allowed)
        raise ConfigError("--compression", problem) from None
    arms = {name: _simulated(scenario, name, time_compression, exists) for name in scenario.arms}
    # A simulated server has no switch against prefix reuse, and understands few questions of a gate.
    workloads = [_flushed(workload) for workload in scenario.workloads]
    gate = None if scenario.gate is None else scenario.gate.model_copy(update={"on_failure": "mark"})
    guards = {
        "flush": scenario.guards.flush or workloads != scenario.workloads,
        "idle_stable_s": min(scenario.guards.idle_stable_s, IDLE_STABLE_S),
    }
    gpu = scenario.monitors.gpu
    if gpu.source != "none":
        gpu = gpu.model_copy(update={"source": "auto"})
    changed = scenario.model_copy(
        update={
            "workloads": workloads,
            "gate": gate,
            "name": scenario.name[: 64 - len(SUFFIX)] + SUFFIX,
            "arms": arms,
            "guards": scenario.guards.model_copy(update=guards),
            "monitors": scenario.monitors.model_copy(update={"gpu": gpu}),
            "placement": Placement(),
            "service": service,
        }
    )
    windows = make_plan(changed).windows.values()
    need = ceil(max(map(corpus_need, windows), default=0) * _CORPUS_RESERVE)
    tokens = max(need, _CORPUS_TOKENS_MIN)
    corpus = Corpus(synthetic=SyntheticCorpus(tokens=tokens))
    # Validated once more as a whole, as a file would be.
    return Scenario.model_validate(changed.model_copy(update={"corpus": corpus}).model_dump())


def _flushed(workload: Workload) -> Workload:
    if workload.prompt_set is None:
        return workload
    prompts = workload.prompt_set.model_copy(update={"cold_by": "flush", "repeats": 1})
    return workload.model_copy(update={"prompt_set": prompts})


def _simulated(scenario: Scenario, name: str, time_compression: float, exists: Callable[[str], bool]) -> Arm:
    """An arm that already is a simulated engine stays as it is."""
    arm = scenario.arms[name]
    if arm.sim is not None:
        return arm
    declared = arm.limits
    sim = Sim(
        profile=_profile(scenario, name),
        time_compression=time_compression,
        max_running_requests=declared.max_running_requests,
        kv_pool_tokens=declared.kv_pool_tokens,
        page_tokens=declared.page_tokens,
    )
    artifacts = [path for path in arm.inventory.artifacts if exists(path)]
    only_prompts = all(workload.prompt_set is not None for workload in scenario.workloads_of(name))
    route: Route = "completions"
    if arm.effective_route == "generate" or (arm.effective_route == "chat" and only_prompts):
        route = arm.effective_route
    return Arm(sim=sim, route=route, limits=declared, inventory=Inventory(artifacts=artifacts))


def _profile(scenario: Scenario, name: str) -> SimProfile:
    """The smallest whose context holds what the arm's deployment does, or else its longest request."""
    workloads = scenario.workloads_of(name)
    longest = max((workload.input_tokens + workload.output_tokens for workload in workloads), default=0)
    wanted = scenario.arms[name].limits.context_tokens or longest
    by_size = sorted(SIM_LIMITS, key=lambda profile: SIM_LIMITS[profile].context_tokens or 0)
    return next((p for p in by_size if (SIM_LIMITS[p].context_tokens or 0) >= wanted), by_size[-1])
