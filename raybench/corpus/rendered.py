"""Corpus tokens as the bytes that go into request bodies, made once: a body is then one slice.

Only numpy arrays inside, so that Ray's object store hands them to every worker of a node without a
copy. Built by the coordinator, sliced by load workers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Tokens rendered at a time: bounds the scratch memory to some tens of MB.
BLOCK_TOKENS = 1 << 20


@dataclass(frozen=True, eq=False)
class Rendered:
    """All tokens of a corpus as bytes, and where each token begins.

    data: uint8. starts: int64, one more entry than tokens, never descending; token i is
    data[starts[i] : starts[i + 1]]. separator_bytes: what stands behind each token and is cut off at the
    end of a slice (1 for comma-joined ids, 0 for text). A text token that begins inside a character
    begins with that character's end, so cuts never split a character or an escape.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    separator_bytes: int = 0

    def __post_init__(self) -> None:
        assert len(self.starts) >= 1, "starts has one entry more than there are tokens"
        assert int(self.starts[-1]) == len(self.data), "the last token ends where the data ends"

    @property
    def tokens(self) -> int:
        return len(self.starts) - 1

    def slice(self, start: int, end: int) -> bytes:
        """The bytes of tokens[start:end]; copies only these."""
        assert 0 <= start <= end <= self.tokens, f"window {start}:{end} of {self.tokens} tokens"
        if start == end:
            return b""
        return self.data[self.starts[start] : self.starts[end] - self.separator_bytes].tobytes()


def render_ids(ids: NDArray[np.uint32]) -> Rendered:
    """Token ids in decimal, joined by commas, as they stand inside a JSON list."""
    blocks = range(0, len(ids), BLOCK_TOKENS)
    starts = np.zeros(len(ids) + 1, np.int64)
    for first in blocks:
        block = ids[first : first + BLOCK_TOKENS]
        lengths = starts[first + 1 : first + 1 + len(block)]
        np.add(_digit_counts(block), 1, out=lengths)
    np.cumsum(starts, out=starts)
    data = np.empty(int(starts[-1]), np.uint8)
    for first in blocks:
        block = ids[first : first + BLOCK_TOKENS]
        data[starts[first] : starts[first + len(block)]] = _render_block(block)
    return Rendered(data, starts, separator_bytes=1)


def _digit_counts(ids: NDArray[np.uint32]) -> NDArray[np.uint8]:
    counts = np.ones(len(ids), np.uint8)
    for power in range(1, 10):
        counts += ids >= 10**power
    return counts


def _render_block(ids: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Each id as a row of right-aligned digits and a comma; rows without their padding, end to end."""
    counts = _digit_counts(ids)
    width = int(counts.max(initial=1))
    rows = np.empty((len(ids), width + 1), np.uint8)
    rest = ids.copy()
    for column in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, np.uint32(10))
        rows[:, column] = digit + ord("0")
    rows[:, width] = ord(",")
    used = np.arange(width + 1) >= (width - counts)[:, np.newaxis]
    return rows[used]


def escaped_lengths(text: str) -> NDArray[np.int64]:
    """Bytes that each character takes in JSON-escaped UTF-8 as orjson writes it: shape (characters,)."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    lengths = np.ones(len(codes), np.int64)
    for first_code in (0x80, 0x800, 0x10000):
        lengths += codes >= first_code
    lengths[codes < 0x20] = len(rb"\u0000")
    lengths[np.isin(codes, [ord(character) for character in '"\\\b\t\n\f\r'])] = len(rb"\n")
    return lengths
