"""How numbers are rounded for people; the seed report's own cells are the examples."""

import csv
from pathlib import Path

import pytest

from raybench.report import numbers

APPENDIX = Path(__file__).parents[1] / "golden" / "seed1" / "report_appendix_b.csv"

#: Input TPS, Output TPS, TTFT P95, TPOT P95 of the first seed's main table, in the appendix's order.
SEED_CELLS = [
    ("534", "16.7", "5.36 s", "50.3 ms"),
    ("1,587", "49.6", "3.98 s", "13.7 ms"),
    ("3,236", "101", "14.79 s", "70.9 ms"),
    ("2,684", "83.9", "32.47 s", "136.1 ms"),
    ("4,674", "146", "25.78 s", "98.5 ms"),
    ("2,947", "92.1", "59.91 s", "228.8 ms"),
    ("6,185", "193", "46.43 s", "152.0 ms"),
    ("3,123", "97.6", "140.33 s", "213.6 ms"),
    ("6,748", "211", "134.78 s", "203.7 ms"),
    ("3,188", "99.6", "293.21 s", "214.6 ms"),
]


def test_the_main_table_of_the_seed_comes_out_as_it_was_printed() -> None:
    rows = [row for row in csv.DictReader(APPENDIX.open()) if row["section"] == "3"]
    cells = [
        (
            numbers.rate(float(row["input_tps"])),
            numbers.rate(float(row["output_tps"])),
            numbers.latency(float(row["ttft_p95_s"]) * 1000),
            numbers.per_token(float(row["tpot_p95_ms"])),
        )
        for row in rows
    ]
    assert cells == SEED_CELLS


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "—"),
        (386.2, "386 ms"),
        (38.44, "38.4 ms"),
        (999.4, "999 ms"),
        (1000, "1.00 s"),
        (1_614_160, "1,614.16 s"),
    ],
)
def test_latencies_are_seconds_from_one_second_on(ms: float | None, text: str) -> None:
    assert numbers.latency(ms) == text


def test_several_latencies_share_the_unit_of_the_largest() -> None:
    assert numbers.latencies([5350, 5360, 5360]) == "5.35 / 5.36 / 5.36 s"
    assert numbers.latencies([380, 386, 386]) == "380 / 386 / 386 ms"
    assert numbers.latencies([49.6, 50.3, 50.3], decimals_ms=1) == "49.6 / 50.3 / 50.3 ms"
    assert numbers.latencies([None, None, None]) == "—"


@pytest.mark.parametrize(
    ("bytes_", "text"), [(None, "—"), (int(64.6 * 1024**3), "64.6 GiB"), (600 * 1024**2, "600 MiB")]
)
def test_memory_is_told_in_gib(bytes_: int | None, text: str) -> None:
    assert numbers.memory(bytes_) == text


@pytest.mark.parametrize(
    ("value", "text"), [(16384, "16k"), (917504, "896k"), (1048576, "1m"), (1000, "1,000"), (1, "1"), (None, "—")]
)
def test_token_sizes_are_written_as_in_scenarios(value: int | None, text: str) -> None:
    assert numbers.tokens(value) == text


def test_unknown_is_a_dash_and_zero_is_zero() -> None:
    unknown = [numbers.count(None), numbers.rate(None), numbers.per_token(None), numbers.share(None)]
    unknown += [numbers.fixed(None, 2), numbers.percent(None)]
    assert set(unknown) == {"—"}
    assert (numbers.count(0), numbers.rate(0.0), numbers.share(0.0)) == ("0", "0.00", "0.0000")
