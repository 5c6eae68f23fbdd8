"""Arrow IPC streams that survive a killed writer, and reading them back.

The stream format is used because it has no footer: what was written up to the last whole batch stays
readable whatever happens to the writer. Workers and monitors encode (`ArrowEncoder`) and send bytes;
the coordinator's host appends them to files (`records/parts.py`); the merge reads (`read_part`) and
brings parts of all ages to one schema (`unify`). Reading never changes a part.

Wire format: https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from raybench.errors import RunDirectoryError
from raybench.records.clock import ClockAnchor
from raybench.records.schema import SCHEMA_VERSION, SCHEMAS

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
FILE_MAGIC = b"ARROW1\x00\x00"

#: Column that names the part from which a row came; added by `name_source`.
SOURCE_COLUMN = "source_part"


def part_metadata(schema: str, anchor: ClockAnchor, **labels: str) -> dict[str, str]:
    """Metadata of a part: which schema (a key of SCHEMAS), whose clock, and labels as worker or arm."""
    assert schema in SCHEMAS, f"no schema is called {schema!r}"
    own = {"schema": schema, "schema_version": str(SCHEMA_VERSION), **anchor.to_metadata()}
    assert not own.keys() & labels.keys(), f"labels overwrite metadata: {own.keys() & labels.keys()}"
    return {**own, **labels}


class ArrowEncoder:
    """Turns rows into the successive bytes of one IPC stream.

    All results concatenated in order are a valid stream. Each `encode` is one batch.
    """

    def __init__(self, schema: pa.Schema, metadata: Mapping[str, str] | None = None) -> None:
        self._schema = schema.with_metadata(dict(metadata or {}))
        self._names = frozenset(schema.names)
        self._started = False
        self._closed = False

    def start(self) -> bytes:
        """The schema message; empty if it was given out before."""
        assert not self._closed, "the stream is closed"
        if self._started:
            return b""
        self._started = True
        return bytes(self._schema.serialize())

    def encode(self, rows: Sequence[Mapping[str, object]]) -> bytes:
        """One batch of rows, keyed by column name; a missing column is null, an unknown one a bug."""
        head = self.start()
        if not rows:
            return head
        for row in rows:
            assert self._names.issuperset(row), f"unknown columns: {sorted(row.keys() - self._names)}"
        batch = pa.RecordBatch.from_pylist(list(rows), schema=self._schema)
        return head + bytes(batch.serialize())

    def close(self) -> bytes:
        """The end marker, by which a reader knows that nothing is missing."""
        head = self.start()
        self._closed = True
        return head + END_OF_STREAM


@dataclass(frozen=True)
class Part:
    """What could be read of one part.

    closed: the writer ended it cleanly. dropped_bytes: size of the torn tail. A part that was torn
    inside its schema has an empty table without columns.
    """

    path: Path
    table: pa.Table
    closed: bool
    dropped_bytes: int
    metadata: dict[str, str]

    @property
    def warning(self) -> str | None:
        """What a report has to say about a part that was not closed."""
        if self.closed and not self.dropped_bytes:
            return None
        state = "file closed" if self.closed else "file not closed"
        return f"{self.path.name}: {state}, tail of {self.dropped_bytes} bytes dropped"

    @property
    def anchor(self) -> ClockAnchor | None:
        return ClockAnchor.from_metadata(self.metadata)


def read_part(path: Path) -> Part:
    """Read a stream, whole or torn, or a file-format file, closed or not (case O-F1).

    Raises RunDirectoryError if there is no such file or it cannot be read; a torn tail is no error.
    """
    try:
        size = path.stat().st_size
        data = pa.memory_map(str(path)).read_buffer() if size else pa.py_buffer(b"")
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be read: {error.strerror or error}") from None
    start = len(FILE_MAGIC) if data[: len(FILE_MAGIC)].equals(pa.py_buffer(FILE_MAGIC)) else 0
    schema, metadata, batches, end = _read_batches(data.slice(start))
    end += start
    closed = schema is not None and data[end : end + len(END_OF_STREAM)].equals(pa.py_buffer(END_OF_STREAM))
    if closed:
        end = size if _is_closed_file(data, start) else end + len(END_OF_STREAM)
    table = pa.Table.from_batches(batches, schema=pa.schema([]) if schema is None else schema)
    return Part(path, table, closed, size - end, metadata)


def _read_batches(data: pa.Buffer) -> tuple[pa.Schema | None, dict[str, str], list[pa.RecordBatch], int]:
    """Schema, its metadata, whole batches, and where the last whole message ends.

    Never raises for torn or damaged bytes.
    """
    source = pa.BufferReader(data)
    batches: list[pa.RecordBatch] = []
    try:
        schema = pa.ipc.read_schema(pa.ipc.read_message(source))
        metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        schema = pa.schema([(field.name, field.type) for field in schema])  # a damaged name shows when it is read
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError):
        return None, {}, [], 0
    end = source.tell()
    while True:
        try:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, EOFError):
            return schema, metadata, batches, end
        batches.append(batch)
        end = source.tell()


def _is_closed_file(data: pa.Buffer, start: int) -> bool:
    """Whether this is the file format with its footer in place."""
    if not start:
        return False
    try:
        pa.ipc.open_file(data)
    except pa.ArrowException:
        return False
    return True


def name_source(table: pa.Table, source: str) -> pa.Table:
    """The table with one more column that names the part of each row."""
    return table.append_column(SOURCE_COLUMN, pa.array([source] * table.num_rows, pa.string()))


def unify(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """All rows of all tables under `schema`, with unknown columns kept behind it (case O-F2).

    Known columns get the schema's types, missing ones are null; unknown ones get a type that holds all
    their values, in alphabetical order. Tables that went through `name_source` are put in the order of
    their names, so that the result does not depend on the order in which parts were found.
    Raises RunDirectoryError for a known column whose values do not fit the schema's type.
    """
    target = _with_extra_columns(tables, schema)
    rows = [_conform(table, target) for table in sorted(tables, key=_source_of)]
    return pa.concat_tables(rows) if rows else target.empty_table()


def _with_extra_columns(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Schema:
    extra: dict[str, list[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            if field.name not in schema.names:
                extra.setdefault(field.name, []).append(field.type)
    fields = [*schema, *(pa.field(name, _common_type(types)) for name, types in sorted(extra.items()))]
    return pa.schema(fields, metadata={"schema_version": str(SCHEMA_VERSION)})


def _common_type(types: list[pa.DataType]) -> pa.DataType:
    """A type that holds values of all these types; text when Arrow knows none."""
    ordered = sorted(set(types), key=str)
    try:
        merged = pa.unify_schemas(
            [pa.schema([("column", each)]) for each in ordered], promote_options="permissive"
        )
    except pa.ArrowException:
        return pa.string()
    return merged.field("column").type


def _conform(table: pa.Table, target: pa.Schema) -> pa.Table:
    columns = []
    for field in target:
        if field.name not in table.column_names:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        column = table.column(field.name)
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowNotImplementedError:
            if not pa.types.is_string(field.type):
                raise _misfit(table, field, column.type) from None
            texts = [None if value is None else str(value) for value in column.to_pylist()]
            columns.append(pa.chunked_array([pa.array(texts, pa.string())]))
        except pa.ArrowInvalid:
            raise _misfit(table, field, column.type) from None
    return pa.table(columns, schema=target)


def _misfit(table: pa.Table, field: pa.Field, found: pa.DataType) -> RunDirectoryError:
    where = _source_of(table) or "a part"
    return RunDirectoryError(f"{where}: column {field.name!r} holds {found} values that are no {field.type}")


def _source_of(table: pa.Table) -> str:
    if SOURCE_COLUMN not in table.column_names or table.num_rows == 0:
        return ""
    return str(table.column(SOURCE_COLUMN)[0].as_py())
