"""Cost models and facts of the simulated deployments.

The limits (running requests, KV pool, context, page) are in `scenario/limits.py`, which `plan` uses too;
here is what a step costs and what the engine says of itself. `tp2pp4` and `tp8_eagle3` are fitted to the
44 points of the first seed's report; `tests/unit/test_sim_profiles.py` states how close they come.
All times are virtual seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from raybench.errors import ConfigError
from raybench.scenario.limits import sim_limits
from raybench.scenario.sim_block import Sim, SimProfile
from raybench.sim.speculation import Speculation

#: What SGLang captures device graphs for.
GRAPH_PHASES = ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend")


@dataclass(frozen=True)
class Memory:
    """Device memory in MiB, as the first seed's nvidia-smi saw it (its "GiB" are thousands of MiB:
    85,651 MiB a card, 85.0 at the peak, 0.6 left)."""

    devices: int
    name: str
    total_mib: int
    idle_mib: int
    reserved_mib: int
    kv_full_mib: int
    running_full_mib: int
    idle_power_w: float
    full_power_w: float
    weight_gb: float
    kv_cache_gb: float
    graph_gb: float

    @property
    def startup_available_gb(self) -> float:
        """What was left once the engine had started."""
        return (self.total_mib - self.idle_mib) / 1024

    @property
    def graph_gb_by_phase(self) -> dict[str, float]:
        return dict.fromkeys(GRAPH_PHASES, 0.0) | {"decode": self.graph_gb}


@dataclass(frozen=True)
class Profile:
    """One simulated deployment.

    prefill_step_s + prefill_token_s x n + prefill_attention_s x n x (p + n / 2): what a prefill chunk of n
    tokens after p earlier ones occupies one pipeline stage; the answer to a prompt's last chunk comes
    pipeline_stages times that later (a pipeline is full of other work meanwhile).
    decode_step_s: (batch size, seconds) knots, linear in between, of one decode or verify step.
    host_write_s / host_load_s: seconds to copy one token's KV to or from the host tier.
    reasoning_parser: what takes the model's thoughts out of its answer; None: it is none that thinks.
    tool_call_parser: without one a tool call is plain text.
    """

    name: SimProfile
    model: str
    max_running_requests: int
    kv_pool_tokens: int
    context_tokens: int
    page_tokens: int
    chunk_tokens: int
    tensor_parallel: int
    pipeline_stages: int
    prefill_step_s: float
    prefill_token_s: float
    prefill_attention_s: float
    decode_step_s: tuple[tuple[int, float], ...]
    graph_batch_max: int
    radix_cache: bool
    host_tier_ratio: float
    host_write_s: float
    host_load_s: float
    mem_fraction_static: float
    kv_cache_dtype: str
    memory: Memory
    max_queued_requests: int | None
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    speculation: Speculation | None = None

    def prefill_s(self, tokens: int, after: int) -> float:
        """Stage time of a chunk of `tokens` that follows `after` tokens of the same prompt."""
        attention = self.prefill_attention_s * tokens * (after + tokens / 2)
        return self.prefill_token_s * tokens + attention

    def decode_s(self, batch: int) -> float:
        """One decode step of `batch` requests; beyond the last knot the last slope goes on."""
        knots = self.decode_step_s
        at = min(max(bisect_right(knots, (batch, float("inf"))), 1), len(knots) - 1)
        (x0, y0), (x1, y1) = knots[at - 1], knots[at]
        return y0 + (y1 - y0) * (batch - x0) / (x1 - x0)

    @property
    def drafts(self) -> int:
        """Tokens that are drafted for a verify step."""
        return 0 if self.speculation is None else self.speculation.drafts

    @property
    def request_tokens_max(self) -> int:
        """SGLang's max_req_len: input plus output of one request."""
        return min(self.context_tokens, self.kv_pool_tokens) - 1

    @property
    def input_tokens_max(self) -> int:
        """SGLang's max_req_input_len."""
        return self.request_tokens_max - 5


def make_profile(sim: Sim) -> Profile:
    """The profile that `sim` names, with its limits replaced where `sim` gives others.

    Raises ConfigError where the KV pool has not one page.
    """
    limits = sim_limits(sim)
    pool, page = limits.kv_pool_tokens, limits.page_tokens
    assert pool is not None and page is not None
    if pool < page:
        raise ConfigError("sim", f"kv_pool_tokens {pool} is less than one page of {page} tokens")
    return _PROFILES[sim.profile](
        name=sim.profile,
        max_running_requests=limits.max_running_requests,
        max_queued_requests=sim.max_queued_requests,
        kv_pool_tokens=pool - pool % page,
        context_tokens=limits.context_tokens,
        page_tokens=page,
    )


#: What the fields of a profile are but for the limits.
_PROFILES: dict[SimProfile, Callable[..., Profile]] = {
    "small": partial(
        Profile,
        model="sim-small",
        chunk_tokens=2048,
        tensor_parallel=1,
        pipeline_stages=1,
        prefill_step_s=0.004,
        prefill_token_s=25e-6,
        prefill_attention_s=2e-10,
        decode_step_s=((1, 0.0080), (8, 0.0095), (16, 0.0120), (64, 0.0300)),
        graph_batch_max=16,
        radix_cache=True,
        host_tier_ratio=0.0,
        host_write_s=1e-6,
        host_load_s=1e-6,
        mem_fraction_static=0.85,
        kv_cache_dtype="auto",
        memory=Memory(2, "Simulated GPU 24GB", 24_576, 15_200, 420, 2_400, 3_600, 60.0, 300.0, 7.1, 6.9, 0.4),
    ),
    "tp2pp4": partial(
        Profile,
        model="sim-tp2pp4",
        chunk_tokens=16_384,
        tensor_parallel=2,
        pipeline_stages=4,
        prefill_step_s=0.0117,
        prefill_token_s=8.0e-5,
        prefill_attention_s=3.1e-10,
        decode_step_s=((1, 0.0492), (4, 0.0580), (8, 0.0635), (16, 0.0670), (32, 0.0780), (48, 0.0920)),
        graph_batch_max=64,
        radix_cache=False,
        host_tier_ratio=0.0,
        host_write_s=2.3e-6,
        host_load_s=2.3e-6,
        mem_fraction_static=0.85,
        kv_cache_dtype="fp8_e4m3",
        memory=Memory(8, "Simulated RTX 6000D", 85_651, 64_600, 560, 12_000, 11_000, 85.0, 420.0, 45.2, 13.0, 2.9),
        reasoning_parser="glm45",
    ),
    "tp8_eagle3": partial(
        Profile,
        model="sim-tp8-eagle3",
        chunk_tokens=8_192,
        tensor_parallel=8,
        pipeline_stages=1,
        prefill_step_s=0.055,
        prefill_token_s=2.28e-4,
        prefill_attention_s=8.8e-10,
        decode_step_s=((1, 0.0267), (8, 0.0730), (16, 0.1120), (32, 0.1650), (52, 0.2500), (64, 0.2900)),
        graph_batch_max=64,
        radix_cache=True,
        host_tier_ratio=3.0,
        host_write_s=2.3e-6,
        host_load_s=2.3e-6,
        mem_fraction_static=0.9,
        kv_cache_dtype="fp8_e4m3",
        memory=Memory(8, "Simulated RTX 6000D", 85_651, 77_500, 560, 3_600, 900, 85.0, 420.0, 52.6, 15.8, 6.1),
        reasoning_parser="glm45",
        tool_call_parser="glm47",
        speculation=Speculation("EAGLE3", 4, 5, 0.53, 0.90, 700.0),
    ),
}
