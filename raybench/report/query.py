"""`raybench query`: SQL over the Parquet files of one run directory, by DuckDB in this process.

Views: points, requests, chunks, gpu, server, worker, findings; those whose file the run does not have are
missing. A query reads these files and nothing else, and writes nothing: DuckDB's access to other files, to
the network and to extensions is closed before the query runs. Needs no Ray and no server.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from raybench.analysis.points import merged_table
from raybench.errors import ConfigError, ConfigProblem
from raybench.records.files import replacing
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import to_json
from raybench.report import numbers
from raybench.report.document import Heading, Paragraph, Row, Table, Told
from raybench.report.terminal import print_blocks

FORMATS = ("table", "csv", "json", "parquet")
#: A terminal shows no more rows than this; the other formats have all.
TABLE_ROWS_MAX = 200
_ROWS_A_BATCH = 10_000

#: Views beside the one of each file, by the view that they are made of. `{file}` is that view's file.
_CHUNKS = """
    SELECT point_id, attempt, final, phase, worker, ticket, chunk,
        sent_unix_ns + (chunk_ns[chunk] - sent_ns) AS at_unix_ns,
        (chunk_ns[chunk] - sent_ns) / 1e6 AS since_sent_ms,
        CASE WHEN chunk > 1 THEN (chunk_ns[chunk] - chunk_ns[chunk - 1]) / 1e6 END AS gap_ms,
        chunk_tokens[chunk] AS tokens
    FROM (SELECT *, unnest(range(1, len(chunk_ns) + 1)) AS chunk FROM read_parquet('{file}'))
"""
_FINDINGS = """
    SELECT point_id, arm, workload, concurrency, tried.attempt AS attempt, tried.attempt = final_attempt AS final,
        found.code AS code, found.severity AS severity, found.message AS message
    FROM (
        SELECT *, unnest(tried.findings) AS found
        FROM (
            SELECT *, unnest(from_json(attempt_history, '[{{"attempt": "BIGINT",
                "findings": [{{"code": "VARCHAR", "severity": "VARCHAR", "message": "VARCHAR"}}]}}]')) AS tried
            FROM read_parquet('{file}')
        )
    )
"""
_ALL = "SELECT * FROM read_parquet('{file}')"
_VIEWS = {
    "points": ("points.parquet", _ALL),
    "requests": ("requests.parquet", "SELECT * EXCLUDE (chunk_ns, chunk_tokens) FROM read_parquet('{file}')"),
    "chunks": ("requests.parquet", _CHUNKS),
    "gpu": ("gpu.parquet", _ALL),
    "server": ("server.parquet", _ALL),
    "worker": ("worker.parquet", _ALL),
    "findings": ("points.parquet", _FINDINGS),
}


class Query:
    """The views of one run, open for queries. Use as a context manager."""

    def __init__(self, run: RunDirectory) -> None:
        """Raises RunDirectoryError for what is no merged run."""
        merged_table(run, run.points_parquet)
        self._connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
        reachable: set[str] = set()
        self.views: list[str] = []
        for name, (file_name, select) in _VIEWS.items():
            file = (run.path / file_name).resolve()
            if file.is_file():
                pattern = _quoted(_literal(file))
                self._connection.execute(f"CREATE VIEW {name} AS {select.format(file=pattern)}")
                reachable |= {pattern, _quoted(file)}
                self.views.append(name)
        allowed = ", ".join(f"'{path}'" for path in sorted(reachable))
        self._connection.execute(f"SET allowed_paths = [{allowed}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(self, sql: str) -> Answer:
        """The answer, batch by batch. Raises ConfigError for SQL that DuckDB refuses, now or while it is read."""
        try:
            statements = self._connection.extract_statements(sql)
            if len(statements) != 1:
                raise ConfigError("query", f"one statement is asked for, got {len(statements)}")
            answer = self._connection.sql(sql)
            if answer is None:
                raise ConfigError("query", ConfigProblem("the statement has no rows to show", value=sql))
            return Answer(answer.to_arrow_reader(_ROWS_A_BATCH), self._refusal)
        except duckdb.Error as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> ConfigError:
        way_out = f"the run has the views {', '.join(self.views)}; `raybench query RUN` shows their columns"
        return ConfigError("query", ConfigProblem(str(error).strip(), way_out=way_out))

    def columns(self) -> Iterator[Told]:
        """What can be asked: each view with its columns and their types."""
        for view in self.views:
            told = self._connection.sql(f"DESCRIBE {view}").fetchall()
            yield Heading(view)
            yield Table(("Column", "Type"), [Row((str(name), str(kind).lower())) for name, kind, *_ in told])


class Answer:
    """Batches of an answer under one schema. Iterating raises ConfigError when a later row cannot be made."""

    def __init__(self, reader: pa.RecordBatchReader, refusal: Callable[[Exception], ConfigError]) -> None:
        self.schema: pa.Schema = reader.schema
        self._reader = reader
        self._refusal = refusal

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None


def _quoted(path: Path | str) -> str:
    """As the inside of an SQL text."""
    return str(path).replace("'", "''")


def _literal(file: Path) -> str:
    """As a pattern of DuckDB that matches this file only."""
    return re.sub(r"[*?[]", r"[\g<0>]", str(file))


def write_answer(rows: Answer, form: str, output: Path | None, console: Console) -> int:
    """Write the answer in one of FORMATS, to a file or to stdout. Returns the number of rows.

    Raises ConfigError for Parquet without a file, since it is no text, and for a folder that is not there.
    """
    if output is not None and not output.parent.is_dir():
        raise ConfigError("--output", ConfigProblem("no such folder", value=str(output.parent)))
    if form == "parquet":
        if output is None:
            raise ConfigError("options", ConfigProblem("Parquet is no text", way_out="name a file by --output"))
        return _write_parquet(rows, output)
    if form == "table" and output is None:
        return _print_table(rows, console)
    if form == "table":
        raise ConfigError("options", "a table is for the terminal; --format csv, json or parquet makes a file")
    write = _write_csv if form == "csv" else _write_json
    if output is None:
        return write(rows, sys.stdout)
    with replacing(output) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        return write(rows, file)


def _write_parquet(rows: Answer, output: Path) -> int:
    count = 0
    with replacing(output) as beside, pq.ParquetWriter(beside, rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _write_csv(rows: Answer, file: TextIO) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(rows.schema.names)
    count = 0
    for batch in rows:
        for row in batch.to_pylist():
            writer.writerow("" if value is None else _plain(value) for value in row.values())
        count += batch.num_rows
    return count


def _write_json(rows: Answer, file: TextIO) -> int:
    """A list of objects, one a line."""
    count = 0
    file.write("[")
    for batch in rows:
        for row in batch.to_pylist():
            file.write(
                ("," if count else "") + "\n" + to_json({name: _plain(value) for name, value in row.items()})
            )
            count += 1
    file.write("\n]\n" if count else "]\n")
    return count


def _plain(value: Any) -> Any:
    """What JSON has; decimals, dates and the like as text."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _print_table(rows: Answer, console: Console) -> int:
    names = list(rows.schema.names)
    right = frozenset(k for k, field in enumerate(rows.schema) if _is_number(field.type))
    cells: list[tuple[str, ...]] = []
    count = 0
    for batch in rows:
        count += batch.num_rows
        shown = batch.slice(0, max(TABLE_ROWS_MAX - len(cells), 0)).to_pylist()
        cells += [tuple(_cell(row[name]) for name in names) for row in shown]
    widths = [max(map(len, column)) + 2 for column in zip(names, *cells, strict=True)]
    if sum(widths) <= console.width:
        print_blocks([Table(tuple(names), [Row(row) for row in cells], right)], console)
    else:
        print_blocks(_upright(names, cells), console)
    hidden = count - len(cells)
    if hidden:
        print_blocks([Paragraph(f"{hidden:,} more of {count:,} rows; --format csv shows all.")], console)
    return count


def _upright(names: list[str], cells: list[tuple[str, ...]]) -> Iterator[Told]:
    """Rows that are too wide for the terminal, one value a line."""
    for number, row in enumerate(cells, 1):
        yield Heading(f"row {number}")
        yield Table(("Column", "Value"), [Row(pair) for pair in zip(names, row, strict=True)])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: Any) -> str:
    if value is None:
        return numbers.UNKNOWN
    return f"{value:.6g}" if isinstance(value, float) else str(_plain(value))
