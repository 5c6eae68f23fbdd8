"""Tokens of the simulated engine: what it answers, and how it cuts text.

The answer to a prompt is a run of a fixed ring of random ids that begins at a place given by the prompt
(greedy decoding: same prompt, same answer). Ids and text of the ring are rendered once, so that the
cumulative events of SGLang cost two slices of bytes.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

RING_TOKENS = 1 << 15
VOCABULARY = 32_000
#: UTF-8 bytes of one token of a prompt.
TOKEN_BYTES = 4


def tokenize(text: str) -> np.ndarray:
    """Ids of a text: one token for each TOKEN_BYTES of UTF-8. Deterministic, without a vocabulary."""
    data = text.encode()
    data += b"\0" * (-len(data) % TOKEN_BYTES)
    return np.frombuffer(data, dtype="<u4")


class TokenRing:
    """An endless run of ids with its text, both as JSON-ready bytes."""

    def __init__(self, seed: int) -> None:
        chooser = np.random.Generator(np.random.PCG64(seed))
        self._ids = chooser.integers(32, VOCABULARY, size=RING_TOKENS, dtype=np.uint32)
        numbers = [b"%d," % token for token in self._ids.tolist()]
        pieces = [_piece(token) for token in self._ids.tolist()]
        self._number_ends = [0, *accumulate(map(len, numbers))]
        self._piece_ends = [0, *accumulate(map(len, pieces))]
        self._number_bytes = b"".join(numbers)
        self._piece_bytes = b"".join(pieces)

    def ids(self, start: int, count: int) -> np.ndarray:
        """`count` ids from the ring position `start` on."""
        return self._ids[np.arange(start, start + count) % RING_TOKENS]

    def id_bytes(self, start: int, count: int) -> bytes:
        """The same as decimal numbers with commas between them."""
        return self._cut(self._number_bytes, self._number_ends, start, count)[:-1]

    def text_bytes(self, start: int, count: int) -> bytes:
        """Their text; ASCII that needs no escaping in JSON."""
        return self._cut(self._piece_bytes, self._piece_ends, start, count)

    def _cut(self, data: bytes, ends: list[int], start: int, count: int) -> bytes:
        start %= RING_TOKENS
        parts = []
        while count > 0:
            step = min(count, RING_TOKENS - start)
            parts.append(data[ends[start] : ends[start + step]])
            start = 0
            count -= step
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _piece(token: int) -> bytes:
    """A short pronounceable piece, every third one with a space before it."""
    syllable = bytes((b"bdfgklmnprstvz"[token % 14], b"aeiou"[token // 14 % 5]))
    return b" " + syllable if token % 3 == 0 else syllable
