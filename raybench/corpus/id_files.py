"""Token ids from the files that people have: .npy, Arrow, Parquet, a JSON list.

Every reader gives a flat array of some integer type or raises ConfigError with what to do; the check of
the values is in one place (`as_token_ids`). Runs on the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raybench.errors import ConfigError, ConfigProblem

ID_MAX = 2**32 - 1
IDS_COLUMN = "ids"
WANTED = "whole token ids in one dimension"
#: Ids checked and converted at a time.
BLOCK_IDS = 1 << 22
#: A JSON list is held in memory while it is read, at some ten times its size.
JSON_BYTES_MAX = 1 << 30
#: What numpy and Arrow raise for damaged files and others than their own; Arrow reads a name when it is used.
NPY_ERRORS = (ValueError, EOFError, OSError, TokenError)
ARROW_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)


def read_id_file(path: Path) -> NDArray[np.uint32]:
    """All ids of a file, chosen by its suffix; memory-mapped where the file holds uint32 already.

    Raises ConfigError for a missing or unreadable file and for anything but flat, whole, non-negative ids.
    """
    return as_token_ids(path, reader_of(path)(path))


def reader_of(path: Path) -> Callable[[Path], NDArray[np.generic]]:
    """What reads such a file. Raises ConfigError where its name or its size tells that nothing will."""
    readers = {".npy": _read_npy, ".arrow": _read_arrow, ".parquet": _read_parquet, ".json": _read_json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise problem(
            path,
            "not a kind of corpus file that raybench knows",
            value=path.suffix or "no suffix",
            allowed=", ".join(readers) + ", or a directory made by `raybench corpus build`",
            way_out="build a corpus from text with `raybench corpus build`",
        )
    if reader is _read_json and path.exists() and (size := path.stat().st_size) > JSON_BYTES_MAX:
        way_out = "save the ids as .npy of uint32, which is mapped and not read"
        raise problem(path, "too large to be read as JSON", f"{size} bytes", f"{JSON_BYTES_MAX} bytes", way_out)
    return reader


def as_token_ids(path: Path, values: NDArray[np.generic]) -> NDArray[np.uint32]:
    """Check values and give them as uint32, without a copy if they are that already."""
    if values.ndim != 1:
        raise problem(path, f"the ids have {values.ndim} dimensions", f"shape {values.shape}", WANTED)
    if values.dtype.kind not in "iu":
        raise problem(path, "the ids are not integers", f"dtype {values.dtype}", WANTED)
    if len(values) == 0:
        raise problem(path, "the corpus is empty", allowed="at least one token id")
    if values.dtype == np.dtype("<u4"):
        return np.asarray(values)
    whole: NDArray[np.integer[Any]] = values.view(np.ndarray)
    ids = np.empty(len(whole), np.uint32)
    for first in range(0, len(whole), BLOCK_IDS):
        block = whole[first : first + BLOCK_IDS]
        if int(block.min()) < 0 or int(block.max()) > ID_MAX:
            index = int(np.flatnonzero((block < 0) | (block > ID_MAX))[0])
            raise _out_of_range(path, first + index, int(block[index]))
        ids[first : first + len(block)] = block
    return ids


def _out_of_range(path: Path, index: int, value: int) -> ConfigError:
    return problem(path, f"the id at position {index} is out of range", str(value), f"0..{ID_MAX}")


def problem(
    path: Path, message: str, value: str | None = None, allowed: str | None = None, way_out: str | None = None
) -> ConfigError:
    """A ConfigError of one problem with a corpus file."""
    return ConfigError(str(path), ConfigProblem(message, value=value, allowed=allowed, way_out=way_out))


def _read_npy(path: Path) -> NDArray[np.generic]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except NPY_ERRORS as error:
        raise problem(
            path, "not a readable .npy file", str(error), WANTED, "write it again with numpy.save(path, ids)"
        ) from None


def _read_arrow(path: Path) -> NDArray[np.generic]:
    """The random-access file format, or a stream."""
    try:
        source = pa.memory_map(str(path))
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
        return _id_column(path, table)
    except ARROW_ERRORS as error:
        raise problem(path, "not a readable Arrow file", str(error)) from None


def _read_parquet(path: Path) -> NDArray[np.generic]:
    try:
        file = pq.ParquetFile(path)
        name = _column_name(path, file.schema_arrow)
        return _id_column(path, file.read(columns=[name]))
    except ARROW_ERRORS as error:
        raise problem(path, "not a readable Parquet file", str(error)) from None


def _id_column(path: Path, table: pa.Table) -> NDArray[np.generic]:
    name = _column_name(path, table.schema)
    column = table.column(name)
    if column.null_count:
        raise problem(path, f"column {name!r} has {column.null_count} nulls", allowed=WANTED)
    # A column of one chunk stays a view of the mapped file.
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _column_name(path: Path, schema: pa.Schema) -> str:
    """`ids`, or else the only column of integers."""
    types = {str(field.name): field.type for field in schema}
    integers = [name for name, kind in types.items() if pa.types.is_integer(kind)]
    if IDS_COLUMN in types:
        if IDS_COLUMN not in integers:
            message = f"column {IDS_COLUMN!r} is not one of integers"
            raise problem(path, message, str(types[IDS_COLUMN]), WANTED)
        return IDS_COLUMN
    if len(integers) != 1:
        raise problem(
            path,
            f"no column {IDS_COLUMN!r}, and {len(integers)} columns of integers to choose from",
            value=", ".join(f"{name}: {kind}" for name, kind in types.items()) or "no columns",
            allowed=f"a column {IDS_COLUMN!r}, or exactly one column of integers",
            way_out=f"name the column with the token ids {IDS_COLUMN!r}",
        )
    return integers[0]


def _read_json(path: Path) -> NDArray[np.generic]:
    """A list, or an object with a list under `ids`. Takes some 60 bytes of memory a token while it reads."""
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as error:
        raise problem(path, "cannot be read", str(error.strerror)) from None
    except orjson.JSONDecodeError as error:
        raise problem(path, "not JSON", str(error)) from None
    ids = content.get(IDS_COLUMN) if isinstance(content, dict) else content
    if not isinstance(ids, list):
        raise problem(path, "no list of token ids", type(content).__name__, 'a list, or {"ids": [...]}')
    strangers = set(map(type, ids)) - {int}
    if strangers:
        index = next(index for index, value in enumerate(ids) if type(value) is not int)
        raise problem(path, f"the entry at position {index} is no whole number", repr(ids[index])[:80], WANTED)
    if ids and (min(ids) < 0 or max(ids) > ID_MAX):
        index = next(index for index, value in enumerate(ids) if not 0 <= value <= ID_MAX)
        raise _out_of_range(path, index, ids[index])
    return np.array(ids, dtype=np.uint32)
