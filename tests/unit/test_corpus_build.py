"""corpus/build.py: text files and a tokenizer become ids, and text that is cut at characters only."""

import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from raybench.corpus.build import build_corpus
from raybench.corpus.tokens import TokenCorpus, load_corpus
from raybench.errors import ConfigError
from raybench.scenario.schema import Corpus

TEXT = 'One "quoted" line,\n\ttab, back\\slash \x01 control.\r\nNaïve 名前 🙂 end\n'


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer without merges: one token a byte, so characters are split over tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def word_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words between blanks: the blanks are dropped by the tokenizer."""
    words = ["[UNK]", "One", "line,", "end"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def loaded(folder: Path) -> TokenCorpus:
    return load_corpus(Corpus(path=folder.name), folder.parent)


def decoded(corpus: TokenCorpus, start: int, end: int) -> str:
    assert corpus.text is not None
    text = orjson.loads(b'"' + corpus.text.slice(start, end) + b'"')
    assert isinstance(text, str)
    return text


def test_a_built_corpus_loads_with_its_ids_and_text(tmp_path: Path, byte_tokenizer: Path) -> None:
    files = [write(tmp_path / "a.txt", TEXT), write(tmp_path / "b.txt", "more\n")]
    built = build_corpus(files, byte_tokenizer, tmp_path / "books")
    corpus = loaded(tmp_path / "books")
    expected = Tokenizer.from_file(str(byte_tokenizer)).encode(TEXT + "more\n", add_special_tokens=False).ids
    assert corpus.ids.tolist() == expected
    assert (built.tokens, built.sha256) == (len(expected), corpus.sha256)
    assert decoded(corpus, 0, corpus.tokens) == TEXT + "more\n"
    assert corpus.name == "books"
    meta = json.loads((tmp_path / "books" / "meta.json").read_text())
    assert meta["files"] == ["a.txt", "b.txt"]


def test_a_cut_anywhere_gives_whole_characters_that_join_to_the_text(tmp_path: Path, byte_tokenizer: Path) -> None:
    build_corpus([write(tmp_path / "a.txt", TEXT)], byte_tokenizer, tmp_path / "books")
    corpus = loaded(tmp_path / "books")
    for cut in range(corpus.tokens + 1):
        assert decoded(corpus, 0, cut) + decoded(corpus, cut, corpus.tokens) == TEXT
    for start, end in itertools.combinations(range(0, corpus.tokens, 3), 2):
        assert decoded(corpus, start, end) in TEXT


def test_blanks_that_the_tokenizer_drops_stay_in_the_text(tmp_path: Path, word_tokenizer: Path) -> None:
    build_corpus([write(tmp_path / "a.txt", "  One  line, \n end\n")], word_tokenizer, tmp_path / "books")
    corpus = loaded(tmp_path / "books")
    assert corpus.ids.tolist() == [1, 2, 3]
    assert [decoded(corpus, i, i + 1) for i in range(3)] == ["  One  ", "line, \n ", "end\n"]


@given(
    text=st.text(st.sampled_from('ab \n"\\é名🙂'), max_size=60),
    block_bytes=st.integers(1, 20),
)
def test_the_size_of_blocks_changes_nothing_for_a_byte_tokenizer(
    tmp_path_factory: pytest.TempPathFactory, byte_tokenizer: Path, text: str, block_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    build_corpus([write(folder / "a.txt", text + "x")], byte_tokenizer, folder / "c", block_bytes=block_bytes)
    corpus = loaded(folder / "c")
    assert corpus.tokens == len((text + "x").encode())
    assert decoded(corpus, 0, corpus.tokens) == text + "x"


@pytest.mark.parametrize(
    ("data", "offset", "byte"),
    [
        (b"plain \xff text", 6, "0xff"),
        ("é".encode() * 10 + b"\xe9 latin", 20, "0xe9"),
        (b"cut off " + "名".encode()[:2], 8, "0xe5"),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 3, 1000])
def test_text_that_is_not_utf8_is_refused_with_its_place(
    tmp_path: Path, byte_tokenizer: Path, data: bytes, offset: int, byte: str, block_bytes: int
) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=rf"latin\.txt: not UTF-8 at byte offset {offset}; got: byte {byte}"):
        build_corpus([path], byte_tokenizer, tmp_path / "c", block_bytes=block_bytes)
    assert [entry.name for entry in tmp_path.iterdir()] == ["latin.txt"]


def test_an_existing_directory_is_never_overwritten(tmp_path: Path, byte_tokenizer: Path) -> None:
    with pytest.raises(ConfigError, match="exists already"):
        build_corpus([write(tmp_path / "a.txt", TEXT)], byte_tokenizer, tmp_path)


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path, byte_tokenizer: Path) -> None:
    text = write(tmp_path / "a.txt", TEXT)
    with pytest.raises(ConfigError, match=r"a\.txt/c: cannot be written; got: Not a directory"):
        build_corpus([text], byte_tokenizer, text / "c")


def test_files_without_tokens_are_refused(tmp_path: Path, byte_tokenizer: Path) -> None:
    with pytest.raises(ConfigError, match="no tokens"):
        build_corpus([write(tmp_path / "a.txt", "")], byte_tokenizer, tmp_path / "c")
    with pytest.raises(ConfigError, match="no text files"):
        build_corpus([], byte_tokenizer, tmp_path / "c")


def test_a_missing_text_file_is_refused_by_name(tmp_path: Path, byte_tokenizer: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.txt: cannot be read"):
        build_corpus([tmp_path / "gone.txt"], byte_tokenizer, tmp_path / "c")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ('{"a": 1}', "no `model`"),
        ('{"model": {"type": "other"}}', "cannot be read"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str | None, expected: str) -> None:
    path = tmp_path / "tokenizer_config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=rf"tokenizer_config\.json: .*{expected}"):
        build_corpus([write(tmp_path / "a.txt", TEXT)], path, tmp_path / "c")


def test_a_missing_package_tells_how_to_get_it(
    tmp_path: Path, byte_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match=r"pip install 'raybench\[corpus\]'"):
        build_corpus([write(tmp_path / "a.txt", TEXT)], byte_tokenizer, tmp_path / "c")


def test_a_built_corpus_that_was_changed_is_refused(tmp_path: Path, byte_tokenizer: Path) -> None:
    folder = tmp_path / "c"
    build_corpus([write(tmp_path / "a.txt", TEXT)], byte_tokenizer, folder)
    ids = np.load(folder / "ids.npy")
    np.save(folder / "ids.npy", ids[::-1])
    with pytest.raises(ConfigError, match="changed since it was built"):
        loaded(folder)


@pytest.mark.parametrize("damage", ["text.escaped", "text_starts.npy", "ids.npy", "meta.json"])
def test_a_built_corpus_with_a_missing_file_is_refused(tmp_path: Path, byte_tokenizer: Path, damage: str) -> None:
    folder = tmp_path / "c"
    build_corpus([write(tmp_path / "a.txt", TEXT)], byte_tokenizer, folder)
    (folder / damage).unlink()
    with pytest.raises(ConfigError, match=re.escape(damage)):
        loaded(folder)
