"""How much a deployment can hold: active limits, queueing, structural skips. Pure arithmetic.

A limit that is not known stays None, and so does everything that would depend on it: nothing is guessed.
"""

from __future__ import annotations

from raybench.scenario.schema import Arm, EngineName, Limits
from raybench.scenario.sim_block import Sim, SimProfile
from raybench.scenario.workload import Workload

#: What the simulated engine's profiles hold; the second and third are the two deployments of the first seed.
SIM_LIMITS: dict[SimProfile, Limits] = {
    "small": Limits(max_running_requests=16, kv_pool_tokens=131_072, context_tokens=32_768, page_tokens=16),
    "tp2pp4": Limits(max_running_requests=48, kv_pool_tokens=1_040_384, context_tokens=1_048_576, page_tokens=64),
    "tp8_eagle3": Limits(max_running_requests=64, kv_pool_tokens=276_480, context_tokens=270_336, page_tokens=64),
}

#: Tokens of the context that an engine never gives to a request, by its source; 0 for those that give all. SGLang
#: clips the answer to min(context, pool) - 1 - input - 1 without a word (srt/managers/scheduler.py, `max_req_len`
#: and `init_req_max_new_tokens`).
CONTEXT_RESERVE: dict[EngineName, int] = {"sglang": 2}


def merge_limits(declared: Limits, facts: Limits) -> Limits:
    """What the engine says of itself wins over what the scenario declares; either fills the other's gaps."""
    known = {name: value for name, value in facts.model_dump().items() if value is not None}
    if facts.reserved_tokens_per_request == 0:
        del known["reserved_tokens_per_request"]
    return declared.model_copy(update=known)


def sim_limits(sim: Sim) -> Limits:
    """The limits of a simulated engine: its profile's, with the scenario's changes."""
    changes = Limits(
        max_running_requests=sim.max_running_requests,
        kv_pool_tokens=sim.kv_pool_tokens,
        page_tokens=sim.page_tokens,
    )
    return merge_limits(SIM_LIMITS[sim.profile], changes)


def declared_limits(arm: Arm) -> Limits:
    """What is known of an arm before anything is contacted, with what its engine is known to reserve."""
    limits = arm.limits if arm.sim is None else merge_limits(arm.limits, sim_limits(arm.sim))
    if limits.reserved_context_tokens is not None:
        return limits
    return limits.model_copy(update={"reserved_context_tokens": CONTEXT_RESERVE.get(arm.engine, 0)})


def request_tokens(limits: Limits, input_tokens: int, output_tokens: int) -> int:
    """Tokens of the KV pool that one request takes."""
    return input_tokens + output_tokens + limits.reserved_tokens_per_request


def active_limit(limits: Limits, input_tokens: int, output_tokens: int) -> int | None:
    """How many requests of this shape can run at once: min(max running requests, pool // tokens of one).

    None when the engine's own cap or its pool is not known. 0 when the pool cannot hold one.
    """
    if limits.max_running_requests is None or limits.kv_pool_tokens is None:
        return None
    one = request_tokens(limits, input_tokens, output_tokens)
    return min(limits.max_running_requests, limits.kv_pool_tokens // one)


def queueing(limits: Limits, workload: Workload, concurrency: int | None) -> bool | None:
    """Whether this concurrency must queue inside the engine, so that its TTFT holds the wait.

    One known bound that is exceeded settles it; None when no known bound is and the other is not known.
    An open loop (no concurrency) queues or not by how fast the engine answers: None.
    """
    if concurrency is None:
        return None
    if _exceeded_bound(limits, workload, concurrency) is not None:
        return True
    return None if active_limit(limits, workload.input_tokens, workload.output_tokens) is None else False


def structural_skip(limits: Limits, workload: Workload, concurrency: int | None) -> str | None:
    """Why the target cannot hold this point, with the arithmetic; None when nothing known forbids it."""
    size_in, size_out = workload.input_tokens, workload.output_tokens
    context, longest, pool = limits.context_tokens, limits.max_input_tokens, limits.kv_pool_tokens
    kept = limits.reserved_context_tokens or 0
    if context is not None and size_in + size_out + kept > context:
        return f"context limit: {_sum(size_in, size_out, kept)} > {context} tokens"
    if longest is not None and size_in > longest:
        return f"input limit: {size_in} input > {longest} tokens"
    reserved = max(limits.reserved_tokens_per_request, kept)
    if pool is not None and size_in + size_out + reserved > pool:
        return f"KV pool: one request takes {_sum(size_in, size_out, reserved)} > {pool} tokens"
    if workload.over_active_limit == "skip" and concurrency is not None:
        bound = _exceeded_bound(limits, workload, concurrency)
        return None if bound is None else f"active limit: concurrency {concurrency} > {bound}"
    return None


def _sum(size_in: int, size_out: int, reserved: int) -> str:
    """The arithmetic, as `90 input + 10 output + 2 reserved = 102`."""
    terms = f"{size_in} input + {size_out} output" + (f" + {reserved} reserved" if reserved else "")
    return f"{terms} = {size_in + size_out + reserved}"


def _exceeded_bound(limits: Limits, workload: Workload, concurrency: int) -> str | None:
    """The tightest known bound that the concurrency exceeds, as text."""
    bounds: list[tuple[int, str]] = []
    if limits.max_running_requests is not None:
        bounds.append((limits.max_running_requests, f"{limits.max_running_requests} running requests"))
    if limits.kv_pool_tokens is not None:
        one = request_tokens(limits, workload.input_tokens, workload.output_tokens)
        fit = limits.kv_pool_tokens // one
        bounds.append((fit, f"{fit} = KV pool {limits.kv_pool_tokens} // {one} tokens a request"))
    exceeded = [bound for bound in bounds if concurrency > bound[0]]
    return min(exceeded)[1] if exceeded else None
