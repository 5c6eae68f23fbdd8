"""What the simulated engine says of itself: facts, live state, counters, log, device memory.

The form of its pages is compared with the real engine's in tests/sim/test_sim_matches_captures.py.
"""

import io
import re

import pytest
from sim_rehearsal import answer, ask, closed_loop, drain, make_engine, prompt

from raybench.scenario.sim_block import Sim, SimFaults
from raybench.sim import info, metrics
from raybench.sim.engine import Engine
from raybench.sim.faults import Faults
from raybench.sim.profiles import make_profile
from raybench.sim.server import ServerLog

IDENTITY = info.Identity(False, "127.0.0.1", 30_000, 4711, 99, 0.5)
MIB = 1024 * 1024


def busy_engine(sim: Sim | None = None, **changes: object) -> Engine:
    engine = make_engine(sim, **changes)
    closed_loop(engine, [ask(f"r{n}", prompt(n // 2, 200), 60) for n in range(6)], 3)
    return engine


@pytest.mark.parametrize(
    ("profile", "names"),
    [
        ("tp2pp4", {"tp_size": 2, "pp_size": 4, "disable_radix_cache": True, "enable_hierarchical_cache": False}),
        (
            "tp8_eagle3",
            {
                "tp_size": 8,
                "speculative_algorithm": "EAGLE3",
                "speculative_num_steps": 4,
                "speculative_num_draft_tokens": 5,
                "enable_hierarchical_cache": True,
                "hicache_ratio": 3.0,
            },
        ),
    ],
)
def test_server_info_tells_the_deployments_of_the_seed_apart(profile: str, names: dict) -> None:
    ours = info.server_info(make_engine(Sim(profile=profile)), IDENTITY)
    assert {key: ours[key] for key in names} == names


def test_accept_length_is_told_only_once_speculation_ran_and_a_flush_forgets_it() -> None:
    engine = busy_engine(Sim(profile="tp8_eagle3"))
    state = info.server_info(engine, IDENTITY)["internal_states"][0]
    assert 1.0 < state["avg_spec_accept_length"] < 5.0
    assert engine.flush(engine.now + 10.0)
    assert "avg_spec_accept_length" not in info.server_info(engine, IDENTITY)["internal_states"][0]


def test_loads_show_the_live_state_and_only_the_sections_asked_for() -> None:
    engine = make_engine(Sim(max_running_requests=2))
    for n in range(5):
        engine.submit(ask(str(n), prompt(n, 100), 50), 0.0)
    engine.advance(0.05)
    load = info.loads(engine, 1.0, frozenset({"core", "queues"}))["loads"][0]
    assert (load["num_running_reqs"], load["num_waiting_reqs"], load["queues"]["waiting"]) == (2, 3, 3)
    assert load["num_waiting_uncached_tokens"] == 300
    assert "memory" not in load


def families(page: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (sglang:\S+) (\w+)$", page, re.MULTILINE))


def value(page: str, name: str, **want: str) -> float | None:
    for inside, number in re.findall(rf"^sglang:{name}\{{([^}}]*)\}} (\S+)$", page, re.MULTILINE):
        have = dict(re.findall(r'(\w+)="([^"]*)"', inside))
        if want.items() <= have.items():
            return float(number)
    return None


def test_prefill_counters_exist_from_the_start_and_labelled_ones_from_their_first_use() -> None:
    engine = make_engine()
    page = metrics.render(engine, 1)
    for mode in ("input", "device_hit", "host_hit", "storage_hit"):
        assert value(page, "prefill_effective_tokens_total", mode=mode) == 0.0
    assert value(page, "prompt_tokens_total") is None
    assert value(page, "cached_tokens_total") is None
    answer(engine, ask("1", prompt(1, 100)))
    answer(engine, ask("2", prompt(1, 100)))
    page = metrics.render(engine, 1)
    assert value(page, "prompt_tokens_total", is_streaming="true") == 200.0
    assert value(page, "cached_tokens_total", cache_source="device") == 96.0
    assert value(page, "prefill_effective_tokens_total", mode="input") == 104.0
    assert value(page, "prefill_effective_tokens_total", mode="device_hit") == 96.0


def test_after_a_restart_everything_that_is_counted_begins_at_zero() -> None:
    engine = make_engine(Sim(kv_pool_tokens=2048))
    for n in range(12):
        answer(engine, ask(str(n), prompt(n, 512)))
    before = metrics.render(engine, 1)
    assert value(before, "evicted_tokens_total") and value(before, "scheduler_idle_seconds_total")
    engine.restart()
    page = metrics.render(engine, 1)
    counted = [name for name, kind in families(page).items() if kind in ("counter", "histogram")]
    assert counted == ["sglang:prefill_effective_tokens_total", "sglang:scheduler_idle_seconds_total"]
    assert value(page, "scheduler_idle_seconds_total") == value(page, counted[0].partition(":")[2]) == 0.0


def test_what_is_told_of_the_schedulers_time_is_wall_time() -> None:
    told = []
    for compression in (1.0, 10.0):
        engine = Engine(make_profile(Sim()), Faults(SimFaults()), compression=compression)
        answer(engine, ask("1", prompt(1, 2048)))
        idle_s = value(metrics.render(engine, 1), "scheduler_idle_seconds_total")
        (load,) = info.loads(engine, 1.0, frozenset())["loads"]
        told.append((idle_s, load["total_prefill_busy_us"] / 1e6))
    assert told[0] == pytest.approx([10 * seconds for seconds in told[1]], abs=1e-5)


def test_gauges_are_refreshed_by_prefill_by_every_40th_decode_step_and_on_going_idle() -> None:
    engine = make_engine()
    engine.submit(ask("1", prompt(1, 100), 60), 0.0)
    engine.advance(0.02)
    assert engine.tally.gauges.running == 1
    before = engine.tally.gauges
    engine.advance(0.2)
    assert engine.tally.gauges is before
    engine.advance(0.35)
    assert engine.tally.gauges.gen_throughput == pytest.approx(40 / 0.32, rel=0.1)
    engine.advance(9.0)
    assert (engine.tally.gauges.running, engine.tally.gauges.gen_throughput) == (0, 0.0)


def test_what_was_decoded_before_the_engine_was_idle_is_no_part_of_its_rate_afterwards() -> None:
    log: list[str] = []
    engine = make_engine(log=log)
    for n in range(4):
        engine.submit(ask(str(n), prompt(n, 100), 30), engine.now)
        drain(engine)
    rates = [
        float(found[1]) for line in log if (found := re.search(r"gen throughput \(token/s\): ([\d.]+)", line))
    ]
    assert len(rates) == 2
    assert max(rates) <= 1 / engine.profile.decode_s(1) + 0.01


#: From the logs of SGLang 0.5.23 (CPU) and 0.5.17 (GPU, NGRAM).
REAL_LINES = {
    "Prefill": (
        "Prefill batch, #new-seq: 4, #new-token: 800, #cached-token: 0, token usage: 0.33, #running-req: 1, "
        "#queue-req: 12, #pending-token: 2400, cuda graph: False, input throughput (token/s): 1930.35"
    ),
    "Decode": (
        "Decode batch, #running-req: 1, #token: 1031, token usage: 0.02, accept len: 1.20, accept rate: 0.03, "
        "cuda graph: True, gen throughput (token/s): 316.21, #queue-req: 0"
    ),
}


@pytest.mark.parametrize("kind", ["Prefill", "Decode"])
def test_log_lines_have_the_shape_of_the_real_ones(kind: str) -> None:
    log: list[str] = []
    engine = make_engine(Sim(profile="tp8_eagle3"), log=log)
    closed_loop(engine, [ask(str(n), prompt(n, 100), 400) for n in range(4)], 2)

    def shape(line: str) -> str:
        return re.sub(r"\d+\.\d\d", "F", re.sub(r"(?<=: )\d+(?=,|$)", "N", line)).replace("True", "False")

    ours = [line for line in log if line.startswith(f"{kind} batch")]
    assert ours
    assert {shape(line) for line in ours} == {shape(REAL_LINES[kind])}


def test_each_pipeline_stage_prints_the_scheduler_lines_and_the_front_prints_once() -> None:
    stream = io.StringIO()
    log = ServerLog(stream, make_engine(Sim(profile="tp2pp4")).profile)
    log.scheduler("Prefill batch, ...")
    log.front("ready")
    tags = re.findall(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(.*?)\] ", stream.getvalue(), re.MULTILINE)
    assert tags == [" PP0 TP0", " PP1 TP0", " PP2 TP0", " PP3 TP0", ""]


def used_mib(engine: Engine) -> list[float]:
    devices = info.gpus(engine)
    for device in devices:
        total, free = device["memory_total_bytes"], device["memory_free_bytes"]
        assert device["memory_used_bytes"] == total - free
        assert device["memory_used_bytes"] > device["memory_reserved_bytes"]
    return [device["memory_used_bytes"] / MIB for device in devices]


@pytest.mark.parametrize(("profile", "idle", "peak"), [("tp2pp4", 64_600, 85_000), ("tp8_eagle3", 77_500, 81_700)])
def test_device_memory_goes_from_the_seeds_idle_level_to_its_peak_and_back_at_a_flush(
    profile: str, idle: int, peak: int
) -> None:
    engine = make_engine(Sim(profile=profile))
    assert len(used_mib(engine)) == 8
    assert all(idle <= used <= idle + 100 for used in used_mib(engine))
    closed_loop(engine, [ask(str(n), prompt(n, 16_384), 64) for n in range(96)], 64)
    assert max(used_mib(engine)) == pytest.approx(peak, abs=700)
    assert max(used_mib(engine)) < 85_651
    assert engine.flush(engine.now + 100.0)
    assert all(idle <= used <= idle + 100 for used in used_mib(engine))


def test_devices_are_told_apart_and_show_load() -> None:
    engine = make_engine()
    devices = info.gpus(engine)
    assert [device["index"] for device in devices] == [0, 1]
    assert len({device["uuid"] for device in devices}) == 2
    assert {device["utilization_gpu_percent"] for device in devices} == {0.0}
    engine.submit(ask("1", prompt(1, 100), 50), 0.0)
    engine.advance(0.01)
    busy = info.gpus(engine)
    assert [device["uuid"] for device in busy] == [device["uuid"] for device in devices]
    assert {device["utilization_gpu_percent"] for device in busy} == {100.0}
    assert busy[0]["power_w"] > devices[0]["power_w"]
