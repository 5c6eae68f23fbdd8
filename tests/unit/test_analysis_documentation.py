"""docs/METRICS.md names every column that merge makes."""

import re
from pathlib import Path

import pytest

from raybench.analysis.merge import DERIVED
from raybench.analysis.points import POINTS
from raybench.analysis.stats import SUMMARY_PARTS

METRICS = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([a-z0-9_]+)`", METRICS))
SUMMARISED = set(re.findall(r"`([a-z0-9_]+)\*`", METRICS))
SUMMARIES = {f"{name}_{part}" for name in SUMMARISED for part in SUMMARY_PARTS}


@pytest.mark.parametrize("column", POINTS.names)
def test_every_column_of_points_is_documented(column: str) -> None:
    assert column in NAMED | SUMMARIES


@pytest.mark.parametrize("column", DERIVED)
def test_every_derived_column_of_requests_is_documented(column: str) -> None:
    assert column in NAMED | SUMMARISED


def test_no_metric_is_documented_that_no_point_has() -> None:
    tables = METRICS.split("## What identifies")[0]
    first_cells = [line.split("|")[1] for line in tables.splitlines() if line.startswith("| `")]
    documented = {name for cell in first_cells for name in re.findall(r"`([a-z0-9_]+)`", cell)} | SUMMARIES
    assert documented <= set(POINTS.names)
