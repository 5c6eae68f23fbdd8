"""Active limits and structural skips: the first seed's values, and nothing that is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.scenario.limits import (
    SIM_LIMITS,
    active_limit,
    declared_limits,
    merge_limits,
    queueing,
    sim_limits,
    structural_skip,
)
from raybench.scenario.schema import Arm, Limits
from raybench.scenario.sim_block import Sim, SimFaults
from raybench.scenario.workload import Workload

K = 1024
#: The rows of the first seed's table of active limits: input, output, TP2PP4, TP8+EAGLE3+AR (None: skipped).
SEED_ROWS = [
    (16 * K, 512, 48, 16),
    (1 * K, 128, 48, 64),
    (1 * K, 4 * K, 48, 54),  # the report says "about 52" for the second; its own pool and formula give 54
    (64 * K, 512, 15, 4),
    (128 * K, 512, 7, 2),
    (256 * K, 1, 3, 1),
    (512 * K, 1, 1, None),
    (896 * K, 1, 1, None),
]


def workload(input_tokens: int, output_tokens: int, over: str = "queue") -> Workload:
    return Workload.model_validate(
        {
            "name": "w",
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "concurrency": [1],
            "over_active_limit": over,
        }
    )


@pytest.mark.parametrize(("size_in", "size_out", "tp2pp4", "tp8_eagle3"), SEED_ROWS)
def test_the_first_seed_s_active_limits_and_skips_come_out(
    size_in: int, size_out: int, tp2pp4: int, tp8_eagle3: int | None
) -> None:
    shape = workload(size_in, size_out)
    assert active_limit(SIM_LIMITS["tp2pp4"], size_in, size_out) == tp2pp4
    assert structural_skip(SIM_LIMITS["tp2pp4"], shape, 1) is None
    reason = structural_skip(SIM_LIMITS["tp8_eagle3"], shape, 1)
    if tp8_eagle3 is None:
        total = size_in + size_out
        assert reason == f"context limit: {size_in} input + {size_out} output = {total} > 270336 tokens"
    else:
        assert reason is None
        assert active_limit(SIM_LIMITS["tp8_eagle3"], size_in, size_out) == tp8_eagle3


def test_what_is_not_known_gives_no_limit_and_no_skip() -> None:
    for known in (
        Limits(),
        Limits(max_running_requests=4),
        Limits(kv_pool_tokens=1000),
        Limits(context_tokens=100),
    ):
        assert active_limit(known, 90, 10) is None
    assert structural_skip(Limits(), workload(10**9, 1, "skip"), 10**6) is None
    assert queueing(Limits(), workload(10, 1), 10**6) is None


def test_one_known_bound_settles_queueing_when_it_is_exceeded() -> None:
    shape = workload(90, 10)
    assert queueing(Limits(max_running_requests=4), shape, 5) is True
    assert queueing(Limits(max_running_requests=4), shape, 4) is None
    assert queueing(Limits(kv_pool_tokens=399), shape, 4) is True
    both = Limits(max_running_requests=4, kv_pool_tokens=400)
    assert [queueing(both, shape, level) for level in (1, 4, 5)] == [False, False, True]


@pytest.mark.parametrize(
    ("limits", "over", "concurrency", "reason"),
    [
        (Limits(context_tokens=100), "queue", 1, None),
        (Limits(context_tokens=99), "queue", 1, "context limit: 90 input + 10 output = 100 > 99 tokens"),
        (Limits(context_tokens=102, reserved_context_tokens=2), "queue", 1, None),
        (
            Limits(context_tokens=101, reserved_context_tokens=2),
            "queue",
            1,
            "context limit: 90 input + 10 output + 2 reserved = 102 > 101 tokens",
        ),
        (
            Limits(kv_pool_tokens=101, reserved_context_tokens=2),
            "queue",
            1,
            "KV pool: one request takes 90 input + 10 output + 2 reserved = 102 > 101 tokens",
        ),
        (Limits(max_input_tokens=90), "queue", 1, None),
        (Limits(max_input_tokens=89), "queue", 1, "input limit: 90 input > 89 tokens"),
        (Limits(kv_pool_tokens=100), "queue", 1, None),
        (
            Limits(kv_pool_tokens=99),
            "queue",
            1,
            "KV pool: one request takes 90 input + 10 output = 100 > 99 tokens",
        ),
        (
            Limits(kv_pool_tokens=100, reserved_tokens_per_request=1),
            "queue",
            1,
            "KV pool: one request takes 90 input + 10 output + 1 reserved = 101 > 100 tokens",
        ),
        (Limits(max_running_requests=2), "queue", 3, None),
        (Limits(max_running_requests=2), "skip", 3, "active limit: concurrency 3 > 2 running requests"),
        (
            Limits(max_running_requests=9, kv_pool_tokens=250),
            "skip",
            3,
            "active limit: concurrency 3 > 2 = KV pool 250 // 100 tokens a request",
        ),
        (Limits(max_running_requests=9, kv_pool_tokens=250), "skip", 2, None),
    ],
)
def test_a_structural_skip_shows_its_arithmetic(
    limits: Limits, over: str, concurrency: int, reason: str | None
) -> None:
    assert structural_skip(limits, workload(90, 10, over), concurrency) == reason


def test_sglang_is_known_to_keep_two_tokens_of_the_context_unless_the_scenario_says_otherwise() -> None:
    """Its largest answer is context - 1 - input - 1, and a longer one comes back clipped."""
    sglang = Arm(url="http://h:1", limits=Limits(context_tokens=100))
    assert structural_skip(declared_limits(sglang), workload(90, 8), 1) is None
    assert structural_skip(declared_limits(sglang), workload(90, 9), 1) == (
        "context limit: 90 input + 9 output + 2 reserved = 101 > 100 tokens"
    )
    own = Arm(url="http://h:1", limits=Limits(context_tokens=100, reserved_context_tokens=0))
    assert structural_skip(declared_limits(own), workload(90, 10), 1) is None
    vllm = Arm(engine="vllm", url="http://h:1", limits=Limits(context_tokens=100))
    assert structural_skip(declared_limits(vllm), workload(90, 10), 1) is None
    assert structural_skip(declared_limits(Arm(sim=Sim())), workload(32_768 - 10, 9), 1) is not None


def test_facts_win_over_declarations_and_each_fills_the_other_s_gaps() -> None:
    declared = Limits(max_running_requests=48, context_tokens=1000, reserved_tokens_per_request=5)
    facts = Limits(max_running_requests=32, kv_pool_tokens=9000)
    assert merge_limits(declared, facts) == Limits(
        max_running_requests=32, kv_pool_tokens=9000, context_tokens=1000, reserved_tokens_per_request=5
    )
    assert merge_limits(declared, Limits()) == declared
    assert merge_limits(declared, Limits(reserved_tokens_per_request=7)).reserved_tokens_per_request == 7


def test_a_simulated_arm_has_its_profile_s_limits_with_the_scenario_s_changes() -> None:
    arm = Arm(
        sim=Sim(profile="small", kv_pool_tokens=4096, faults=SimFaults()),
        limits=Limits(max_running_requests=99, max_input_tokens=2048),
    )
    assert declared_limits(arm) == Limits(
        max_running_requests=16,
        kv_pool_tokens=4096,
        context_tokens=32768,
        max_input_tokens=2048,
        page_tokens=16,
        reserved_context_tokens=2,
    )
    assert sim_limits(Sim(profile="tp2pp4")) == SIM_LIMITS["tp2pp4"]
    real = Arm(url="http://host:30000", limits=Limits(context_tokens=5))
    assert declared_limits(real) == Limits(context_tokens=5, reserved_context_tokens=2)


@given(
    st.integers(1, 200), st.integers(1, 10**7), st.integers(1, 10**5), st.integers(1, 10**4), st.integers(0, 500)
)
def test_the_active_limit_fits_and_one_more_does_not(
    running: int, pool: int, size_in: int, size_out: int, reserved: int
) -> None:
    limits = Limits(max_running_requests=running, kv_pool_tokens=pool, reserved_tokens_per_request=reserved)
    limit = active_limit(limits, size_in, size_out)
    assert limit is not None
    one = size_in + size_out + reserved
    assert limit <= running
    assert limit * one <= pool
    assert limit + 1 > running or (limit + 1) * one > pool
    assert queueing(limits, workload(size_in, size_out), limit + 1) is True
    assert (structural_skip(limits, workload(size_in, size_out), 1) is not None) == (limit == 0)
