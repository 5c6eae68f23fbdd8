"""corpus/windows.py: no server instance is ever sent a first page twice (cases O-L2 and O-P3)."""

import fcntl
import itertools
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from raybench.corpus.synthetic import synthetic_ids
from raybench.corpus.windows import (
    FIRST_PAGE_TOKENS,
    LOCK_TRIES,
    STRIDE_TOKENS,
    SeenPages,
    WindowLedger,
    corpus_need,
)
from raybench.errors import EXIT_USAGE, ConfigError, WindowsExhausted
from raybench.scenario.schema import SyntheticCorpus

IDS = synthetic_ids(SyntheticCorpus(tokens=20_000, vocabulary=32_000, seed=1))


def ledger(path: Path, instance: str = "server-1") -> WindowLedger:
    return WindowLedger(path, instance, unix_s=lambda: 1.5)


def left_of(book: WindowLedger, ids: NDArray[np.uint32], input_tokens: int) -> int:
    """How many windows of this length could still be taken."""
    with pytest.raises(WindowsExhausted) as refused:
        book.take(ids, len(ids), input_tokens, "more than any corpus has")
    return refused.value.left


def alike(first: list[int], second: list[int]) -> bool:
    """Whether one prompt's first page could be found in a cache that holds the other."""
    common = min(len(first), len(second), FIRST_PAGE_TOKENS)
    return first[:common] == second[:common]


def prompts(ids: np.ndarray, starts: np.ndarray, input_tokens: int) -> list[list[int]]:
    return [ids[start : start + input_tokens].tolist() for start in starts]


def test_windows_are_taken_from_the_end_downwards(tmp_path: Path) -> None:
    starts = ledger(tmp_path / "l.jsonl").take(IDS[:1000], 3, 100, "load")
    assert starts.dtype == np.int64
    assert starts.tolist() == [896, 832, 768]


def test_a_window_ends_inside_the_corpus(tmp_path: Path) -> None:
    assert ledger(tmp_path / "l.jsonl").take(IDS[:964], 1, 900, "load").tolist() == [64]
    assert ledger(tmp_path / "m.jsonl").take(IDS[:963], 1, 900, "load").tolist() == [0]


def point(book: WindowLedger) -> list[np.ndarray]:
    """One warm-up request, then eight measured ones."""
    return [book.take(IDS, 1, 512, "prewarm"), book.take(IDS, 8, 512, "load")]


def test_o_l2_two_equal_points_send_18_distinct_prompts_and_the_same_again_on_a_fresh_server(
    tmp_path: Path,
) -> None:
    book = ledger(tmp_path / "first.jsonl")
    starts = np.concatenate(point(book) + point(book))
    sent = prompts(IDS, starts, 512)
    assert len(sent) == 18
    assert len({tuple(prompt) for prompt in sent}) == 18
    for first, second in itertools.combinations(sent, 2):
        assert first[:64] != second[:64]
        assert not alike(first, second)
    fresh = ledger(tmp_path / "second.jsonl")
    assert np.concatenate(point(fresh) + point(fresh)).tolist() == starts.tolist()


def test_o_p3_a_retest_draws_text_that_the_server_was_never_sent_until_none_is_left(tmp_path: Path) -> None:
    sent: list[list[int]] = []
    ids = IDS[:1024]
    for _ in range(7):
        # Each round is another process: the same server, an earlier run's ledger.
        starts = ledger(tmp_path / "l.jsonl").take(ids, 2, 128, "retest")
        fresh = prompts(ids, starts, 128)
        assert not any(alike(new, old) for new in fresh for old in sent)
        sent += fresh
    with pytest.raises(WindowsExhausted) as exhausted:
        ledger(tmp_path / "l.jsonl").take(ids, 2, 128, "retest")
    assert (exhausted.value.needed, exhausted.value.left, exhausted.value.input_tokens) == (2, 1, 128)
    assert exhausted.value.exit_code == EXIT_USAGE
    assert "larger corpus" in str(exhausted.value)
    assert str(pickle.loads(pickle.dumps(exhausted.value))) == str(exhausted.value)


def test_a_refused_allocation_takes_nothing(tmp_path: Path) -> None:
    book = ledger(tmp_path / "l.jsonl")
    with pytest.raises(WindowsExhausted):
        book.take(IDS[:256], 9, 64, "load")
    assert (tmp_path / "l.jsonl").read_bytes() == b""
    assert len(book.take(IDS[:256], 4, 64, "load")) == 4


def test_repeated_text_is_sent_once(tmp_path: Path) -> None:
    once = IDS[:256]
    twice = np.concatenate([once, once])
    book = ledger(tmp_path / "l.jsonl")
    assert left_of(book, twice, 64) == 4
    assert book.take(twice, 4, 64, "load").tolist() == [448, 384, 320, 256]
    assert left_of(book, twice, 64) == 0
    assert len(SeenPages().fresh_starts(twice, 64)) == 4


def test_equal_text_of_another_corpus_counts_as_sent(tmp_path: Path) -> None:
    first, second = IDS[:640], np.concatenate([IDS[640:704], IDS[:640]])
    book = ledger(tmp_path / "l.jsonl")
    book.take(first, 10, 16, "load")
    assert book.take(second, 1, 16, "load").tolist() == [0]
    assert left_of(book, second, 16) == 0


def test_another_server_instance_has_seen_nothing(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    first = ledger(path, "server-1").take(IDS, 5, 64, "load")
    assert ledger(path, "server-2").take(IDS, 5, 64, "load").tolist() == first.tolist()
    assert not set(ledger(path, "server-1").take(IDS, 5, 64, "load")) & set(first.tolist())


@pytest.mark.parametrize("lengths", [(8, 100), (100, 8), (3, 8), (8, 3)])
def test_a_request_shorter_than_a_page_counts_in_both_directions(tmp_path: Path, lengths: tuple[int, int]) -> None:
    ids = np.tile(IDS[:STRIDE_TOKENS], 4)
    ids[np.arange(4) * STRIDE_TOKENS + 10] = [1, 2, 3, 4]
    book = ledger(tmp_path / "l.jsonl")
    book.take(ids, 1, lengths[0], "load")
    assert left_of(book, ids, lengths[1]) == 0


def test_short_windows_leave_the_low_starts_to_long_ones(tmp_path: Path) -> None:
    book = ledger(tmp_path / "l.jsonl")
    tokens = corpus_need({1024: 10, 8192: 2})
    book.take(IDS[:tokens], 10, 1024, "load")
    assert book.take(IDS[:tokens], 2, 8192, "load").tolist() == [64, 0]


requests = st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 6)), max_size=6)


@given(requests=requests)
def test_the_corpus_need_is_enough_in_any_order_and_one_token_less_is_not(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("need")
    counts: dict[int, int] = {}
    for input_tokens, count in requests:
        counts[max(input_tokens, 4)] = counts.get(max(input_tokens, 4), 0) + count
    need = corpus_need(counts)
    book = ledger(folder / "enough.jsonl")
    for input_tokens, count in counts.items():
        book.take(IDS[:need], count, input_tokens, "load")
    if need:
        scarce = ledger(folder / "scarce.jsonl")
        with pytest.raises(WindowsExhausted):
            for input_tokens, count in counts.items():
                scarce.take(IDS[: need - 1], count, input_tokens, "load")


def test_the_corpus_need_of_the_first_seeds_largest_point() -> None:
    assert corpus_need({16384: 128}) == 16384 + 127 * 64
    assert corpus_need({}) == 0
    assert corpus_need({1024: 0}) == 0
    assert corpus_need({917_504: 2, 1024: 16}) == 917_504 + 64


takes = st.lists(
    st.tuples(
        st.integers(1, 5), st.sampled_from([1, 2, 5, 15, 16, 17, 64, 200]), st.booleans(), st.integers(0, 1)
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(takes=takes, vocabulary=st.sampled_from([2, 3, 50_000]), seed=st.integers(0, 3))
def test_no_two_prompts_are_alike_over_any_takes_reopenings_and_corpora(
    tmp_path_factory: pytest.TempPathFactory,
    takes: list[tuple[int, int, bool, int]],
    vocabulary: int,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "l.jsonl"
    random = np.random.default_rng(seed)
    text = random.integers(0, vocabulary, 1200).astype(np.uint32)
    corpora = [text, np.concatenate([text[256:512], text[64:256], text[600:]])]
    book = ledger(path)
    sent: list[list[int]] = []
    for count, input_tokens, reopen, which in takes:
        ids = corpora[which]
        if reopen:
            book = ledger(path)
        left = left_of(book, ids, input_tokens)
        if left < count:
            with pytest.raises(WindowsExhausted):
                book.take(ids, count, input_tokens, "load")
            continue
        starts = book.take(ids, count, input_tokens, "load")
        assert left_of(book, ids, input_tokens) <= left - count
        assert all(start % STRIDE_TOKENS == 0 and start + input_tokens <= len(ids) for start in starts)
        sent += prompts(ids, starts, input_tokens)
    for first, second in itertools.combinations(sent, 2):
        assert not alike(first, second)


def test_the_ledgers_line_says_what_was_sent_and_is_synced_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = ledger(tmp_path / "l.jsonl")
    synced: list[bytes] = []
    monkeypatch.setattr("raybench.corpus.windows.os.fsync", lambda file: synced.append(book.path.read_bytes()))
    ids = np.arange(256, dtype=np.uint32)
    book.take(ids, 2, 20, "a/16k/c1 load", corpus_sha256="abc")
    assert synced == [book.path.read_bytes()]
    pages = [*range(192, 208), *range(128, 144)]
    assert json.loads(book.path.read_bytes()) == {
        "unix_s": 1.5,
        "instance": "server-1",
        "purpose": "a/16k/c1 load",
        "corpus_sha256": "abc",
        "input_tokens": 20,
        "first_start": 192,
        "last_start": 128,
        "count": 2,
        "page_tokens": 16,
        "pages": np.array(pages, "<u4").tobytes().hex(),
    }


def test_nothing_is_written_for_no_windows(tmp_path: Path) -> None:
    assert ledger(tmp_path / "l.jsonl").take(IDS, 0, 64, "prewarm").tolist() == []
    assert (tmp_path / "l.jsonl").read_bytes() == b""


@given(cut=st.integers(1, 10_000))
def test_a_torn_last_line_was_never_sent_and_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "l.jsonl"
    book = ledger(path)
    book.take(IDS, 2, 64, "load")
    whole = path.read_bytes()
    second = book.take(IDS, 3, 64, "load")
    torn = path.read_bytes()[: max(len(whole), path.stat().st_size - cut)]
    path.write_bytes(torn)
    again = ledger(path)
    assert path.read_bytes() == whole
    assert again.take(IDS, 3, 64, "load").tolist() == second.tolist()


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"instance":"server-1","pages":"00","count":1,"page_tokens":16}'])
def test_a_broken_line_is_an_error_since_what_was_sent_is_unknown(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(ConfigError, match=r"l\.jsonl: a line cannot be read.*restart the serving engine"):
        ledger(path)


def test_a_ledger_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    book = ledger(tmp_path / "l.jsonl")
    book.take(IDS, 2, 64, "load")
    book.path.write_bytes(b"")
    with pytest.raises(ConfigError, match="became shorter"):
        book.take(IDS, 2, 64, "load")


def test_a_ledger_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        ledger(tmp_path)


def test_two_runs_at_once_on_one_ledger_share_no_window(tmp_path: Path) -> None:
    one, other = ledger(tmp_path / "l.jsonl"), ledger(tmp_path / "l.jsonl")
    starts = [start for _ in range(3) for book in (one, other) for start in book.take(IDS, 4, 64, "load")]
    assert len(set(starts)) == 24


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A ledger that somebody else holds locked."""
    path = tmp_path / "l.jsonl"
    path.write_bytes(b"")
    file = os.open(path, os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    yield path, file
    os.close(file)


def test_a_held_ledger_is_waited_for(held: tuple[Path, int]) -> None:
    path, file = held
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            fcntl.flock(file, fcntl.LOCK_UN)

    book = WindowLedger(path, "server-1", wait_s=wait)
    assert len(waits) == 3
    assert len(book.take(IDS, 1, 64, "load")) == 1


def test_a_ledger_that_stays_held_is_an_error(held: tuple[Path, int]) -> None:
    waits: list[float] = []
    with pytest.raises(ConfigError, match="held the window ledger for 10 s"):
        WindowLedger(held[0], "server-1", wait_s=waits.append)
    assert len(waits) == LOCK_TRIES
