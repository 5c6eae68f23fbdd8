"""Tables of numbers that raybench did not measure: a CSV file, or a YAML file that says what its columns are.

Read by `raybench import`, which makes a run directory of it that `report`, `compare` and `query` read like any
other, and by `compare --baseline`. Strict: each cell that cannot be understood is named, and nothing is filled in.
Contacts nothing.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

import raybench
from raybench.analysis.point_metrics import Row
from raybench.analysis.points import IMPORTED, write_points
from raybench.errors import ConfigError, ConfigProblem
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import write_json
from raybench.report.columns import Column, column_of, known_columns
from raybench.report.numbers import tokens
from raybench.scenario.levels import Level
from raybench.scenario.limits import active_limit
from raybench.scenario.load import load_model, read_text
from raybench.scenario.plan import point_id
from raybench.scenario.schema import Limits
from raybench.scenario.values import Count, Misfit, Model, Name, Tokens, Words

Scalar = str | int | float | bool
Facts = Annotated[dict[str, Scalar], Words("a block of names, each with one plain value")]


class PublishedArm(Model):
    """One deployment of the table: what its source states. against: the arm that it is held against."""

    facts: Facts = Field(default_factory=dict)
    limits: Limits = Field(default_factory=Limits)
    against: Name | None = None


class ArmColumns(Model):
    """A table with one column an arm: column -> arm, and the metric that all of them hold."""

    metric: str
    arms: dict[str, Name]


class SkippedPoints(Model):
    """Points that the source says cannot be measured, with its reason."""

    arm: Name
    workload: Name | None = None
    input_tokens: Tokens
    output_tokens: Tokens
    concurrency: Annotated[list[Count], Field(min_length=1)]
    reason: str


class Published(Model):
    """A table and what is known of it. The rows are in `points`, or in the CSV file that `csv` names.

    columns: the table's name of a column -> raybench's. constants: columns that the table leaves out since
    all rows have them in common. leave_out: column -> values whose rows are not points (totals).
    """

    name: Name
    source: str
    conditions: Facts = Field(default_factory=dict)
    not_stated: list[str] = Field(default_factory=list)
    arms: dict[Name, PublishedArm] = Field(default_factory=dict)
    csv: str | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    arm_columns: ArmColumns | None = None
    constants: dict[str, Scalar] = Field(default_factory=dict)
    leave_out: dict[str, list[str]] = Field(default_factory=dict)
    points: list[dict[str, Scalar]] = Field(default_factory=list)
    skipped: list[SkippedPoints] = Field(default_factory=list)

    @model_validator(mode="after")
    def _rows_in_one_place(self) -> Published:
        if (self.csv is None) == (not self.points):
            raise Misfit("give the rows either in `points` or in a file named by `csv`", "csv")
        return self

    @model_validator(mode="after")
    def _columns_are_known(self) -> Published:
        for key, name in self.columns.items():
            if column_of(name) is None:
                raise Misfit(
                    f"raybench has no column {name!r}; it has {', '.join(known_columns())}", "columns", key
                )
        for name, value in self.constants.items():
            if (column := column_of(name)) is None:
                raise Misfit(f"raybench has no column {name!r}", "constants", name)
            try:
                column.value(str(value))
            except ValueError:
                raise Misfit(f"cannot be read; allowed: {column.allowed}", "constants", name) from None
        if self.arm_columns is not None and column_of(self.arm_columns.metric) is None:
            raise Misfit(f"raybench has no column {self.arm_columns.metric!r}", "arm_columns", "metric")
        return self


@dataclass(frozen=True)
class PublishedTable:
    """A table that was read. points: rows of points.parquet, skipped ones last. left_out: columns of the
    table that mean nothing to raybench. file: its rows' file."""

    about: Published
    points: list[Row]
    file: Path
    left_out: list[str]


@dataclass(frozen=True)
class _Line:
    """One row as text by column, and what to call it in an error."""

    where: str
    line: int | None
    cells: Mapping[str, str]


def read_published(path: Path) -> PublishedTable:
    """Read a `.csv` whose columns speak for themselves, or a YAML file. Raises ConfigError with all problems."""
    if path.suffix.lower() == ".csv":
        name = "".join(c if c.isalnum() or c in "_.+-" else "-" for c in path.stem).lstrip("_.+-") or "table"
        about = Published(name=name[:64], source=path.name, csv=path.name)
    else:
        about = load_model(Published, path)
    file = path if about.csv is None else path.parent / about.csv
    lines = list(_csv_lines(file) if about.csv is not None else _inline_lines(about))
    points, left_out = _Table(about, file).points(lines)
    return PublishedTable(about, points + list(_skipped(about)), file, left_out)


def _csv_lines(file: Path) -> Iterator[_Line]:
    source = str(file)
    rows = csv.reader(io.StringIO(read_text(file), newline=""), strict=True)
    try:
        heading = next(rows, None)
        if not heading:
            raise ConfigError(source, "the file is empty")
        repeated = sorted({name for name in heading if heading.count(name) > 1})
        if repeated:
            raise ConfigError(source, ConfigProblem("two columns of one name", value=", ".join(repeated), line=1))
        for row in rows:
            if not row:
                continue
            if len(row) != len(heading):
                message = f"{len(row)} cells under {len(heading)} columns"
                raise ConfigError(source, ConfigProblem(message, line=rows.line_num))
            yield _Line("", rows.line_num, dict(zip(heading, row, strict=True)))
    except csv.Error as error:
        raise ConfigError(source, ConfigProblem(f"not CSV: {error}", line=rows.line_num)) from None


def _inline_lines(about: Published) -> Iterator[_Line]:
    for index, point in enumerate(about.points):
        yield _Line(f"points[{index}]", None, {name: str(value) for name, value in point.items()})


class _Table:
    """Rows as text -> points, with every problem of the table at once."""

    def __init__(self, about: Published, file: Path) -> None:
        self._about = about
        self._source = str(file)
        self._problems: list[ConfigProblem] = []
        self._points: list[Row] = []
        #: By the id of a point, where it stands.
        self._places: dict[str, str] = {}
        self._constants = {
            column.name: column.value(str(value))
            for name, value in about.constants.items()
            if (column := column_of(name)) is not None
        }

    def points(self, lines: list[_Line]) -> tuple[list[Row], list[str]]:
        if not lines:
            raise ConfigError(self._source, "the table has no rows")
        kept = [line for line in lines if not self._is_left_out(line)]
        names = list(dict.fromkeys(name for line in kept for name in line.cells))
        columns = {name: self._column(name) for name in names}
        spread = self._about.arm_columns
        per_arm = {} if spread is None else spread.arms
        unknown = [name for name, column in columns.items() if column is None and name not in per_arm]
        for name in [*self._about.columns, *self._about.leave_out, *per_arm]:
            if name not in {name for line in lines for name in line.cells}:
                self._problems.append(ConfigProblem(f"the table has no column {name!r}", value=", ".join(names)))
        for line in kept:
            told_before = len(self._problems)
            rows = list(self._rows(line, columns))
            if len(self._problems) == told_before:  # a cell that cannot be read is not one that is missing
                for values in rows:
                    self._add(values, line)
        if self._problems:
            raise ConfigError(self._source, self._problems)
        return self._points, unknown

    def _column(self, name: str) -> Column | None:
        return column_of(self._about.columns.get(name, name))

    def _is_left_out(self, line: _Line) -> bool:
        return any(line.cells.get(name) in values for name, values in self._about.leave_out.items())

    def _rows(self, line: _Line, columns: Mapping[str, Column | None]) -> Iterator[dict[str, Any]]:
        """The point of a row, or those of its arms where each has a column of its own."""
        shared = self._constants | {
            column.name: self._value(column, name, line)
            for name in line.cells
            if (column := columns[name]) is not None
        }
        spread = self._about.arm_columns
        metric = None if spread is None else column_of(spread.metric)
        if spread is None or metric is None:
            yield shared
            return
        for name, arm in spread.arms.items():
            if line.cells.get(name, "").strip():
                yield {**shared, "arm": arm, metric.name: self._value(metric, name, line)}

    def _value(self, column: Column, name: str, line: _Line) -> str | int | float | None:
        try:
            return column.value(line.cells[name])
        except ValueError:
            self._problem(line, name, "cannot be read", line.cells[name], column.allowed)
            return None

    def _add(self, values: dict[str, Any], line: _Line) -> None:
        if values.get("workload") is None and values.get("input_tokens") is not None:
            values["workload"] = _shape_name(values["input_tokens"], values.get("output_tokens"))
        missing = [name for name in ("arm", "workload", "concurrency") if values.get(name) is None]
        if missing:
            names = ", ".join(missing)
            way_out = (
                "name the column in `columns`, or its one value in `constants`, of a YAML file about the table"
            )
            self._problem(line, "", f"has no {names}", way_out=way_out)
            return
        row = _point(values, self._about)
        where = f"line {line.line}" if line.line is not None else line.where
        if (first := self._places.setdefault(row["point_id"], where)) != where:
            self._problem(line, "", f"the point {row['point_id']} is there twice (first: {first})")
        self._points.append(row)

    def _problem(
        self,
        line: _Line,
        name: str,
        message: str,
        value: str | None = None,
        allowed: str | None = None,
        way_out: str | None = None,
    ) -> None:
        path = ".".join(part for part in (line.where, name) if part)
        self._problems.append(ConfigProblem(message, path, value, allowed, way_out, line.line))


def _shape_name(input_tokens: int, output_tokens: int | None) -> str:
    """`16k-512`: what a workload is called whose table gives it no name."""
    plain = [tokens(size).replace(",", "") for size in (input_tokens, output_tokens) if size is not None]
    return "-".join(plain)


def _point(values: Mapping[str, Any], about: Published) -> Row:
    """A row of points.parquet; what the table does not tell stays unknown."""
    arm = about.arms.get(values["arm"], PublishedArm())
    limit = None
    if values.get("input_tokens") is not None and values.get("output_tokens") is not None:
        limit = active_limit(arm.limits, values["input_tokens"], values["output_tokens"])
    ok, requests = values.get("requests_ok"), values.get("requests")
    samples = {
        f"{metric}_n": ok
        for metric in ("ttft_ms", "tpot_ms", "e2e_ms")
        if any(name.startswith(f"{metric}_") and value is not None for name, value in values.items())
    }
    return {
        **values,
        **samples,
        "point_id": point_id(values["arm"], values["workload"], Level(concurrency=values["concurrency"])),
        "requests_planned": requests,
        "requests_failed": None if ok is None or requests is None else requests - ok,
        "active_limit": limit,
        "queueing": None if limit is None else values["concurrency"] > limit,
        "verdict": IMPORTED,
        "reasons": [],
    }


def _skipped(about: Published) -> Iterable[Row]:
    for group in about.skipped:
        workload = group.workload or _shape_name(group.input_tokens, group.output_tokens)
        for concurrency in group.concurrency:
            yield {
                "point_id": point_id(group.arm, workload, Level(concurrency=concurrency)),
                "arm": group.arm,
                "workload": workload,
                "concurrency": concurrency,
                "input_tokens": group.input_tokens,
                "output_tokens": group.output_tokens,
                "verdict": "skipped",
                "reasons": [group.reason],
            }


# -- a run directory of it -------------------------------------------------------------------------


def write_imported(table: PublishedTable, path: Path) -> RunDirectory:
    """Make a run directory whose manifest, facts and points all say that they were imported; it has no records, no
    journal and no parts. Raises RunDirectoryError when something is there already."""
    run = RunDirectory(path)
    run.create()
    about = table.about
    for arm in dict.fromkeys(str(point["arm"]) for point in table.points):
        write_json(run.arm(arm) / "facts.json", declared_facts(table, arm))
    write_points(run, table.points)
    write_json(
        run.manifest,
        {
            "run_id": path.name,
            "raybench_version": raybench.__version__,
            "provenance": IMPORTED,
            "imported": {
                "name": about.name,
                "source": about.source,
                "file": {"name": table.file.name, "sha256": hashlib.sha256(table.file.read_bytes()).hexdigest()},
                "conditions": about.conditions,
                "not_stated": about.not_stated,
                "columns_left_out": table.left_out,
            },
            "points": [
                {name: point.get(name) for name in ("point_id", "arm", "workload", "concurrency")}
                for point in table.points
            ],
        },
    )
    return run


def declared_facts(table: PublishedTable, arm: str) -> dict[str, object]:
    """What the table's source states of an arm, its limits included."""
    known = table.about.arms.get(arm)
    if known is None:
        return {"provenance": IMPORTED}
    limits = {name: value for name, value in known.limits.model_dump().items() if value}
    return {"provenance": IMPORTED, **known.facts, **limits}
