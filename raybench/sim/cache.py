"""Prefix caches of the simulated engine: the radix tree on the device and the host tier behind it.

Pure; counts pages, holds no text. A page is named by a key that stands for the whole prefix up to and
including that page, so a tree of pages is a dictionary: a page is cached only if its key is in it.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

U64 = np.uint64


class PrefixHasher:
    """Keys of prefixes: 64-bit, equal exactly when all ids up to the end of that page are equal.

    (Equal by chance with probability 2**-64.) Key i is the sum over pages 0..i of a mixed page hash times
    a random odd number of that position, modulo 2**64, so that it is computed without a loop over pages.
    """

    def __init__(self, page_tokens: int) -> None:
        self._page = page_tokens
        self._random = np.random.Generator(np.random.PCG64(page_tokens))
        self._within = self._odd(page_tokens)
        self._across = self._odd(1024)

    def keys(self, ids: np.ndarray) -> list[int]:
        """One key for each full page of `ids`."""
        count = len(ids) // self._page
        if count > len(self._across):
            more = max(count, 2 * len(self._across)) - len(self._across)
            self._across = np.concatenate((self._across, self._odd(more)))
        pages = ids[: count * self._page].reshape(count, self._page).astype(U64) + U64(1)
        hashes = (pages * self._within).sum(axis=1, dtype=U64)
        hashes ^= hashes >> U64(29)
        hashes *= U64(0xBF58476D1CE4E5B9)
        hashes ^= hashes >> U64(32)
        keys: list[int] = np.cumsum(hashes * self._across[:count], dtype=U64).tolist()
        return keys

    def _odd(self, count: int) -> np.ndarray:
        return self._random.integers(0, 2**64, size=count, dtype=U64) | U64(1)


class _Page:
    __slots__ = ("children", "key", "locks", "parent", "used")

    def __init__(self, key: int, parent: _Page | None, used: float) -> None:
        self.key = key
        self.parent = parent
        self.used = used
        self.children = 0
        self.locks = 0


class DeviceCache:
    """The radix tree. Pages in use are locked; the rest is evicted leaf by leaf, oldest first."""

    def __init__(self) -> None:
        self._pages: dict[int, _Page] = {}
        self._leaves: dict[int, _Page] = {}
        self.evictable = 0

    def __len__(self) -> int:
        return len(self._pages)

    def match(self, keys: Sequence[int], now: float) -> int:
        """How many leading pages are cached; marks them as used."""
        count = 0
        for key in keys:
            page = self._pages.get(key)
            if page is None:
                break
            page.used = now
            count += 1
        return count

    def insert(self, keys: Sequence[int], now: float) -> list[int]:
        """Put the prefix of these pages into the tree; gives the keys that were new."""
        new = []
        parent = None
        for key in keys:
            page = self._pages.get(key)
            if page is None:
                page = self._pages[key] = self._leaves[key] = _Page(key, parent, now)
                self.evictable += 1
                if parent is not None:
                    parent.children += 1
                    self._leaves.pop(parent.key, None)
                new.append(key)
            page.used = now
            parent = page
        return new

    def lock(self, keys: Sequence[int]) -> None:
        for key in keys:
            page = self._pages[key]
            if page.locks == 0:
                self.evictable -= 1
            page.locks += 1

    def unlock(self, keys: Sequence[int]) -> None:
        for key in keys:
            page = self._pages[key]
            page.locks -= 1
            assert page.locks >= 0, "a page was unlocked more often than locked"
            if page.locks == 0:
                self.evictable += 1

    def evict(self, count: int) -> int:
        """Drop up to `count` unlocked pages, least recently used leaves first; gives how many went."""
        heap = [(page.used, key) for key, page in self._leaves.items() if page.locks == 0]
        heapq.heapify(heap)
        gone = 0
        while heap and gone < count:
            _, key = heapq.heappop(heap)
            page = self._pages.pop(key)
            del self._leaves[key]
            gone += 1
            parent = page.parent
            if parent is not None:
                parent.children -= 1
                if parent.children == 0:
                    self._leaves[parent.key] = parent
                    if parent.locks == 0:
                        heapq.heappush(heap, (parent.used, parent.key))
        self.evictable -= gone
        return gone

    def clear(self) -> None:
        assert self.evictable == len(self._pages), "the tree was cleared under a running request"
        self._pages.clear()
        self._leaves.clear()
        self.evictable = 0


class HostCache:
    """The host tier: copies of device pages, least recently used first out. Capacity 0 turns it off."""

    def __init__(self, capacity_pages: int) -> None:
        self.capacity = capacity_pages
        self._keys: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def store(self, keys: Sequence[int]) -> int:
        """Back up these pages (root first); gives how many were not there yet."""
        if self.capacity == 0:
            return 0
        before = len(self._keys)
        for key in keys:
            self._keys[key] = None
        new = len(self._keys) - before
        # Roots end up youngest: a prefix without its first page is of no use.
        for key in reversed(keys):
            self._keys.move_to_end(key)
        while len(self._keys) > self.capacity:
            self._keys.popitem(last=False)
        return new

    def match(self, keys: Sequence[int]) -> int:
        """How many leading pages of `keys` are held."""
        count = 0
        for key in keys:
            if key not in self._keys:
                break
            count += 1
        return count

    def clear(self) -> None:
        self._keys.clear()
