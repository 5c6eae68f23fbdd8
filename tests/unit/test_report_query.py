"""SQL over a run directory: views with units, the documented examples, all formats, and nothing else in reach."""

import csv
import io
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from synthetic_run import GIB, NOT_COLD, whole_run

from raybench.analysis.merge import merge
from raybench.errors import ConfigError, RunDirectoryError
from raybench.records.rundir import RunDirectory
from raybench.report.query import Query, write_answer

DOCUMENT = (Path(__file__).parents[2] / "docs" / "QUERY.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```sql\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    made = whole_run(tmp_path_factory.mktemp("query") / "it's [a] run*")
    merge(made)
    return made


def asked(run: RunDirectory, sql: str) -> list[dict[str, object]]:
    with Query(run) as query:
        return [row for batch in query.rows(sql) for row in batch.to_pylist()]


def test_points_are_the_rows_of_points_parquet(run: RunDirectory) -> None:
    told = asked(run, "select * from points")
    assert told == pq.read_table(run.points_parquet).to_pylist()


def test_requests_are_all_but_the_lists_of_chunks(run: RunDirectory) -> None:
    (one,) = asked(run, "select count(*) as n, count(*) filter (where final) as of_final from requests")
    assert one == {"n": 14, "of_final": 10}
    assert "chunk_ns" not in asked(run, "select * from requests limit 1")[0]


def test_findings_are_those_of_every_attempt(run: RunDirectory) -> None:
    told = asked(run, "select point_id, attempt, final, code, message from findings order by point_id")
    assert told[0] == {
        "point_id": "tp2pp4/1k/c4",
        "attempt": 1,
        "final": False,
        "code": "hit_rate_exceeded",
        "message": NOT_COLD,
    }
    assert [row["code"] for row in told] == ["hit_rate_exceeded", "worker_lost"]


def test_chunks_have_their_time_gap_and_tokens(tmp_path: Path) -> None:
    from request_rows import ns
    from synthetic_run import ACCEPT, SyntheticRun, planned, wave

    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("tp2pp4/1k/c2")])
    stamps = [ns(10.4), ns(10.5), ns(10.75)]
    rows = wave(10.0, 1, worker="w1", chunk_ns=stamps, chunk_tokens=[1, 4, 6])
    made.attempt(5.0, "tp2pp4/1k/c2", 1, rows, (10.0, 11.0), ACCEPT)
    made.event(13.0, "point_committed", point_id="tp2pp4/1k/c2", attempt=1, verdict="accepted", reasons=[])
    run = made.done()
    merge(run)
    told = asked(run, "select chunk, since_sent_ms, gap_ms, tokens from chunks order by chunk")
    assert told == [
        {"chunk": 1, "since_sent_ms": 400.0, "gap_ms": None, "tokens": 1},
        {"chunk": 2, "since_sent_ms": 500.0, "gap_ms": 100.0, "tokens": 4},
        {"chunk": 3, "since_sent_ms": 750.0, "gap_ms": 250.0, "tokens": 6},
    ]
    (at,) = asked(
        run, "select min(at_unix_ns) - any_value(sent_unix_ns) as ns from chunks join requests using (ticket)"
    )
    assert at == {"ns": ns(0.4)}


@pytest.mark.parametrize("sql", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_documented_example_runs(run: RunDirectory, sql: str) -> None:
    asked(run, sql)


def test_the_documented_as_of_join_gives_the_memory_of_the_sample_before_the_first_token(
    run: RunDirectory,
) -> None:
    (sql,) = [sql for sql in EXAMPLES if "gpu_uuid" in sql]
    told = {(row["point_id"], row["ticket"]): row["memory_in_use_bytes"] for row in asked(run, sql)}
    assert told["tp2pp4/1k/c2", 0] == 70 * GIB, "GPU-0 held 70 GiB from 10 s to 12 s"
    assert told["tp2pp4/1k/c4", 0] == 65 * GIB, "GPU-1 at 29.5 s; its sample at 30 s is missing"


def test_every_view_is_documented(run: RunDirectory) -> None:
    with Query(run) as query:
        assert set(re.findall(r"(?m)^\| `(\w+)` \|", DOCUMENT)) == set(query.views)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from '{run}/journal.jsonl'",
        "copy points to '{run}/stolen.csv'",
        "attach '{run}/x.db'",
        "install httpfs",
        "set enable_external_access = true",
        "select * from read_text('{run}/manifest.json')",
        "select 1; select 2",
        "",
        "selekt",
        "select colour from points",
    ],
)
def test_a_query_reaches_nothing_but_the_run_s_tables(run: RunDirectory, sql: str) -> None:
    before = sorted(path.name for path in run.path.iterdir())
    with pytest.raises(ConfigError, match="query: "):
        asked(run, sql.format(run=str(run.path).replace("'", "''")))
    assert sorted(path.name for path in run.path.iterdir()) == before


def test_a_row_that_cannot_be_made_is_explained_even_when_it_comes_late(run: RunDirectory) -> None:
    sql = "select case when i < 100000 then i else cast('x' || i as int) end as v from range(100001) t(i)"
    with pytest.raises(ConfigError, match="Could not convert"):
        asked(run, sql)


def test_a_run_that_was_not_merged_says_how_to(tmp_path: Path) -> None:
    made = whole_run(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="raybench merge"):
        Query(made)


SQL = "select point_id, concurrency, wall_s, reasons, null as nothing from points order by point_id"


def written(run: RunDirectory, form: str, path: Path) -> int:
    with Query(run) as query:
        return write_answer(query.rows(SQL), form, path, Console())


def test_csv_json_and_parquet_hold_the_same(run: RunDirectory, tmp_path: Path) -> None:
    counts = {form: written(run, form, tmp_path / form) for form in ("csv", "json", "parquet")}
    assert counts == {"csv": 5, "json": 5, "parquet": 5}
    expected = asked(run, SQL)
    assert pq.read_table(tmp_path / "parquet").to_pylist() == expected
    assert json.loads((tmp_path / "json").read_text()) == expected
    rows = list(csv.DictReader(io.StringIO((tmp_path / "csv").read_text())))
    assert [row["point_id"] for row in rows] == [row["point_id"] for row in expected]
    assert {row["nothing"] for row in rows} == {""}
    assert float(rows[0]["wall_s"]) == expected[0]["wall_s"]


def test_an_answer_of_no_rows_is_still_a_file_of_its_form(run: RunDirectory, tmp_path: Path) -> None:
    with Query(run) as query:
        assert write_answer(query.rows("select 1 as a where false"), "json", tmp_path / "j", Console()) == 0
    assert json.loads((tmp_path / "j").read_text()) == []


def test_parquet_needs_a_file_and_a_file_needs_a_folder(run: RunDirectory, tmp_path: Path) -> None:
    with Query(run) as query:
        with pytest.raises(ConfigError, match="--output"):
            write_answer(query.rows(SQL), "parquet", None, Console())
        with pytest.raises(ConfigError, match="no such folder"):
            write_answer(query.rows(SQL), "csv", tmp_path / "gone" / "x.csv", Console())
        with pytest.raises(ConfigError, match="a table is for the terminal"):
            write_answer(query.rows(SQL), "table", tmp_path / "x", Console())


def printed(run: RunDirectory, sql: str, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    with Query(run) as query:
        write_answer(query.rows(sql), "table", None, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_table_fits_the_terminal_upright_where_it_is_too_wide(run: RunDirectory) -> None:
    narrow = printed(run, "select point_id, verdict from points")
    assert "tp2pp4/1k/c2  accepted" in narrow
    wide = printed(run, "select * from points limit 1")
    assert "row 1" in wide
    assert max(map(len, wide.splitlines())) <= 80


def test_a_table_says_how_many_rows_it_leaves_out(run: RunDirectory) -> None:
    text = printed(run, "select i from range(1000) t(i)")
    assert "800 more of 1,000 rows" in text
