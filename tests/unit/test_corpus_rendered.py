"""corpus/rendered.py: a body is a slice of bytes that were made once."""

import pickle

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from raybench.corpus import rendered
from raybench.corpus.rendered import Rendered, escaped_lengths, render_ids

EDGES = [0, 1, 9, 10, 99, 100, 999_999_999, 10**9, 2**32 - 1]
id_values = st.integers(0, 2**32 - 1) | st.sampled_from(EDGES)
id_arrays = hnp.arrays(np.uint32, st.integers(0, 60), elements=id_values)


def joined(ids: np.ndarray) -> bytes:
    return ",".join(map(str, ids.tolist())).encode()


@given(ids=id_arrays, data=st.data())
def test_a_slice_is_the_ids_joined_by_commas(ids: np.ndarray, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(ids)))
    end = data.draw(st.integers(start, len(ids)))
    assert render_ids(ids).slice(start, end) == joined(ids[start:end])


def test_ids_of_many_blocks_are_rendered_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "BLOCK_TOKENS", 7)
    ids = np.arange(0, 100_000, 997, dtype=np.uint32)
    assert render_ids(ids).slice(0, len(ids)) == joined(ids)


def test_a_body_of_ids_is_json() -> None:
    ids = np.array(EDGES, np.uint32)
    assert orjson.loads(b"[" + render_ids(ids).slice(0, len(ids)) + b"]") == EDGES


def test_ids_that_may_not_be_written_to_are_rendered() -> None:
    ids = np.array(EDGES, np.uint32)
    ids.flags.writeable = False
    result = render_ids(ids)
    result.data.flags.writeable = False
    result.starts.flags.writeable = False
    assert result.slice(1, 4) == b"1,9,10"


def test_no_array_is_copied_when_it_is_shared_between_processes() -> None:
    result = render_ids(np.arange(1000, dtype=np.uint32))
    buffers: list[pickle.PickleBuffer] = []
    small = pickle.dumps(result, protocol=5, buffer_callback=buffers.append)
    assert sum(buffer.raw().nbytes for buffer in buffers) == result.data.nbytes + result.starts.nbytes
    back = pickle.loads(small, buffers=buffers)
    assert np.shares_memory(back.data, result.data)
    assert back.slice(998, 1000) == b"998,999"


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 1), (0, 4)])
def test_a_window_outside_the_corpus_is_our_bug(start: int, end: int) -> None:
    with pytest.raises(AssertionError, match="of 3 tokens"):
        render_ids(np.arange(3, dtype=np.uint32)).slice(start, end)


def test_starts_that_do_not_fit_the_data_are_our_bug() -> None:
    with pytest.raises(AssertionError, match="last token"):
        Rendered(np.zeros(3, np.uint8), np.array([0, 2], np.int64))


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.text(st.characters(max_codepoint=0x80)))
def test_every_character_takes_as_many_bytes_as_orjson_writes(text: str) -> None:
    assert escaped_lengths(text).tolist() == [len(orjson.dumps(character)) - 2 for character in text]
    assert int(escaped_lengths(text).sum()) == len(orjson.dumps(text)) - 2
