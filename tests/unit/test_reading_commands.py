"""import, compare, retest, query, reconcile as a user calls them: exit codes, wrong input, 80 columns, no Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Cli
from synthetic_run import whole_run

from raybench.analysis.merge import merge
from raybench.report.published import read_published, write_imported

GOLDEN = Path(__file__).parents[1] / "golden" / "seed1"
FAST, WIDE = "TP8+EAGLE3+AR", "TP2PP4"
ANCHORS = ["--anchor", "1k-128/c8", "--anchor", "1k-4k/c8"]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("COLUMNS", "80")
    return Cli(capsys)


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seed") / "run"
    write_imported(read_published(GOLDEN / "appendix_b.yaml"), path)
    return path


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seed") / "before"
    write_imported(read_published(GOLDEN / "retest_before.yaml"), path)
    return path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = whole_run(tmp_path_factory.mktemp("measured") / "run")
    merge(run)
    return run.path


def fits(text: str) -> bool:
    return max(map(len, text.splitlines())) <= 80


# import


def test_import_makes_a_run_and_names_the_columns_that_it_left_out(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("import", GOLDEN / "report_appendix_b.csv", "--output", tmp_path / "run")
    assert (code, out) == (0, f"{tmp_path / 'run'}: 44 points imported\n")
    assert "columns that raybench does not know: point, section" in err


def test_import_goes_to_the_runs_folder_by_default(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("import", GOLDEN / "report_appendix_b.csv")[0] == 0
    assert (tmp_path / "runs" / "report_appendix_b" / "points.parquet").is_file()
    code, _, err = cli("import", GOLDEN / "report_appendix_b.csv")
    assert code == 2 and "not empty" in err


def test_import_of_nothing_and_of_a_wrong_table(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli("import", tmp_path / "gone.csv")
    assert code == 2 and "no such file" in err
    (tmp_path / "t.csv").write_text("arm,workload,concurrency\nx,w,many\n")
    code, _, err = cli("import", tmp_path / "t.csv")
    assert code == 2 and "got: many; allowed: a whole number from 0" in err


def test_brackets_and_colons_of_names_and_paths_are_printed_as_they_are(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arm,workload,concurrency,gap [ms],rate [/s],:x:\nx,w,1,1,1,1\n")
    code, out, err = cli("import", tmp_path / "t.csv", "--output", tmp_path / "run [b]")
    assert (code, out) == (0, f"{tmp_path / 'run [b]'}: 1 points imported\n")
    assert "gap [ms], rate [/s], :x:" in err


# compare


def test_compare_puts_conditions_first_and_fits_80_columns(cli: Cli, seed: Path) -> None:
    code, out, err = cli("compare", f"{seed}:{WIDE}", f"{seed}:{FAST}")
    assert (code, err) == (0, "")
    assert fits(out)
    assert out.index("Conditions that differ:") < out.index("parallelism") < out.index("Input TPS")
    assert "Unknown on both sides: engine, version" in " ".join(out.split())
    assert "no clear difference" in out
    assert "crossover in (1, 8]: Input TPS, Output TPS, TTFT P95, TPOT P95" in " ".join(out.split())
    assert "1k-4k: no crossover, TP8+EAGLE3+AR ahead at every level" in " ".join(out.split())
    assert "Preempted: 0 on both sides at every point." in out
    assert "With n < 20 the P95 is the maximum" in out


def test_a_regression_fails_only_when_asked(cli: Cli, seed: Path) -> None:
    sides = [f"{seed}:{WIDE}", f"{seed}:{FAST}"]
    assert cli("compare", *sides)[0] == 0
    assert cli("compare", *sides, "--fail-on-regression")[0] == 1
    assert cli("compare", seed, seed, "--fail-on-regression")[0] == 0


def test_o_k2_void_points_are_listed_with_their_reasons(cli: Cli, measured: Path) -> None:
    code, out, _ = cli("compare", f"{measured}:tp2pp4", f"{measured}:tp8")
    assert code == 0
    told = " ".join(out.split())
    assert "Not compared, not valid in B (void: client lost" in told
    assert "Not compared, not valid in B (not measured): 1k c4." in told
    assert "Not compared, only in B: 512k c1." in told
    assert "nothing compared; 0 points compared, 3 not" in told


def test_compare_as_json_has_full_precision_and_as_markdown_pastes(cli: Cli, seed: Path) -> None:
    sides = [f"{seed}:{WIDE}", f"{seed}:{FAST}"]
    _, out, _ = cli("compare", *sides, "--json", "--metric", "output_tokens_per_s")
    told = json.loads(out)
    (pair,) = told["pairs"]
    first = pair["points"][0]["differences"][0]
    assert (first["a"], first["b"], first["verdict"]) == (16.68, 49.6, "better")
    assert told["regressed"] is True
    _, out, _ = cli("compare", *sides, "--markdown")
    assert out.startswith("## B TP8+EAGLE3+AR against A TP2PP4\n")
    assert "| 1 | Input TPS | 534 | 1,587 | +197.3 % | 2.97× | 8 | better |" in out
    assert cli("compare", *sides, "--markdown", "--json")[0] == 2


def test_repeats_show_the_floor_that_they_bring(cli: Cli, tmp_path: Path) -> None:
    for name, rate in (("a1", 100), ("a2", 101), ("a3", 102), ("b1", 108), ("b2", 109), ("b3", 110)):
        text = f"arm,workload,concurrency,output_tps\nx,w,8,{rate}\n"
        (tmp_path / f"{name}.csv").write_text(text)
        write_imported(read_published(tmp_path / f"{name}.csv"), tmp_path / name)
    repeats = ["--repeat-a", tmp_path / "a2", "--repeat-a", tmp_path / "a3"]
    repeats += ["--repeat-b", tmp_path / "b2", "--repeat-b", tmp_path / "b3"]
    code, out, _ = cli("compare", tmp_path / "a1", tmp_path / "b1", *repeats)
    assert code == 0
    row = next(line for line in out.splitlines() if "Output TPS" in line)
    assert row.split() == ["8", "Output", "TPS", "101", "109", "+7.9", "%", "1.08×", "2.0", "%", "better"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{seed}"], "name a second run, or --baseline FILE"),
        (["{seed}", "{gone}"], "no such directory"),
        (["{seed}:nobody", "{seed}"], "the run has no such arm; got: nobody; allowed: TP2PP4, TP8+EAGLE3+AR"),
        (["{seed}", "{measured}"], "no arm is on both sides"),
        (["{seed}", "{seed}", "--metric", "wall_s"], "has no better and worse; got: wall_s"),
        (["{seed}", "{seed}", "--baseline", "x.yaml"], "--baseline stands in place of B"),
        (["{seed}", "--baseline", "x.yaml", "--ignore-cache-state"], "--baseline stands in place of B"),
        (["{seed}:TP2PP4", "{seed}:TP2PP4", "--repeat-a", "{measured}"], "a repeat without the arm"),
        (["{seed}", "{seed}", "--noise-floor", "-1"], "noise-floor"),
    ],
)
def test_wrong_calls_of_compare(
    cli: Cli, seed: Path, measured: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    places = {"seed": seed, "measured": measured, "gone": tmp_path / "gone"}
    code, out, err = cli("compare", *(argument.format(**places) for argument in arguments))
    assert (code, out) == (2, "")
    assert message in err


def test_a_baseline_is_an_order_of_magnitude_and_gives_no_verdict(cli: Cli, seed: Path) -> None:
    baseline = Path(__file__).parents[2] / "baselines" / "b300.yaml"
    code, out, _ = cli("compare", seed, "--baseline", baseline)
    assert code == 0 and fits(out)
    assert out.index("Order of magnitude only") < out.index("hardware") < out.index("B 5.0×")
    assert "Not stated by the source: quantisation of the model" in out
    assert "better" not in out and "worse" not in out
    told = json.loads(cli("compare", seed, "--baseline", baseline, "--json")[1])
    assert told["claim"] == "order of magnitude only"


def test_a_baseline_that_meets_nothing(cli: Cli, measured: Path) -> None:
    baseline = Path(__file__).parents[2] / "baselines" / "b300.yaml"
    code, _, err = cli("compare", measured, "--baseline", baseline)
    assert code == 2
    assert "none of its arms meets one of the run" in err


# retest


def test_retest_with_anchors_that_held(cli: Cli, seed: Path, before: Path, tmp_path: Path) -> None:
    code, out, err = cli("retest", before, f"{seed}:{FAST}", *ANCHORS, "--output", tmp_path / "final")
    assert code == 0 and fits(out)
    assert "No anchor moved by more than 3 %" in out
    told = " ".join(out.split())
    assert "Final value from after: 16k-512 c8, 1k-128 c8, 1k-4k c8, 16k-512 c16, 1k-4k c32." in told
    assert f"{tmp_path / 'final'}: the values that count" in err
    rows = cli("query", tmp_path / "final", "select count(*) n from points", "--format", "csv")[1]
    assert rows == "n\n24\n"
    kept = json.loads((tmp_path / "final" / "retest.json").read_text())
    assert kept["arms"][0]["environment_drifted"] is False
    facts = json.loads((tmp_path / "final" / "arms" / FAST / "facts.json").read_text())
    assert facts["max_running_requests"] == 64, "the later values count, so the later facts do"
    code, _, err = cli("merge", tmp_path / "final")
    assert code == 2 and "not measured here (retest)" in err


def test_retest_in_an_environment_that_drifted_claims_nothing(cli: Cli, seed: Path, before: Path) -> None:
    code, out, _ = cli("retest", before, f"{seed}:{FAST}", "--anchor", "16k-512/c8")
    assert code == 1
    assert "Environment drifted: differences may be drift, so nothing is claimed." in out
    assert "+3.05 %" in out and "no claim" in out and "better" not in out
    assert "Final value from after" not in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "names no anchor of TP8+EAGLE3+AR: nothing would tell drift from difference"),
        (
            ["--anchor", "16k-512/c1"],
            "not measured in both runs; got: 16k-512/c1; allowed: TP8+EAGLE3+AR/16k-512/c8",
        ),
        ([*ANCHORS, "--final", "both"], "no such side; got: both; allowed: before, after"),
    ],
)
def test_wrong_calls_of_retest(cli: Cli, seed: Path, before: Path, options: list[str], message: str) -> None:
    code, out, err = cli("retest", before, f"{seed}:{FAST}", *options)
    assert (code, out) == (2, "")
    assert message in err


# query


def test_query_prints_rows_and_without_sql_what_can_be_asked(cli: Cli, measured: Path) -> None:
    code, out, _ = cli("query", measured, "select point_id, verdict from points order by 1 limit 1")
    assert code == 0 and "tp2pp4/1k/c2  accepted" in out
    code, out, _ = cli("query", measured)
    assert code == 0 and fits(out)
    assert "ttft_ms_p95" in out and "findings" in out


def test_query_writes_a_file_and_says_how_many_rows(cli: Cli, measured: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    code, out, err = cli("query", measured, "from requests", "--format", "parquet", "--output", path)
    assert (code, out) == (0, "")
    assert f"{path}: 14 rows" in err


def test_wrong_calls_of_query(cli: Cli, measured: Path, tmp_path: Path) -> None:
    assert cli("query", tmp_path, "select 1")[0] == 2
    code, _, err = cli("query", measured, "select colour from points")
    assert code == 2 and "colour" in err and "the run has the views points, requests" in err
    code, _, err = cli("query", measured, "select 1", "--format", "xml")
    assert code == 2 and "allowed: table, csv, json, parquet" in err


PROBE = """
import sys
from raybench.cli import main
for arguments in {calls!r}:
    try:
        main(arguments)
    except SystemExit as ended:
        assert not ended.code, arguments
print("loaded:", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


def test_reconcile_of_an_engine_that_says_nothing_of_itself(cli: Cli, measured: Path) -> None:
    code, out, _ = cli("reconcile", measured)
    assert (code, fits(out)) == (0, True)
    assert "The engine says nothing of itself" in out
    code, out, _ = cli("reconcile", measured, "--json")
    assert code == 0
    assert [(one["point_id"], one["counts"]) for one in json.loads(out)] == [
        ("tp2pp4/1k/c2", []),
        ("tp2pp4/1k/c4", []),
        ("tp8/1k/c2", []),
    ]


def test_reconcile_of_a_table_that_somebody_else_measured(cli: Cli, seed: Path) -> None:
    code, _, err = cli("reconcile", seed)
    assert code == 2
    assert "not measured here (imported)" in err


def test_no_reading_command_loads_ray_and_only_query_loads_duckdb(seed: Path, measured: Path) -> None:
    root = Path(__file__).parents[2]
    runs = {
        "compare": [["compare", str(seed), str(seed)], ["compare", "--help"]],
        "query": [["query", str(measured), "select count(*) from requests"]],
    }
    for name, calls in runs.items():
        done = subprocess.run(
            [sys.executable, "-c", PROBE.format(calls=calls)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "80"},
            cwd=root,
        )
        loaded = set(done.stdout.rsplit("loaded:", 1)[1].split())
        assert not {"ray", "aiohttp", "grpc"} & loaded
        assert ("duckdb" in loaded) == (name == "query")
