"""Text that a simulated engine holds from its start, in a tier that no flush clears.

Which windows of the corpus a run will send is the ledger's business. So the engine holds "the first n
windows that come": each different window of the corpus that arrives, until there were n of them. With n =
the requests of a first attempt (its prewarm included), that attempt hits and fresh text does not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from raybench.corpus.tokens import load_corpus
from raybench.corpus.windows import FIRST_PAGE_TOKENS, STRIDE_TOKENS, candidate_pages, hash_pages
from raybench.scenario.schema import Corpus
from raybench.scenario.values import Model


class PreloadSpec(Model):
    """The JSON of `--preload-json`. base: folder of a relative corpus path. windows None: every window."""

    corpus: Corpus
    base: str = "."
    windows: Annotated[int, Field(ge=0)] | None = None


class Preload:
    """ids: the corpus, uint32. windows: how many of its windows are held; None for all of them."""

    def __init__(self, ids: NDArray[np.uint32], windows: int | None) -> None:
        self._ids = ids
        self._windows = windows
        pages = hash_pages(candidate_pages(ids, FIRST_PAGE_TOKENS))
        self._starts = {page: at * STRIDE_TOKENS for at, page in enumerate(pages.tolist())}
        self._held: set[int] = set()

    def held_tokens(self, prompt: NDArray[np.uint32]) -> int:
        """Leading tokens of this prompt that are held; a window that is new counts as one of the n."""
        if len(prompt) < FIRST_PAGE_TOKENS:
            return 0
        page = int(hash_pages(prompt[None, :FIRST_PAGE_TOKENS])[0])
        start = self._starts.get(page)
        if start is None:
            return 0
        if start not in self._held:
            if self._windows is not None and len(self._held) >= self._windows:
                return 0
            self._held.add(start)
        text = self._ids[start : start + len(prompt)]
        differs = np.flatnonzero(text != prompt[: len(text)])
        return int(differs[0]) if len(differs) else len(text)


def load_preload(text: str) -> Preload:
    """From the JSON of `--preload-json`. Raises pydantic.ValidationError, ConfigError."""
    spec = PreloadSpec.model_validate(json.loads(text))
    return Preload(load_corpus(spec.corpus, Path(spec.base)).ids, spec.windows)
