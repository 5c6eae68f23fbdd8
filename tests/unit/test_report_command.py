"""`raybench report` as a user calls it."""

import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_run import whole_run
from typer.testing import CliRunner

from raybench.analysis.merge import merge
from raybench.cli import app
from raybench.errors import ConfigError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = whole_run(tmp_path_factory.mktemp("command") / "run")
    merge(made)
    return made.path


def test_a_report_says_where_its_files_are(run: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(run)])
    assert done.exit_code == 0
    told = done.output.replace("\n", "")
    for name in ("report.md", "report.html"):
        assert (run / name).is_file()
        assert f"report: {run / name}" in told


def test_a_chinese_report_stands_beside_the_english_one(run: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(run), "--lang", "zh"])
    assert done.exit_code == 0
    assert "有效" in done.output
    assert "压测报告" in (run / "report.zh.md").read_text(encoding="utf-8")
    assert '<html lang="zh">' in (run / "report.zh.html").read_text(encoding="utf-8")


def test_a_report_elsewhere_leaves_the_run_alone(run: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in run.iterdir())
    folder = tmp_path / "made" / "here"
    done = CliRunner().invoke(app, ["report", str(run), "--output", str(folder), "--images", "svg"])
    assert done.exit_code == 0
    assert {"report.md", "report.html", "report.json", "plots"} <= {path.name for path in folder.iterdir()}
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_png_is_a_picture(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra raybench[png] is not installed")
    done = CliRunner().invoke(app, ["report", str(run), "-o", str(tmp_path), "--images", "png"])
    assert done.exit_code == 0
    pictures = sorted((tmp_path / "plots").glob("*.png"))
    assert "throughput_1k.png" in {path.name for path in pictures}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_png_without_its_extra_says_how_to_get_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    done = CliRunner().invoke(app, ["report", str(run), "-o", str(tmp_path), "--images", "png"])
    assert isinstance(done.exception, ConfigError)
    assert "raybench[png]" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "other", "offered"), [("--lang", "fr", "'en', 'zh'"), ("--images", "gif", "'svg', 'png'")]
)
def test_what_is_not_offered_is_refused_with_what_is(run: Path, option: str, other: str, offered: str) -> None:
    done = CliRunner().invoke(app, ["report", str(run), option, other])
    assert done.exit_code == 2
    assert offered in done.output


def test_a_report_loads_neither_ray_nor_a_renderer(run: Path) -> None:
    code = (
        "import sys\nfrom raybench.cli import main\n"
        f"try:\n    main(['report', {str(run)!r}])\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "unwanted = {'ray', 'aiohttp', 'pandas', 'duckdb', 'altair', 'vl_convert'} & set(sys.modules)\n"
        "sys.exit(str(unwanted) if unwanted else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_one_arm_of_a_run(run: Path, tmp_path: Path) -> None:
    alone = ["report", f"{run}:tp2pp4"]
    refused = CliRunner().invoke(app, alone)
    assert isinstance(refused.exception, ConfigError), "it would take the place of the whole run's report"
    done = CliRunner().invoke(app, [*alone, "-o", str(tmp_path)])
    assert done.exit_code == 0
    assert "2 points: 2 accepted" in " ".join(done.output.split())
    assert "tp8" not in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_run_that_is_named_whole_as_well_is_told_whole(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(run), f"{run}:tp2pp4", "-o", str(tmp_path)])
    assert "5 points: 2 accepted" in " ".join(done.output.split())


def test_an_arm_that_the_run_does_not_have(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", f"{run}:tp9", "-o", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    assert "tp9" in str(done.exception)
    assert "tp2pp4, tp8" in str(done.exception)
