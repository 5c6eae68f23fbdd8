"""The tables of the first seed's sections 2 to 5, cell for cell, from its appendix B imported as a run.

`tables_3_to_5.csv` holds the cells as the report printed them. Its appendix rounds seconds to a hundredth, so
that three TTFT below a second cannot be had to the millisecond; one rate was printed with a decimal more than
the others of its size.
"""

import csv
from pathlib import Path

import pytest

from raybench.records.rundir import RunDirectory
from raybench.report.environment import active_limit_table, fact_table
from raybench.report.published import read_published, write_imported
from raybench.report.retest import compare_retest, write_final
from raybench.report.source import Source, read_source
from raybench.report.tables import boundary_table, result_table
from raybench.report.text import ENGLISH, Text
from raybench.report.text_zh import CHINESE
from raybench.report.write import write_report

GOLDEN = Path(__file__).parents[1] / "golden" / "seed1"
WIDE, FAST = "TP2PP4", "TP8+EAGLE3+AR"
#: (workload, concurrency, arm, column) -> what can be had from the appendix.
PRINTED_OTHERWISE = {
    ("1k-128", "1", WIDE, "ttft_p95"): "390 ms",  # printed: 386 ms
    ("1k-128", "1", FAST, "ttft_p95"): "330 ms",  # printed: 326 ms
    ("1k-4k", "1", WIDE, "ttft_p95"): "400 ms",  # printed: 395 ms
    ("1k-4k", "64", FAST, "output_tps"): "826",  # printed: 826.5
}
METRICS = ("output_tokens_per_s", "ttft_ms_p95", "tpot_ms_p95")
COLUMNS = ("input_tps", "output_tps", "ttft_p95", "tpot_p95")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    path = tmp_path_factory.mktemp("seed1") / "glm53"
    return write_imported(read_published(GOLDEN / "appendix_b.yaml"), path)


@pytest.fixture(scope="module")
def source(run: RunDirectory) -> Source:
    return read_source(run)


def test_every_cell_of_the_result_tables_is_the_seed_s(source: Source) -> None:
    ours = {
        (points[0]["workload"], row.cells[0].split()[0], row.cells[1]): dict(
            zip(COLUMNS, row.cells[2:6], strict=True)
        )
        for points in source.workloads.values()
        for row in result_table(points, source.arms, ENGLISH).rows
    }
    with (GOLDEN / "tables_3_to_5.csv").open(newline="") as file:
        printed = list(csv.DictReader(file))
    assert len(printed) == 38
    compared = 0
    for line in printed:
        where = (line["workload"], line["concurrency"], line["arm"])
        for column in (name for name in COLUMNS if line[name]):
            assert ours[where][column] == PRINTED_OTHERWISE.get((*where, column), line[column]), (where, column)
            compared += 1
    assert compared == 144


def test_the_boundary_table_is_the_seed_s(source: Source) -> None:
    rows = [row.cells[:5] for row in boundary_table(source, ENGLISH).rows]
    assert rows == [
        ("256k", WIDE, "1/2/3", "7,050", "102.99 s (C=3)"),
        ("256k", FAST, "1", "2,867", "91.45 s (C=1)"),
        ("512k", WIDE, "1", "5,662", "92.60 s (C=1)"),
        ("512k", FAST, "—", "—", "—"),
        ("896k", WIDE, "1", "4,153", "220.91 s (C=1)"),
        ("896k", FAST, "—", "—", "—"),
    ]
    assert "context limit 270,336" in boundary_table(source, ENGLISH).rows[3].cells[5]


def test_the_active_limits_are_the_seed_s_and_say_what_bounds_them(source: Source) -> None:
    """The seed says about 52 for 1k -> 4k: 276,480 // 5,120 is 54."""
    rows = {row.cells[0].split()[0]: row.cells[1:] for row in active_limit_table(source, ENGLISH).rows}
    running, pool = "max running requests", "KV pool"
    assert rows["16k-512"] == (f"48 ({running})", f"16 ({pool})")
    assert rows["1k-128"] == (f"48 ({running})", f"64 ({running})")
    assert rows["1k-4k"] == (f"48 ({running})", f"54 ({pool})")
    assert rows["64k-512"] == (f"15 ({pool})", f"4 ({pool})")
    assert rows["128k-512"] == (f"7 ({pool})", f"2 ({pool})")
    assert rows["256k-1"] == (f"3 ({pool})", f"1 ({pool})")


def test_the_environment_stands_side_by_side(source: Source) -> None:
    rows = {row.cells[0]: row.cells[1:] for row in fact_table(source, ENGLISH).rows}
    assert rows["KV pool (tokens)"] == ("1,040,384", "276,480")
    assert rows["Static memory fraction"] == ("0.85", "0.9")
    assert rows["parallelism"] == ("TP2 x PP4", "TP8")


@pytest.mark.parametrize("text", [ENGLISH, CHINESE])
def test_imported_numbers_are_never_taken_for_measured_ones(run: RunDirectory, text: Text) -> None:
    written = write_report(read_source(run), run.path, text)
    for path in (written.markdown, written.page):
        report = path.read_text(encoding="utf-8")
        assert "field report of 2026-09-10, appendix B" in report
        told = report.partition("</h2>" if path.suffix == ".html" else "## ")[2]
        assert ("0 accepted" if text is ENGLISH else "有效 0") in told[:1500]


@pytest.mark.parametrize(
    "claim",
    [
        f"{WIDE} ahead at C=8/16/32/64, most at C=64 by 2.1× (211 against 99.6)",
        f"{FAST} ahead at C=1 by 3.0× (49.6 against 16.7)",
        f"{FAST} ahead at C=1 by 3.7× (13.7 ms against 50.3 ms)",
        f"{WIDE} overtakes {FAST} above C=1, at C=8 at the latest",
        f"{FAST} ahead at C=1/8/32/64, most at C=1 by 6.7× (135 against 20.3)",
        f"{FAST} ahead at C=1/8/32/64, most at C=1 by 5.7× (8.7 ms against 49.8 ms)",
        f"{WIDE} still climbing: +9 % from C=32 to C=64",
        f"{WIDE} ahead at C=1 by 2.5× (7,050 against 2,867)",
        "1,481 requests counted, 0 failed; 0 retractions or preemptions.",
    ],
)
def test_the_summary_says_what_the_seed_s_text_claims(run: RunDirectory, claim: str) -> None:
    report = write_report(read_source(run), run.path).markdown.read_text(encoding="utf-8")
    assert claim in report.split("## Environment")[0]


@pytest.mark.parametrize("drifted", [False, True])
def test_a_retest_shows_both_values_and_which_counts(run: RunDirectory, tmp_path: Path, drifted: bool) -> None:
    """16k C=16 of the fast recipe came down from 298 to 228.8 ms; its anchors moved by less than 3 %."""
    before = write_imported(read_published(GOLDEN / "retest_before.yaml"), tmp_path / "before")
    result = compare_retest(
        str(before.path),
        f"{run.path}:{FAST}",
        ["1k-128/c8"],
        METRICS,
        floor_percent=3.0,
        drift_limit_percent=0.1 if drifted else 3.0,
        final=None,
    )
    final = write_final(result, tmp_path / "final")
    report = write_report(read_source(final), final.path).markdown.read_text(encoding="utf-8")
    retest = report.split("## Retest\n")[1].split("\n## ")[0]
    assert ("The environment drifted" in retest) == drifted
    (line,) = [line for line in retest.splitlines() if "16k-512/c16" in line and "| TPOT P95 |" in line]
    if drifted:
        assert "| 298.0 ms | ~~228.8 ms~~ | not clear | before |" in line
    else:
        assert line == f"| {FAST}/16k-512/c16 | TPOT P95 | ~~298.0 ms~~ | 228.8 ms | −23 % | after |"
        assert f"{FAST}/1k-128/c8 (anchor)" in retest
