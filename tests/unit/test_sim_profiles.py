"""How close the two fitted profiles come to the first seed, in virtual time.

The 16k->512 rows are within 20 % in wall time, both rates, TTFT and TPOT (mean and P95) at each
concurrency; at C=1 and C=64 within 10 % and 15 %. Of the other rows wall time and rates are held to 25 %.
"""

import csv
from pathlib import Path

import pytest
from sim_rehearsal import ask, closed_loop, make_engine, prompt

from raybench.scenario.limits import SIM_LIMITS
from raybench.scenario.sim_block import Sim
from raybench.sim.profiles import make_profile
from raybench.sim.request import Request

ROWS = list(
    csv.DictReader((Path(__file__).parents[1] / "golden/seed1/report_appendix_b.csv").read_text().splitlines())
)
PROFILES = {"TP2PP4": "tp2pp4", "TP8+EAGLE3+AR": "tp8_eagle3"}


def nearest_rank_95(values: list[float]) -> float:
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def measure(row: dict[str, str]) -> tuple[dict[str, float], list[Request]]:
    """The row as the simulated engine gives it."""
    tokens, output = int(row["input_len"]), int(row["output_len"])
    engine = make_engine(Sim(profile=PROFILES[row["arm"]]))
    prompts = [ask(f"r{n:04d}", prompt(n, tokens), output) for n in range(int(row["nreq"]))]
    requests = closed_loop(engine, prompts, int(row["concurrency"]))
    wall_s = max(request.finished_at for request in requests)
    ttft = [request.first_token_at - request.arrival for request in requests]
    numbers = {
        "wall_s": wall_s,
        "input_tps": len(requests) * tokens / wall_s,
        "output_tps": len(requests) * output / wall_s,
        "ttft_mean_s": sum(ttft) / len(ttft),
        "ttft_p95_s": nearest_rank_95(ttft),
    }
    if output > 1:
        tpot = [(r.finished_at - r.first_token_at) / (output - 1) * 1e3 for r in requests]
        numbers |= {"tpot_mean_ms": sum(tpot) / len(tpot), "tpot_p95_ms": nearest_rank_95(tpot)}
    return numbers, requests


def worst(row: dict[str, str], names: list[str]) -> float:
    numbers, requests = measure(row)
    assert sum(request.retractions for request in requests) == int(row["retractions"]) == 0
    return max(abs(numbers[name] / float(row[name]) - 1.0) for name in names)


def label(row: dict[str, str]) -> str:
    return f"{row['arm']} {row['point']}"


MAIN = [row for row in ROWS if row["point"].startswith("b3_16k")]
ALL_NUMBERS = ["wall_s", "input_tps", "output_tps", "ttft_mean_s", "ttft_p95_s", "tpot_mean_ms", "tpot_p95_ms"]


@pytest.mark.parametrize("row", MAIN, ids=label)
def test_each_number_of_the_16k_rows_is_within_20_percent(row: dict[str, str]) -> None:
    assert worst(row, ALL_NUMBERS) < 0.20


@pytest.mark.parametrize("row", [r for r in MAIN if r["concurrency"] in ("1", "64")], ids=label)
def test_rates_and_mean_ttft_of_the_16k_rows_at_c1_and_c64_are_within_10_percent(row: dict[str, str]) -> None:
    assert worst(row, ["wall_s", "input_tps", "output_tps", "ttft_mean_s", "ttft_p95_s"]) < 0.10


@pytest.mark.parametrize("row", [r for r in ROWS if r not in MAIN], ids=label)
def test_wall_time_and_input_rate_of_all_other_rows_are_within_25_percent(row: dict[str, str]) -> None:
    assert worst(row, ["wall_s", "input_tps"]) < 0.25


def test_accept_length_rises_with_the_output_as_the_seed_saw_it() -> None:
    def accept_length(output: int) -> float:
        engine = make_engine(Sim(profile="tp8_eagle3"))
        requests = closed_loop(engine, [ask(str(n), prompt(n, 1024), output) for n in range(8)], 1)
        return sum(request.accept_length for request in requests) / 8

    short, middle, long = accept_length(128), accept_length(512), accept_length(4096)
    assert short == pytest.approx(2.03, rel=0.1)
    assert 2.1 < middle < 3.0
    assert long == pytest.approx(3.7, rel=0.1)


@pytest.mark.parametrize("name", sorted(SIM_LIMITS))
def test_limits_come_from_the_scenario_room_and_a_scenario_may_change_them(name: str) -> None:
    limits = SIM_LIMITS[name]
    profile = make_profile(Sim(profile=name))
    assert profile.max_running_requests == limits.max_running_requests
    assert profile.kv_pool_tokens == limits.kv_pool_tokens
    assert profile.context_tokens == limits.context_tokens
    assert profile.page_tokens == limits.page_tokens
    changed = make_profile(Sim(profile=name, max_running_requests=3, kv_pool_tokens=1000, page_tokens=16))
    assert (changed.max_running_requests, changed.kv_pool_tokens, changed.page_tokens) == (3, 992, 16)


@pytest.mark.parametrize(
    ("tokens", "output", "tp2pp4", "tp8_eagle3"),
    [
        (16_384, 512, 48, 16),
        (65_536, 512, 15, 4),
        (131_072, 512, 7, 2),
        (262_144, 64, 3, 1),
    ],
)
def test_as_many_run_at_once_as_the_seed_states(tokens: int, output: int, tp2pp4: int, tp8_eagle3: int) -> None:
    for name, limit in (("tp2pp4", tp2pp4), ("tp8_eagle3", tp8_eagle3)):
        engine = make_engine(Sim(profile=name))
        for n in range(limit + 2):
            engine.submit(ask(str(n), prompt(n, tokens), output), 0.0)
        most = 0
        while (end := engine.next_time) is not None:
            engine.advance(end)
            most = max(most, engine.admitted)
        assert most == limit, name
