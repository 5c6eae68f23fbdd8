"""Tables of other people's numbers: read strictly, marked as imported, never taken for measured."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from raybench.analysis.merge import merge
from raybench.errors import ConfigError, RunDirectoryError
from raybench.records.rundir import RunDirectory
from raybench.report.columns import column_of
from raybench.report.published import PublishedTable, read_published, write_imported

HEAD = "arm,workload,concurrency,output_tps,ttft_p95_s\n"


def read(tmp_path: Path, text: str, name: str = "table.csv") -> PublishedTable:
    path = tmp_path / name
    path.write_text(text)
    return read_published(path)


def refused(tmp_path: Path, text: str, name: str = "table.csv") -> str:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text, name)
    return str(error.value)


def test_a_csv_whose_columns_speak_for_themselves(tmp_path: Path) -> None:
    table = read(tmp_path, HEAD + "x,16k-512,8,101.13,14.79\ny,16k-512,8,83.88,\n")
    first, second = table.points
    assert first["point_id"] == "x/16k-512/c8"
    assert (first["output_tokens_per_s"], first["ttft_ms_p95"]) == (101.13, 14790.0)
    assert second["ttft_ms_p95"] is None, "an empty cell is not known"
    assert first["verdict"] == "imported"


@pytest.mark.parametrize(
    ("name", "column", "times"),
    [
        ("ttft_p95_s", "ttft_ms_p95", 1000),
        ("ttft_s_p95", "ttft_ms_p95", 1000),
        ("tpot_mean_ms", "tpot_ms_mean", 1),
        ("e2e_ms_p99", "e2e_ms_p99", 1),
        ("input_tps", "input_tokens_per_s", 1),
        ("nreq", "requests", 1),
        ("retractions", "preemptions", 1),
        ("wall_s", "wall_s", 1),
    ],
)
def test_spellings_and_units_of_columns(name: str, column: str, times: float) -> None:
    found = column_of(name)
    assert found is not None
    assert (found.name, found.times) == (column, times)


@pytest.mark.parametrize("name", ["ttft_ms", "ttft_p95", "ttft_p90_ms", "verdict", "findings", "p95", ""])
def test_a_column_that_does_not_say_what_it_is_is_not_guessed(name: str) -> None:
    assert column_of(name) is None


def test_columns_that_mean_nothing_are_left_out_and_named(tmp_path: Path) -> None:
    table = read(tmp_path, "arm,workload,concurrency,colour\nx,w,1,red\n")
    assert table.left_out == ["colour"]


def test_a_workload_without_a_name_is_called_by_its_shape(tmp_path: Path) -> None:
    table = read(tmp_path, "arm,input_len,output_len,concurrency\nx,16384,512,1\nx,1000,1,1\n")
    assert [point["workload"] for point in table.points] == ["16k-512", "1000-1"]


def test_every_wrong_cell_is_named_at_once(tmp_path: Path) -> None:
    told = refused(tmp_path, HEAD + "x,w,eight,fast,1\nx,w,2,nan,-3\n,w,1,1,1\n")
    assert "concurrency (line 2): cannot be read; got: eight; allowed: a whole number from 0" in told
    assert "output_tps (line 2): cannot be read; got: fast" in told
    assert "output_tps (line 3): cannot be read; got: nan" in told
    assert "ttft_p95_s (line 3): cannot be read; got: -3" in told
    assert "line 4: has no arm" in told
    assert "has no concurrency" not in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (HEAD, "the table has no rows"),
        (HEAD + "x,w,1\n", "line 2: 3 cells under 5 columns"),
        ("arm,arm\nx,y\n", "two columns of one name"),
        (HEAD + 'x,"w,1,2,3\n', "not CSV"),
        (HEAD + "x,w,1,2,3\nx,w,1,2,3\n", "the point x/w/c1 is there twice (first: line 2)"),
        (HEAD + "x/y,w,1,2,3\n", "a name without `/`"),
        ("arm,workload,output_tps\nx,w,3\n", "has no concurrency"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(tmp_path, text)


ABOUT = """
name: t
source: a report
csv: table.csv
columns: {model: arm, rate: output_tokens_per_s}
constants: {workload: coding, concurrency: 1}
leave_out: {model: [total]}
arms:
  x: {facts: {image: v1}, limits: {max_running_requests: 4, kv_pool_tokens: 1000}}
skipped: [{arm: x, workload: long, input_tokens: 512k, output_tokens: 1, concurrency: [1, 2], reason: too long}]
"""


def test_a_yaml_file_says_what_a_table_s_columns_are(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("model,rate\nx,112.77\ny,107.48\ntotal,220\n")
    table = read(tmp_path, ABOUT, "about.yaml")
    assert [point["point_id"] for point in table.points] == [
        "x/coding/c1",
        "y/coding/c1",
        "x/long/c1",
        "x/long/c2",
    ]
    assert [point["verdict"] for point in table.points] == ["imported", "imported", "skipped", "skipped"]


def test_a_column_an_arm(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("scenario,A,B\ns1,112.20,108.70\ns2,118.88,\n")
    about = "name: t\nsource: s\ncsv: table.csv\ncolumns: {scenario: workload}\nconstants: {concurrency: 1}\n"
    table = read(tmp_path, about + "arm_columns: {metric: decode_tps, arms: {A: a, B: b}}\n", "about.yaml")
    assert [(p["point_id"], p["decode_tokens_per_s"]) for p in table.points] == [
        ("a/s1/c1", 112.2),
        ("b/s1/c1", 108.7),
        ("a/s2/c1", 118.88),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("columns: {model: colour}", "raybench has no column 'colour'"),
        ("points: [{arm: x}]", "give the rows either in `points` or in a file named by `csv`"),
        ("colums: {}", "colums"),
        ("leave_out: {nothing: [x]}", "the table has no column 'nothing'"),
        (
            "constants: {concurrency: many, workload: w}",
            "about.yaml: constants.concurrency (line 4): cannot be read",
        ),
    ],
)
def test_wrong_words_about_a_table_are_refused(tmp_path: Path, change: str, message: str) -> None:
    (tmp_path / "table.csv").write_text("arm,workload,concurrency\nx,w,1\n")
    assert message in refused(tmp_path, f"name: t\nsource: s\ncsv: table.csv\n{change}\n", "about.yaml")


def test_limits_of_an_arm_give_active_limits_and_queueing_points(tmp_path: Path) -> None:
    text = (
        "name: t\nsource: s\narms: {x: {limits: {max_running_requests: 48, kv_pool_tokens: 276480}}}\n"
        "points:\n- {arm: x, input_tokens: 16k, output_tokens: 512, concurrency: 64, output_tps: 99.6}\n"
    )
    (row,) = read(tmp_path, text, "t.yaml").points
    assert (row["active_limit"], row["queueing"]) == (16, True)


def test_an_imported_run_says_so_everywhere_and_pretends_no_measurement(tmp_path: Path) -> None:
    table = read(tmp_path, HEAD + "x,16k-512,8,101.13,14.79\n")
    run = write_imported(table, tmp_path / "run")
    manifest = run.read_manifest()
    assert manifest["provenance"] == "imported"
    assert len(manifest["imported"]["file"]["sha256"]) == 64
    (row,) = pq.read_table(run.points_parquet).to_pylist()
    assert row["verdict"] == "imported"
    for name in ("attempts", "final_attempt", "windows", "hit_rates", "load_started_unix_ns", "in_flight_peak"):
        assert row[name] is None, name
    assert json.loads((run.arms / "x" / "facts.json").read_text()) == {"provenance": "imported"}
    assert not run.journal.exists() and not run.requests_parquet.exists()


def test_an_imported_run_cannot_be_merged_over_its_points(tmp_path: Path) -> None:
    run = write_imported(read(tmp_path, HEAD + "x,w,8,1,1\n"), tmp_path / "run")
    before = run.points_parquet.read_bytes()
    with pytest.raises(RunDirectoryError, match=r"not measured here \(imported\): there are no parts to merge"):
        merge(RunDirectory(run.path))
    assert run.points_parquet.read_bytes() == before


def test_nothing_is_imported_over_something_else(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="not empty"):
        write_imported(read(tmp_path, HEAD + "x,w,8,1,1\n"), tmp_path)
