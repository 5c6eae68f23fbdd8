"""A seeded random corpus for rehearsals: ids without meaning, and words that stand for them.

Equal settings give equal ids on every machine and numpy (PCG64's stream is fixed by NEP 19; the draw
uses raw 64-bit output, since numpy may change how it turns it into ranges). Runs on the coordinator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raybench.corpus.rendered import Rendered
from raybench.scenario.schema import SyntheticCorpus

#: Ids below are unknown, begin and end of text in most vocabularies.
FIRST_ID = 3

_SYLLABLES = np.array(
    [[consonant, vowel] for consonant in b"bcdfghjklmnpqrstvwxz" for vowel in b"aeiou"], np.uint8
)


def synthetic_ids(corpus: SyntheticCorpus) -> NDArray[np.uint32]:
    """Uniform ids from FIRST_ID to below the vocabulary's size."""
    raw = np.random.PCG64(corpus.seed).random_raw(corpus.tokens)
    ids = (raw >> np.uint64(32)) * np.uint64(corpus.vocabulary - FIRST_ID) >> np.uint64(32)
    return (ids + np.uint64(FIRST_ID)).astype(np.uint32)


def synthetic_text(ids: NDArray[np.uint32], vocabulary: int) -> Rendered:
    """One word and a space for each id: as many syllables as tell all ids of the vocabulary apart."""
    base = len(_SYLLABLES)
    syllables = 1
    while base**syllables < vocabulary:
        syllables += 1
    words = np.full((len(ids), 2 * syllables + 1), ord(" "), np.uint8)
    rest = ids
    for place in range(syllables - 1, -1, -1):
        rest, digit = np.divmod(rest, np.uint32(base))
        words[:, 2 * place : 2 * place + 2] = _SYLLABLES[digit]
    starts = np.arange(len(ids) + 1, dtype=np.int64) * words.shape[1]
    return Rendered(words.reshape(-1), starts)
