"""`report --pool`: runs of one scenario as repeats of each point, by one rule, with their spread."""

import json
from pathlib import Path

import pytest
from synthetic_run import ACCEPT, SyntheticRun, planned, wave
from typer.testing import CliRunner

from raybench.analysis.merge import merge
from raybench.cli import app
from raybench.errors import ConfigError
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import read_json, write_json
from raybench.report.repeats import pool_repeats
from raybench.report.source import read_source
from raybench.report.write import write_report

RATE = "output_tokens_per_s"


def made(path: Path, tokens: dict[str, int | None], **manifest: object) -> RunDirectory:
    """A run with one point an arm, whose output rate is twice the tokens; None: voided."""
    run = SyntheticRun(path)
    run.manifest([planned(f"{arm}/1k/c2") for arm in tokens])
    written = read_json(run.run.manifest)
    assert isinstance(written, dict)
    write_json(run.run.manifest, written | {"run_id": path.name} | manifest)
    for number, (arm, each) in enumerate(tokens.items()):
        start = 20.0 * number
        rows = wave(start + 10.0, 4, tokens=each or 11)
        run.attempt(start + 5.0, f"{arm}/1k/c2", 1, rows, (start + 10.0, start + 12.0), ACCEPT)
        verdict = (
            {"verdict": "void", "reasons": ["lost"]} if each is None else {"verdict": "accepted", "reasons": []}
        )
        run.event(start + 13.0, "point_committed", point_id=f"{arm}/1k/c2", attempt=1, **verdict)
    merge(run.done())
    return run.run


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDirectory]:
    return [
        made(tmp_path / "r1", {"wide": 20, "fast": 40}),
        made(tmp_path / "r2", {"wide": 21, "fast": 44}),
        made(tmp_path / "r3", {"wide": 22, "fast": None}),
    ]


def test_runs_of_one_scenario_are_one_row_a_point_with_the_mean_of_their_own_values(
    runs: list[RunDirectory],
) -> None:
    pooled = pool_repeats(read_source(*runs))
    assert pooled.arms == ["wide", "fast"]
    wide, fast = pooled.points
    assert (wide["name"], wide["repeats"], wide[RATE], wide["ttft_ms_n"]) == ("wide/1k/c2", (3, 3), 42.0, 12)
    assert wide["pooled"][RATE].observations == (40.0, 42.0, 44.0)
    assert wide[f"{RATE}_low"] < 42.0 < wide[f"{RATE}_high"]
    # A void run is no observation, and said.
    assert (fast["repeats"], fast[RATE], fast["reasons"]) == ((2, 3), 84.0, ["lost"])


def test_the_report_of_repeats_shows_spread_and_keeps_every_run(runs: list[RunDirectory], tmp_path: Path) -> None:
    source = read_source(*runs)
    written = write_report(source, tmp_path / "out", pooled=pool_repeats(source))
    text = written.markdown.read_text(encoding="utf-8")
    results = text.split("## Results")[1].split("\n## ")[0]
    assert "| 2 | wide | 2,048 | 42.0 | 400 ms |" in results and "accepted (3/3) |" in results
    assert "| 2 | fast | 2,048 | **84.0** | 400 ms |" in results and "| accepted (2/3): lost |" in results
    repeats = text.split("## Repeats")[1].split("\n## ")[0]
    assert "| 1k | 2 | wide | 3/3 |" in repeats and "| 42.0 (40.0 .. 44.0; 9.5 %) |" in repeats
    for run in ("r1", "r2", "r3"):
        assert f"| 1k | 2 | wide @ {run} |" in text.split("## Appendix B")[1]
    assert "--pool" in text.split("## Reproduce")[1]
    told = json.loads(written.json.read_text(), parse_constant=pytest.fail)
    assert told["pooled"][0]["pooled"][RATE]["spread_percent"] == pytest.approx(400 / 42)
    page = written.page.read_text(encoding="utf-8")
    assert "#point-None" not in page and 'id="repeats"' in page


def test_a_lead_within_the_spread_of_repeats_is_none(tmp_path: Path) -> None:
    # 5 % apart in the mean, over the default floor; the repeats of one arm differ by 10 %.
    runs = [made(tmp_path / f"r{n}", {"a": 38 + 2 * n, "b": 42}) for n in range(3)]
    source = read_source(*runs)
    written = write_report(source, tmp_path / "out", pooled=pool_repeats(source))
    text = written.markdown.read_text(encoding="utf-8")
    assert "**84.0**" not in text
    assert "no clear difference (within the spread of repeats, or intervals overlap) at C=2" in text
    # Run by run the default floor would let b lead.
    assert "**84.0**" in write_report(read_source(runs[0]), tmp_path / "one").markdown.read_text(encoding="utf-8")


def test_runs_of_other_scenarios_are_no_repeats(runs: list[RunDirectory], tmp_path: Path) -> None:
    other = made(tmp_path / "r4", {"wide": 30}, scenario_sha256="cd" * 32)
    pooled = pool_repeats(read_source(*runs, other))
    assert pooled.arms == ["wide @ r1", "fast", "wide @ r4"]
    assert "pooled" not in pooled.points[-1] and pooled.points[-1]["index"] == 6
    with pytest.raises(ConfigError, match="no two runs are of one scenario"):
        pool_repeats(read_source(runs[0], other))


def test_a_run_without_a_scenario_repeats_nothing(tmp_path: Path) -> None:
    pair = [made(tmp_path / name, {"x": 10}, scenario_sha256=None) for name in ("a", "b")]
    with pytest.raises(ConfigError, match="no two runs"):
        pool_repeats(read_source(*pair))


def test_the_command_pools_and_its_table_fits_80_columns(runs: list[RunDirectory], tmp_path: Path) -> None:
    names = [str(run.path) for run in runs]
    done = CliRunner().invoke(app, ["report", *names, "--pool", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "(3/3)" in done.output
    table = done.output.split("report: ")[0]
    assert max(map(len, table.splitlines())) <= 80
