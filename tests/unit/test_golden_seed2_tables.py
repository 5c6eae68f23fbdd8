"""The second seed's report: overall and by scenario, with "no clear difference" under 3 %."""

from pathlib import Path

import pytest

from raybench.analysis.difference import Verdict
from raybench.report.compare import compare_runs
from raybench.report.imported import write_imported
from raybench.report.published import read_published

GOLDEN = Path(__file__).parents[1] / "golden" / "seed2"
DECODE = "decode_tokens_per_s"
SCENARIOS = ("s1_geometry", "s2_impl", "s3_debug", "s4_refactor", "s5_long_context")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seed2")
    for name in ("overview", "scenarios"):
        write_imported(read_published(GOLDEN / f"{name}.yaml"), folder / name)
    return folder


def against(a: str, b: str, metric: str = DECODE) -> dict[str, tuple[float, Verdict]]:
    """By workload: (percent of B against A, verdict)."""
    (pair,) = compare_runs([a], [b], (metric,)).pairs
    return {
        point.workload: (round(one.percent or 0.0, 1), one.verdict)
        for point in pair.compared
        for one in point.differences
    }


def test_the_second_artifact_is_4_7_percent_slower_and_the_first_and_third_are_level(runs: Path) -> None:
    a, b, c = (f"{runs}/overview:{name}" for name in ("A-official-nvfp4", "B-coder390-v2", "C-coder390-v3"))
    assert against(a, b) == {"coding": (-4.7, Verdict.WORSE)}
    assert against(a, c) == {"coding": (-0.3, Verdict.NO_CLEAR_DIFFERENCE)}
    assert against(a, b, "output_tokens_per_s") == {"coding": (-3.7, Verdict.WORSE)}
    assert against(a, c, "output_tokens_per_s") == {"coding": (-1.7, Verdict.NO_CLEAR_DIFFERENCE)}


def test_no_scenario_tells_the_first_and_the_third_artifact_apart(runs: Path) -> None:
    """Each scenario's fastest is ahead by the text's percentage, always below the noise of a single run."""
    told = against(f"{runs}/scenarios:A", f"{runs}/scenarios:C")
    assert {verdict for _, verdict in told.values()} == {Verdict.NO_CLEAR_DIFFERENCE}
    back = against(f"{runs}/scenarios:C", f"{runs}/scenarios:A")
    fastest = {name: max(("C", told[name][0]), ("A", back[name][0]), key=lambda one: one[1]) for name in SCENARIOS}
    assert fastest == {
        "s1_geometry": ("C", 1.9),
        "s2_impl": ("A", 1.4),
        "s3_debug": ("A", 2.7),
        "s4_refactor": ("A", 1.7),
        "s5_long_context": ("C", 1.6),
    }


def test_the_other_speculation_by_scenario(runs: Path) -> None:
    assert against(f"{runs}/scenarios:MTP3", f"{runs}/scenarios:DFlash2") == {
        "s1_geometry": (4.7, Verdict.BETTER),
        "s2_impl": (-0.1, Verdict.NO_CLEAR_DIFFERENCE),
        "s3_debug": (-13.9, Verdict.WORSE),
        "s4_refactor": (-4.4, Verdict.WORSE),
        "s5_long_context": (-4.9, Verdict.WORSE),
    }


def test_another_context_limit_changes_nothing_and_is_listed_as_a_condition(runs: Path) -> None:
    (pair,) = compare_runs([f"{runs}/scenarios:C"], [f"{runs}/scenarios:MTP3"], (DECODE,)).pairs
    told = {one.verdict for point in pair.compared for one in point.differences}
    assert told == {Verdict.NO_CLEAR_DIFFERENCE}
    assert [(c.name, c.a, c.b) for c in pair.conditions if c.known] == [("max_context", "196608", "155648")]


def test_the_rows_of_totals_is_no_point(runs: Path) -> None:
    assert len(read_published(GOLDEN / "overview.yaml").points) == 3
    assert len(read_published(GOLDEN / "scenarios.yaml").points) == 25


def test_the_overall_rate_agrees_with_tokens_and_time() -> None:
    """End-to-end tok/s = completion tokens / request seconds, within the rounding of the printed seconds."""
    points = read_published(GOLDEN / "overview.yaml").points
    assert points
    for point in points:
        total, wall, rate = (point[name] for name in ("output_tokens_total", "wall_s", "output_tokens_per_s"))
        assert isinstance(total, int) and isinstance(wall, float) and isinstance(rate, float)
        assert total / (wall + 0.05) - 0.005 <= rate <= total / (wall - 0.05) + 0.005
