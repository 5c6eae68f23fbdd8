"""The table of points on a terminal."""

import io

import pytest
from rich.console import Console
from synthetic_run import SKIP, whole_run

from raybench.analysis.merge import merge
from raybench.records.rundir import RunDirectory
from raybench.report.document import Row, Table
from raybench.report.source import read_source
from raybench.report.terminal import print_blocks, print_points


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    made = whole_run(tmp_path_factory.mktemp("terminal") / "run")
    merge(made)
    return made


def printed(run: RunDirectory, **options: object) -> str:
    console = Console(file=io.StringIO(), width=80, **options)  # type: ignore[arg-type]
    print_points(read_source(run), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_points_fit_into_80_columns(run: RunDirectory) -> None:
    text = printed(run)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert [line.split()[:3] for line in text.splitlines() if " tp2pp4 " in line] == [
        ["2", "tp2pp4", "2,048"],
        ["4", "†", "tp2pp4"],
    ]


def test_numbers_of_a_void_point_never_look_valid(run: RunDirectory) -> None:
    (plain,) = [line for line in printed(run).splitlines() if line.split()[:2] == ["2", "tp8"]]
    assert plain.split() == ["2", "tp8", "~2,048~", "~22.0~", "~400", "ms~", "~60.0", "ms~", "~2~", "void"]
    struck = printed(run, force_terminal=True, color_system="standard")
    assert "\x1b[9m" in struck.split("22.0")[1][-12:]


def test_reasons_and_counts_stand_below_the_tables(run: RunDirectory) -> None:
    text = " ".join(printed(run).split())
    assert f"tp8/512k/c1: skipped: {SKIP}" in text
    assert "5 points: 2 accepted, 1 void, 1 skipped, 1 not measured." in text


def test_in_a_narrow_terminal_numbers_fold_and_no_digit_is_lost() -> None:
    table = Table(("Arm", "TTFT"), [Row(("x", "1,614.16 s"))], right=frozenset({1}))
    console = Console(file=io.StringIO(), width=13)
    print_blocks([table], console)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert max(map(len, told.splitlines())) <= 13
    assert "x1,614.16s" in "".join(told.split())
