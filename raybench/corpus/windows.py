"""Which slice of the corpus each request sends: no server instance ever sees a first page twice.

A prefix cache matches from the start of a prompt only. So two windows may overlap as long as their
first pages differ, and a request is cold for certain if no request before it, to the same server
instance, began with the same tokens: not in this point, a prewarm, a retry, or an earlier run. The
ledger remembers the first page of every request, by content; the position in a corpus proves nothing,
since a text can stand in it twice and in other corpora too. Runs on the coordinator.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raybench.errors import ConfigError, ConfigProblem, WindowsExhausted
from raybench.records.files import append_whole, sync_folder, writing

#: Tokens by which two prompts must differ. Uniqueness on fewer tokens is stricter than on any larger
#: page of an engine; an engine with smaller pages can find at most this many less one in its cache.
FIRST_PAGE_TOKENS = 16
#: Windows start at multiples of this: a multiple of the usual page sizes.
STRIDE_TOKENS = 64
LOCK_TRIES = 500
LOCK_RETRY_S = 0.02

Pages = NDArray[np.uint32]
Starts = NDArray[np.int64]


class SeenPages:
    """First pages sent so far, as token ids, and which windows are still fresh beside them.

    A request shorter than a page is known by all its ids. Two requests are alike if one's page begins
    with the other's, so neither can be a cached prefix of the other, in whichever order they are sent.
    """

    def __init__(self) -> None:
        self._pages: dict[int, list[Pages]] = {}

    def add(self, pages: Pages) -> None:
        """Remember pages of equal length, shape (requests, page tokens)."""
        self._pages.setdefault(pages.shape[1], []).append(pages)

    def fresh_starts(self, ids: NDArray[np.uint32], input_tokens: int) -> Starts:
        """Starts of all windows that may still be sent, from the end of the corpus to its start.

        Of windows with equal first pages only the last in the corpus is given.
        """
        pages = candidate_pages(ids, input_tokens)
        unseen = np.ones(len(pages), np.bool_)
        for length, seen in self._pages.items():
            common = min(length, pages.shape[1])
            known = hash_pages(np.concatenate(seen)[:, :common])
            unseen &= np.isin(hash_pages(pages[:, :common]), known, invert=True)
        descending = np.flatnonzero(unseen)[::-1]
        _, first_of_equals = np.unique(hash_pages(pages[descending]), return_index=True)
        return descending[np.sort(first_of_equals)].astype(np.int64) * STRIDE_TOKENS


class WindowLedger:
    """Allocations to one server instance, on disk before anything of them is sent.

    The file has one JSON line an allocation and may hold several instances. It is locked while an
    allocation is made, and read up to its end then, so that several runs can share it. A torn last line
    belongs to an allocation that was never given out; it is cut off.
    """

    def __init__(
        self,
        path: Path,
        instance: str,
        *,
        unix_s: Callable[[], float] = time.time,
        wait_s: Callable[[float], None] = time.sleep,
    ) -> None:
        """Opens or makes the file. Raises ConfigError if it cannot be opened or holds a broken line."""
        self.path = path
        self.instance = instance
        self._unix_s = unix_s
        self._wait_s = wait_s
        self._seen = SeenPages()
        self._read_bytes = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(str(path), f"the window ledger cannot be opened: {error.strerror}") from None
        sync_folder(path.parent)
        with self._locked():
            self._catch_up()

    def take(
        self,
        corpus_ids: NDArray[np.uint32],
        count: int,
        input_tokens: int,
        purpose: str,
        *,
        corpus_sha256: str | None = None,
    ) -> Starts:
        """Starts of `count` windows of `input_tokens`, whose first pages this instance never saw.

        The highest free starts are taken, so that short windows leave the low ones, the only ones where
        long windows fit. The same corpus and ledger always give the same windows. Nothing is taken and
        WindowsExhausted raised if there are too few, RunDirectoryError if the disk refuses.
        """
        assert count >= 0 and input_tokens >= 1, (count, input_tokens)
        if count == 0:
            return np.empty(0, np.int64)
        with self._locked():
            self._catch_up()
            fresh = self._seen.fresh_starts(corpus_ids, input_tokens)
            if len(fresh) < count:
                raise WindowsExhausted(self.instance, count, len(fresh), input_tokens)
            starts = fresh[:count]
            pages = candidate_pages(corpus_ids, input_tokens)[starts // STRIDE_TOKENS]
            self._append(starts, pages, input_tokens, purpose, corpus_sha256)
        self._seen.add(pages)
        return starts

    def close(self) -> None:
        self._file.close()

    def _append(
        self, starts: Starts, pages: Pages, input_tokens: int, purpose: str, corpus_sha256: str | None
    ) -> None:
        line = {
            "unix_s": self._unix_s(),
            "instance": self.instance,
            "purpose": purpose,
            "corpus_sha256": corpus_sha256,
            "input_tokens": input_tokens,
            "first_start": int(starts[0]),
            "last_start": int(starts[-1]),
            "count": len(starts),
            "page_tokens": pages.shape[1],
            "pages": pages.astype("<u4").tobytes().hex(),
        }
        data = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        append_whole(self._file.fileno(), data, self.path)
        with writing(self.path):
            os.fsync(self._file.fileno())
        self._read_bytes += len(data)

    def _catch_up(self) -> None:
        """Read what was appended since the last look; needs the lock."""
        size = os.fstat(self._file.fileno()).st_size
        if size < self._read_bytes:
            raise self._broken("it became shorter while it was in use")
        data = os.pread(self._file.fileno(), size - self._read_bytes, self._read_bytes)
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            self._file.truncate(size - len(torn))
        for line in whole.splitlines():
            self._read_line(line)
        self._read_bytes = size - len(torn)

    def _read_line(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            if entry["instance"] != self.instance:
                return
            ids = np.frombuffer(bytes.fromhex(entry["pages"]), "<u4").astype(np.uint32)
            self._seen.add(ids.reshape(entry["count"], entry["page_tokens"]))
        except (ValueError, KeyError, TypeError) as error:
            raise self._broken(f"a line cannot be read: {line[:80]!r}: {error}") from None

    def _broken(self, message: str) -> ConfigError:
        way_out = "restart the serving engine and move the ledger away: what it was sent is not known"
        return ConfigError(str(self.path), ConfigProblem(message, way_out=way_out))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclusive among processes and among ledgers of one process; freed when its holder dies."""
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                self._wait_s(LOCK_RETRY_S)
        else:
            limit_s = LOCK_TRIES * LOCK_RETRY_S
            raise ConfigError(str(self.path), f"another process held the window ledger for {limit_s:g} s")
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def candidate_pages(ids: NDArray[np.uint32], input_tokens: int) -> Pages:
    """First pages of all windows that fit: a view, shape (windows, min(16, input_tokens))."""
    page_tokens = min(FIRST_PAGE_TOKENS, input_tokens)
    if len(ids) < input_tokens:
        return np.empty((0, page_tokens), np.uint32)
    pages = np.lib.stride_tricks.sliding_window_view(ids, page_tokens)
    return pages[: len(ids) - input_tokens + 1 : STRIDE_TOKENS]


def hash_pages(pages: Pages) -> NDArray[np.uint64]:
    """A 64-bit polynomial hash of each row, over all rows at once.

    Not cryptographic and need not be: pages are compared by it in memory only, where a collision costs
    one window that is left out although it was fresh. The ledger keeps the ids themselves.
    """
    multiplier = np.uint64(0x9E3779B97F4A7C15)
    hashes = np.zeros(len(pages), np.uint64)
    for column in pages.T:
        hashes *= multiplier
        hashes += column
        hashes += np.uint64(1)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def corpus_need(requests: Mapping[int, int]) -> int:
    """Corpus tokens needed to send these requests (input tokens -> count) to one server instance.

    Windows of L tokens or more can only start at multiples of the stride up to the corpus' end less L,
    so for each L: need = L + stride x (windows of L or more - 1); the largest counts. Taking the highest
    free start reaches this in any order of requests. A corpus with repeated pages needs more.
    """
    need = at_least = 0
    for input_tokens, count in sorted(requests.items(), reverse=True):
        assert input_tokens >= 1 and count >= 0, (input_tokens, count)
        at_least += count
        if count:
            need = max(need, input_tokens + STRIDE_TOKENS * (at_least - 1))
    return need
