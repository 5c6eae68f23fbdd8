"""corpus/tokens.py and id_files.py: ids from the files that people have, or what to do about them."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raybench.corpus.tokens import TokenCorpus, load_corpus
from raybench.errors import ConfigError
from raybench.scenario.schema import Corpus, SyntheticCorpus

IDS = [5, 0, 151_643, 2**32 - 1, 17]
SHA256 = hashlib.sha256(struct.pack("<5I", *IDS)).hexdigest()


def load(path: Path) -> TokenCorpus:
    return load_corpus(Corpus(path=path.name), path.parent)


def write_arrow(path: Path, table: pa.Table, *, stream: bool = False) -> Path:
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def write_npy(path: Path, values: np.ndarray) -> Path:
    np.save(path, values, allow_pickle=True)
    return path


def every_kind(folder: Path) -> list[Path]:
    folder.joinpath("list.json").write_text(json.dumps(IDS))
    folder.joinpath("corpus_ids.json").write_text(json.dumps({"source": "books", "ids": IDS}))
    pq.write_table(pa.table({"ids": pa.array(IDS, pa.int64()), "n": IDS}), folder / "ids.parquet")
    pq.write_table(pa.table({"token": pa.array(IDS, pa.uint32()), "word": ["w"] * 5}), folder / "one.parquet")
    return [
        write_npy(folder / "u4.npy", np.array(IDS, "<u4")),
        write_npy(folder / "i8.npy", np.array(IDS, "<i8")),
        write_npy(folder / "big.npy", np.array(IDS, ">u8")),
        write_arrow(folder / "file.arrow", pa.table({"ids": pa.array(IDS, pa.uint32())})),
        write_arrow(folder / "stream.arrow", pa.table({"ids": pa.array(IDS, pa.int64())}), stream=True),
        folder / "list.json",
        folder / "corpus_ids.json",
        folder / "ids.parquet",
        folder / "one.parquet",
    ]


def test_the_same_ids_come_out_of_every_kind_of_file(tmp_path: Path) -> None:
    for path in every_kind(tmp_path):
        corpus = load(path)
        assert corpus.ids.tolist() == IDS, path
        assert corpus.ids.dtype == np.uint32
        assert corpus.sha256 == SHA256, path
        assert (corpus.name, corpus.tokens, corpus.text) == (path.name, 5, None)


def test_uint32_files_stay_on_disk(tmp_path: Path) -> None:
    corpus = load(write_npy(tmp_path / "ids.npy", np.arange(10, dtype=np.uint32)))
    assert type(corpus.ids) is np.ndarray, "a subclass would be copied by the object store"
    assert isinstance(corpus.ids.base, np.memmap)
    assert not corpus.ids.flags.writeable


def test_an_absolute_path_does_not_start_at_the_scenario(tmp_path: Path) -> None:
    path = write_npy(tmp_path / "ids.npy", np.arange(10, dtype=np.uint32))
    assert load_corpus(Corpus(path=str(path)), Path("/nowhere")).tokens == 10


def test_a_synthetic_corpus_has_ids_and_text() -> None:
    settings = Corpus(synthetic=SyntheticCorpus(tokens=300, vocabulary=1000, seed=3))
    first, again = load_corpus(settings, Path()), load_corpus(settings, Path())
    assert first.sha256 == again.sha256
    assert first.name == "synthetic-300x1000-seed3"
    assert first.text is not None
    assert first.text.tokens == 300


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert str(path) in str(refused.value)
    return str(refused.value)


def test_a_missing_file_tells_the_way_out(tmp_path: Path) -> None:
    message = refusal(tmp_path / "gone.npy")
    assert "no such corpus file" in message
    assert "raybench corpus build" in message


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([1.0, 2.0]), "dtype float64"),
        (np.array([True, False]), "dtype bool"),
        (np.array([1, "x"], dtype=object), "not a readable .npy file"),
        (np.zeros((2, 3), np.int32), "shape (2, 3)"),
        (np.array(7), "0 dimensions"),
        (np.array([], np.int32), "the corpus is empty"),
        (np.array([4, 5, -2]), "the id at position 2 is out of range; got: -2; allowed: 0..4294967295"),
        (np.array([1, 2**32]), "the id at position 1 is out of range; got: 4294967296"),
    ],
)
def test_values_that_are_no_token_ids_are_refused(tmp_path: Path, values: np.ndarray, expected: str) -> None:
    assert expected in refusal(write_npy(tmp_path / "ids.npy", values))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2", "not JSON"),
        ("[]", "the corpus is empty"),
        ('{"tokens": [1]}', 'got: dict; allowed: a list, or {"ids": [...]}'),
        ("[1, 2.5]", "position 1 is no whole number; got: 2.5"),
        ("[true]", "position 0 is no whole number; got: True"),
        ("[[1, 2], [3]]", "position 0 is no whole number; got: [1, 2]"),
        ('["7"]', "position 0 is no whole number; got: '7'"),
        ("[3, -1]", "position 1 is out of range; got: -1"),
        ("[18446744073709551615, -1]", "position 0 is out of range; got: 18446744073709551615"),
    ],
)
def test_json_that_is_no_list_of_token_ids_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "ids.json"
    path.write_text(text)
    assert expected in refusal(path)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (pa.table({"a": [1], "b": [2]}), "2 columns of integers to choose from; got: a: int64, b: int64"),
        (pa.table({"text": ["x"]}), "0 columns of integers"),
        (pa.table({"ids": [[1, 2]]}), "column 'ids' is not one of integers; got: list<"),
        (pa.table({"ids": pa.array([1, None, 3])}), "column 'ids' has 1 nulls"),
        (pa.table({"ids": pa.array([], pa.int32())}), "the corpus is empty"),
        (pa.table({"ids": [1, -9]}), "position 1 is out of range; got: -9"),
    ],
)
def test_a_table_without_one_column_of_ids_is_refused(tmp_path: Path, table: pa.Table, expected: str) -> None:
    pq.write_table(table, tmp_path / "ids.parquet")
    assert expected in refusal(tmp_path / "ids.parquet")
    assert expected in refusal(write_arrow(tmp_path / "ids.arrow", table))


@pytest.mark.parametrize("name", ["ids.npy", "ids.arrow", "ids.parquet", "ids.json"])
@pytest.mark.parametrize("data", [b"", b"\x93NUMPY\x01\x00", b"ARROW1\x00\x00", b"PAR1", b"no such format"])
def test_a_broken_file_is_refused_by_name(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert "not " in refusal(path)


def test_a_file_with_a_damaged_head_is_refused_by_name(tmp_path: Path) -> None:
    path = write_npy(tmp_path / "ids.npy", np.arange(1000, dtype=np.uint32))
    path.write_bytes(path.read_bytes().replace(b"(1000,)", b"(1000,("))
    assert "not a readable .npy file" in refusal(path)
    path = write_arrow(tmp_path / "ids.arrow", pa.table({"name": [1]}))
    path.write_bytes(path.read_bytes().replace(b"name", b"n\xffme"))
    assert "not a readable Arrow file" in refusal(path)


def test_a_cut_npy_file_is_refused(tmp_path: Path) -> None:
    path = write_npy(tmp_path / "ids.npy", np.arange(1000, dtype=np.uint32))
    path.write_bytes(path.read_bytes()[:-7])
    assert "not a readable .npy file" in refusal(path)


def test_an_unknown_kind_of_file_names_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("text")
    message = refusal(path)
    assert "got: .txt; try: " in message and "allowed: .npy, .arrow, .parquet, .json" in message
    assert "raybench corpus build" in message


def test_a_directory_that_was_not_built_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    assert "meta.json" in refusal(folder)


def test_json_that_would_fill_the_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(300 << 30)  # sparse
    with pytest.raises(
        ConfigError, match=r"huge\.json: too large to be read as JSON; got: 322122547200 bytes.*\.npy"
    ):
        load_corpus(Corpus(path=path.name), tmp_path)
