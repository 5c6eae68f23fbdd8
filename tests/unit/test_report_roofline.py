"""Rooflines as a person reads them: in 80 columns, with the errors of the load that was carried."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from test_protocol_client_checks import roofline

from raybench.records.roofline import Roofline, Step
from raybench.report.roofline import print_rooflines, step_line

STEP = Step("streams", 8192, 1000, 16, 8190.0, 0.1, 2.4, 3.0, 4.2, 0.5, 0.3, 0.12, 0.6, 0.0, None)
MEASURED = roofline(
    host="a-rather-long-hostname.example",
    streams=8192,
    tokens_per_s=412_345.6,
    streams_limited_by="other work on the host",
    steps=(STEP, replace(STEP, streams=16384, limited_by="client CPU")),
)


def shown(measured: Roofline = MEASURED) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_rooflines([measured], console, as_json=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_fits_80_columns_and_says_what_it_is() -> None:
    text = shown()
    table = text[: text.index("2 cores, client wire")]
    assert all(len(line) <= 80 for line in table.splitlines()[:-1])
    for part in ("8,192 streams", "412,346 tok/s", "2.4", "4.2", "16"):
        assert part in table
    assert "lower bounds: the null servers ran on the same cores (their share of all of them: up to 12%)" in text
    assert "warning" not in text


def test_a_host_that_was_busy_otherwise_is_told_of() -> None:
    text = shown(replace(MEASURED, others_node_share=0.35))
    assert "took up to 35% of its CPU" in text
    assert "and void no point; measure again when it is quiet" in text


def test_a_host_that_carried_nothing_has_no_numbers() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_rooflines([replace(MEASURED, streams=None, tokens_per_s=None, steps=())], console, as_json=False)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("none") == 2


def test_json_has_every_step_by_host(capsys: pytest.CaptureFixture[str]) -> None:
    print_rooflines([MEASURED], Console(), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [step["streams"] for step in told[MEASURED.host]["steps"]] == [8192, 16384]


def test_a_step_is_told_in_one_line() -> None:
    assert step_line("h", STEP) == (
        "h: 8,192 streams, 8,190 tokens/s, TTFT error P99 2.4 ms, all stamps 3.0 ms: carried"
    )
    missing = replace(STEP, tokens_per_s=None, ttft_error_ms_p99=None, limited_by="client CPU")
    assert step_line("h", missing).endswith(
        "- tokens/s, TTFT error P99 - ms, all stamps 3.0 ms: not carried (client CPU)"
    )
