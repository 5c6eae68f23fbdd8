"""One run or several, read as one report."""

from pathlib import Path

import pytest
from synthetic_run import ACCEPT, SyntheticRun, planned, wave, whole_run

from raybench.analysis.merge import merge
from raybench.errors import ConfigError
from raybench.records.rundir import RunDirectory, read_json, write_json
from raybench.report.source import read_source
from raybench.report.write import write_report


def other_run(path: Path, run_id: str, arm: str, **changes: object) -> RunDirectory:
    made = SyntheticRun(path)
    point = f"{arm}/1k/c2"
    made.manifest([planned(point, **changes)])
    manifest = read_json(made.run.manifest)
    assert isinstance(manifest, dict)
    write_json(made.run.manifest, manifest | {"run_id": run_id})
    made.attempt(5.0, point, 1, wave(10.0, 4, tokens=22), (10.0, 12.0), ACCEPT)
    made.event(13.0, "point_committed", point_id=point, attempt=1, verdict="accepted", reasons=[])
    merge(made.done())
    return made.run


@pytest.fixture
def first(tmp_path: Path) -> RunDirectory:
    made = whole_run(tmp_path / "first")
    merge(made)
    return made


def test_arms_of_two_runs_stand_side_by_side(first: RunDirectory, tmp_path: Path) -> None:
    second = other_run(tmp_path / "second", "later", "dp8")
    source = read_source(first, second)
    assert source.arms == ["tp2pp4", "tp8", "dp8"]
    assert [point["name"] for point in source.points][-1] == "dp8/1k/c2"
    report = write_report(first, second, folder=tmp_path / "both").markdown.read_text(encoding="utf-8")
    table = report.split("### 1k (1k -> 11)")[1].split("\n## ")[0]
    assert "| 2 | tp2pp4 | 2,048 | 22.0 |" in table
    assert "| 2 | dp8 | 2,048 | **44.0** |" in table
    assert "Run later" in report
    assert (tmp_path / "both" / "report.html").is_file()
    assert not first.report_md.exists()


def test_an_arm_that_two_runs_have_is_told_apart_by_its_run(first: RunDirectory, tmp_path: Path) -> None:
    source = read_source(first, other_run(tmp_path / "second", "later", "tp2pp4"))
    assert source.arms == ["tp2pp4 @ demo-20270115", "tp8", "tp2pp4 @ later"]
    assert source.points[-1]["name"] == "tp2pp4 @ later/1k/c2"
    assert source.points[-1]["point_id"] == "tp2pp4/1k/c2"


def test_workloads_of_one_name_and_two_shapes_are_never_compared(first: RunDirectory, tmp_path: Path) -> None:
    source = read_source(first, other_run(tmp_path / "second", "later", "dp8", output_tokens=22))
    assert {"1k (1k -> 11)", "1k (1k -> 22)"} <= source.workloads.keys()


def test_a_copy_of_a_run_is_that_run(first: RunDirectory, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (first.manifest, first.journal, first.points_parquet):
        (copy / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match="named twice"):
        read_source(first, RunDirectory(copy))


def test_several_runs_need_a_folder(first: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--output FOLDER"):
        write_report(first, other_run(tmp_path / "second", "later", "dp8"))
