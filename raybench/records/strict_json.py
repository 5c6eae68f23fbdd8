"""JSON as every strict parser reads it: no NaN, no Infinity; undefined is null (case O-F3).

Python writes `NaN` and `Infinity` by default, which JSON does not have, and reads them without a word.
Both are closed here, for the manifest, the journal, facts and reports. Runs wherever files are written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path, PurePath

import numpy as np

from raybench.errors import RunDirectoryError
from raybench.records.files import write_file


def to_json(value: object, *, indent: int | None = None) -> str:
    """Strict JSON text; one line unless `indent`. NaN and infinities become null.

    Understands dict (string keys), list, tuple, str, int, float, bool, None, numpy scalars and paths.
    Anything else is a bug of the caller and raises TypeError.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(_strict(value), allow_nan=False, ensure_ascii=False, indent=indent, separators=separators)


def from_json(text: str, source: str) -> object:
    """Parse strict JSON. Raises RunDirectoryError, naming `source`, for anything else."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise RunDirectoryError(f"{source}: not JSON: {error}") from None


def write_json(path: Path, value: object) -> None:
    """Write a whole JSON file, replacing an old one atomically."""
    write_file(path, (to_json(value, indent=2) + "\n").encode())


def read_json(path: Path) -> object:
    """Read a whole JSON file. Raises RunDirectoryError if it is missing, or not strict JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RunDirectoryError(f"{path}: not UTF-8 at byte {error.start}") from None
    return from_json(text, str(path))


def _strict(value: object) -> object:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        assert all(isinstance(key, str) for key in value), f"keys of JSON objects are strings: {list(value)}"
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    return value


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"it holds {constant}, which JSON does not have; write null and convert the file")
