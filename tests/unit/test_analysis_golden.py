"""The 44 rows of the first seed's appendix B: from records that imply a row, the metrics give that row.

A row prints wall, throughput, and mean / P95 / max of TTFT and TPOT, each rounded. From it requests
are made whose exact statistics are those numbers: the value at the P95's rank and the largest are as
printed, the ones below share what is left of the mean. The wall is the one number that throughput
and printed wall agree on (`consistent_wall_s` fails where they do not; all 44 rows agree).
"""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from request_rows import request, table

from raybench.analysis.point_metrics import point_metrics

APPENDIX = Path(__file__).parents[1] / "golden" / "seed1" / "report_appendix_b.csv"
ROWS = list(csv.DictReader(APPENDIX.open()))
IDS = [f"{row['point']}-{row['arm']}" for row in ROWS]

Row = dict[str, str]


def number(row: Row, name: str) -> float | None:
    return float(row[name]) if row[name] else None


def consistent_wall_s(row: Row) -> float:
    """The wall that gives the printed wall and both printed throughputs, each to two decimals."""
    half = 0.005
    n, wall = int(row["nreq"]), float(row["wall_s"])
    low, high = wall - half, wall + half
    for side in ("input", "output"):
        total, rate = n * int(row[f"{side}_len"]), float(row[f"{side}_tps"])
        low = max(low, total / (rate + half))
        high = min(high, total / (rate - half)) if rate > half else high
    assert low <= high, f"{row['point']} {row['arm']}: printed wall and throughput contradict each other"
    return (low + high) / 2


def sample_with(n: int, mean: float, p95: float, largest: float) -> list[float]:
    """n values, ascending, with exactly these statistics (P95 by nearest rank)."""
    rank = math.ceil(95 * n / 100)
    upper = [p95] * (n - rank) + [largest]
    below = n - len(upper)
    rest = [(n * mean - sum(upper)) / below] * below if below else []
    assert not rest or 0 <= rest[0] <= p95, "the printed mean, P95 and maximum contradict each other"
    return rest + upper


def records(row: Row) -> list[dict[str, object]]:
    n, wall = int(row["nreq"]), consistent_wall_s(row)
    tokens = int(row["output_len"])
    ttft = sample_with(n, *(float(row[f"ttft_{part}_s"]) for part in ("mean", "p95", "max")))
    tpot = [0.0] * n
    if row["tpot_mean_ms"]:
        tpot = sample_with(n, *(float(row[f"tpot_{part}_ms"]) / 1000 for part in ("mean", "p95", "max")))
    rows = []
    # The longest wait goes with the fastest decode, so that every request fits into the wall.
    for ticket, (wait_s, per_token_s) in enumerate(zip(ttft, reversed(tpot), strict=True)):
        lived = wait_s + per_token_s * (tokens - 1)
        sent = 0.0 if ticket == 0 else max(wall - lived, 0.0)
        end = wall if ticket in (0, n - 1) else sent + lived
        rows.append(
            request(
                ticket,
                sent,
                end,
                first_s=sent + wait_s,
                last_s=sent + lived,
                input_tokens=int(row["input_len"]),
                output_tokens=tokens,
                cached_tokens=0,
                retractions=int(row["retractions"]),
                accept_length=number(row, "accept_len"),
            )
        )
    return rows


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_metrics_of_records_that_imply_a_row_are_that_row(row: Row) -> None:
    columns = point_metrics(table(records(row)), int(row["concurrency"]))
    assert columns["requests_ok"] == int(row["ok"])
    assert columns["requests"] == int(row["nreq"])
    assert columns["preemptions"] == int(row["retractions"])
    assert columns["prefix_hit_rate"] == 0.0
    printed = {
        "wall_s": ("wall_s", 1.0, 2),
        "output_tokens_per_s": ("output_tps", 1.0, 2),
        "input_tokens_per_s": ("input_tps", 1.0, 2),
        "accept_length": ("accept_len", 1.0, 3),
    }
    for part in ("mean", "p95", "max"):
        printed[f"ttft_ms_{part}"] = (f"ttft_{part}_s", 1000.0, 2)
        printed[f"tpot_ms_{part}"] = (f"tpot_{part}_ms", 1.0, 1)
    for name, (column, unit, decimals) in printed.items():
        expected, value = number(row, column), columns[name]
        if expected is None:
            assert value is None, name
        else:
            assert value is not None, name
            assert abs(float(str(value)) / unit - expected) <= 0.5 * 10**-decimals + 1e-9, name


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_the_printed_latencies_fit_into_the_printed_wall_at_that_concurrency(row: Row) -> None:
    """Little's law: the requests' lives add up to at most C x wall, within the rounding of the row."""
    n, tokens = int(row["nreq"]), int(row["output_len"])
    lives = n * (float(row["ttft_mean_s"]) + (number(row, "tpot_mean_ms") or 0.0) / 1000 * (tokens - 1))
    rounding = n * (0.005 + 0.00005 * (tokens - 1)) + int(row["concurrency"]) * 0.005
    assert lives <= int(row["concurrency"]) * float(row["wall_s"]) + rounding


def test_the_appendix_has_its_44_rows() -> None:
    assert len(ROWS) == 44
    assert sum(row["arm"] == "TP2PP4" for row in ROWS) == 24


def test_samples_are_made_with_the_statistics_that_they_are_asked_for() -> None:
    values = np.asarray(sample_with(64, 26.52, 46.43, 47.89))
    assert values.mean() == pytest.approx(26.52)
    assert np.sort(values)[60] == 46.43
    assert values.max() == 47.89
