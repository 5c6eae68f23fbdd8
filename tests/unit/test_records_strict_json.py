"""records/strict_json.py: JSON that every strict parser reads (case O-F3)."""

import json
import math
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.errors import RunDirectoryError
from raybench.records.strict_json import from_json, read_json, to_json, write_json


def test_o_f3_undefined_numbers_are_null_in_a_file_that_a_strict_parser_reads(tmp_path: Path) -> None:
    point = {
        "rate_per_s": math.inf,
        "rate_mode": "closed_loop",
        "tpot_ms": math.nan,
        "means": (-math.inf, 1.5),
        "numpy": [np.float64("nan"), np.int64(3), np.float32(0.5), np.bool_(True)],
        "path": Path("runs/r1"),
        "text": "naïve 名",
    }
    path = tmp_path / "report.json"
    write_json(path, point)
    expected = {
        "rate_per_s": None,
        "rate_mode": "closed_loop",
        "tpot_ms": None,
        "means": [None, 1.5],
        "numpy": [None, 3, 0.5, True],
        "path": "runs/r1",
        "text": "naïve 名",
    }
    assert orjson.loads(path.read_bytes()) == expected
    assert read_json(path) == expected


@pytest.mark.parametrize("constant", ["Infinity", "-Infinity", "NaN"])
def test_o_f3_an_old_file_with_infinity_is_refused_by_name(tmp_path: Path, constant: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(f'{{"rate": {constant}}}')
    with pytest.raises(RunDirectoryError, match=rf"old\.json: not JSON: it holds {constant}"):
        read_json(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_every_value_gives_one_strict_line(value: object) -> None:
    text = to_json(value)
    assert "\n" not in text

    def refuse(constant: str) -> object:
        raise AssertionError(constant)

    json.loads(text, parse_constant=refuse)
    assert to_json(from_json(text, "text")) == text


def test_an_unknown_type_is_our_bug() -> None:
    with pytest.raises(TypeError):
        to_json({"when": object()})


@pytest.mark.parametrize(
    ("data", "message"), [(b'{"a":', "not JSON"), (b"\xff{}", "not UTF-8 at byte 0"), (b"", "not JSON")]
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "facts.json"
    path.write_bytes(data)
    with pytest.raises(RunDirectoryError, match=rf"facts\.json: {message}"):
        read_json(path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"gone\.json: cannot be read"):
        read_json(tmp_path / "gone.json")
