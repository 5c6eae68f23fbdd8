"""The lies and faults of the simulated engine, as answers to questions that the engine asks.

Each method is one decision point. A new lie is a field of `scenario.sim_block.SimFaults` and a branch in the
method where it bites; a new decision point is a new method. Nothing else in this room knows a fault's name, but
for the fates of an answer, which `sim/answers.py` and `sim/spoil.py` carry out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from raybench.corpus.tokens import load_corpus
from raybench.corpus.windows import FIRST_PAGE_TOKENS, STRIDE_TOKENS, candidate_pages, hash_pages
from raybench.scenario.schema import Corpus
from raybench.scenario.sim_block import AnswerFault, SimFaults
from raybench.scenario.values import Model
from raybench.sim.request import Request

#: Size of the host tier, in KV pools, where a fault needs one and the profile has none.
HOST_TIER_RATIO = 3.0
#: Tokens by which a length that is lied about differs.
CLIPPED_TOKENS = 2


class PreloadSpec(Model):
    """The JSON of `--preload-json`. base: folder of a relative corpus path. windows None: every window."""

    corpus: Corpus
    base: str = "."
    windows: Annotated[int, Field(ge=0)] | None = None


class Preload:
    """Text that an engine holds from its start, in a tier that no flush clears. ids: the corpus, uint32.

    Which windows of the corpus a run will send is the ledger's business. So the engine holds the first `windows`
    (None: all) different ones that arrive. With as many as a first attempt has requests (its prewarm included),
    that attempt hits and fresh text does not.
    """

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
    spec = PreloadSpec.model_validate_json(text)
    return Preload(load_corpus(spec.corpus, Path(spec.base)).ids, spec.windows)


class Faults:
    """Answers of one engine; counts what it was asked. `preload` is the text of `preload_corpus`."""

    def __init__(self, faults: SimFaults, preload: Preload | None = None) -> None:
        self._faults = faults
        self._preload = preload if faults.preload_corpus else None
        self._flushes_refused = 0
        self._answers = self._requests = 0
        self._generated_since_flush = False
        self.restarts = 0

    # ---- caches ---------------------------------------------------------------------------------

    @property
    def dp_ranks(self) -> int:
        return self._faults.dp_ranks

    @property
    def lower_tier(self) -> str:
        """The name under which hits below the device are told."""
        return "storage" if self._faults.storage_tier else "host"

    def host_tier_ratio(self, ratio: float) -> float:
        """The size of the tier below the device in KV pools, where the profile has `ratio`."""
        faults = self._faults
        return max(ratio, HOST_TIER_RATIO) if faults.host_tier or faults.storage_tier else ratio

    def held_tokens(self, prompt: NDArray[np.uint32], rank: int) -> int:
        """How many leading tokens a tier holds that no flush clears. Asked once a request, on its arrival."""
        if not self._rank_keeps(rank):
            return 0
        if self._faults.always_hit:
            return len(prompt)
        return 0 if self._preload is None else self._preload.held_tokens(prompt)

    # ---- flush ----------------------------------------------------------------------------------

    @property
    def flush_exists(self) -> bool:
        return self._faults.flush != "missing"

    @property
    def flush_hangs(self) -> bool:
        return self._faults.flush == "hangs"

    def refuse_flush(self) -> bool:
        """Whether an idle engine refuses this flush all the same. Asked once a flush."""
        if self._faults.flush == "refused":
            return True
        if self._flushes_refused < self._faults.flush_refusals:
            self._flushes_refused += 1
            return True
        return False

    def flush_clears_device(self) -> bool:
        """Asked once a flush that is accepted."""
        self._generated_since_flush = False
        return self._faults.flush != "claimed"

    def flush_clears_host(self) -> bool:
        """Real SGLang clears its host tier; the first seed saw an engine that did not."""
        return not (self._faults.host_tier or self._faults.storage_tier)

    def rank_flushes(self, rank: int) -> bool:
        """The reply is that of rank 0, whatever the others did."""
        return rank == 0 or self._faults.flush != "first_rank"

    def _rank_keeps(self, rank: int) -> bool:
        return self._faults.flush != "first_rank" or rank > 0

    # ---- who else is there ----------------------------------------------------------------------

    def arrives(self) -> None:
        """A client's request; told of each, before the next two are asked."""
        self._requests += 1
        self._generated_since_flush = True

    def foreign_due(self) -> int:
        """Output tokens of another client's request that comes now; 0 for none."""
        every = self._faults.foreign_every
        return self._faults.foreign_output_tokens if every and self._requests % every == 0 else 0

    def restarts_now(self) -> bool:
        """Whether the engine is another process from here on."""
        due = bool(self._faults.restart_after) and self._requests == self._faults.restart_after
        self.restarts += due and not self._faults.restart_hidden
        return due

    @property
    def ghosts(self) -> bool:
        """Requests whose client went away go on."""
        return self._faults.ghosts

    # ---- what is told ---------------------------------------------------------------------------

    def told_cached(self, request: Request) -> int | None:
        """Cached tokens of one answer; None leaves them out."""
        match self._faults.cached_tokens:
            case "hidden":
                return None
            case "zero":
                return 0
            case "with_retractions":
                return request.cached + request.found_again
            case _:
                return request.cached

    def told_tiers(self, request: Request) -> dict[str, object]:
        """Where the cached tokens of one answer were found, as SGLang tells it with the storage backend `file`."""
        device = request.cached_device
        if self._faults.cached_tokens == "with_retractions":
            device += request.found_again
        if self._faults.storage_tier:
            storage = request.cached_host
            return {"device": device, "host": 0, "storage": storage, "storage_backend": "HiCacheFile"}
        return {"device": device, "host": request.cached_host}

    def told_input(self, request: Request) -> int | None:
        clipped = CLIPPED_TOKENS if self._faults.lengths == "input_clipped" else 0
        return None if self._faults.lengths == "hidden" else len(request.prompt) - clipped

    def told_output(self, request: Request) -> int | None:
        factor = 2 if self._faults.lengths == "output_inflated" else 1
        return None if self._faults.lengths == "hidden" else request.output * factor

    def output_limit(self, asked: int) -> int:
        clipped = CLIPPED_TOKENS if self._faults.lengths == "output_clipped" else 0
        return max(asked - clipped, 1)

    def logged_prefill(self, new: int, cached: int) -> tuple[int, int] | None:
        """New and cached tokens of a batch for the log; None: no line."""
        if self._faults.log == "silent":
            return None
        return (1, new + cached - 1) if self._faults.log == "hits" else (new, cached)

    @property
    def metrics_gone(self) -> bool:
        kind = self._faults.metrics
        return kind == "gone" or (kind == "gone_after_load" and self._generated_since_flush)

    @property
    def metrics_frozen(self) -> bool:
        return self._faults.metrics == "frozen"

    @property
    def counters_hide_hits(self) -> bool:
        return self._faults.metrics == "no_hits"

    @property
    def old_names(self) -> bool:
        """Endpoints and metrics as SGLang 0.5.3 had them."""
        return self._faults.old_names

    @property
    def queue_gone(self) -> bool:
        return self._faults.queue == "gone"

    def told_queue(self, running: int, queued: int) -> tuple[int, int]:
        match self._faults.queue:
            case "idle":
                return 0, 0
            case "busy":
                return running + 1, queued
            case _:
                return running, queued

    @property
    def never_alive(self) -> bool:
        return self._faults.never_alive

    # ---- answers --------------------------------------------------------------------------------

    def fate(self) -> AnswerFault | None:
        """What becomes of this answer. Asked once a request."""
        self._answers += 1
        return None if self._answers % self._faults.answer_every else self._faults.answer

    @property
    def comments(self) -> bool:
        """Streams begin with a comment, as some servers and proxies send them to keep a connection open."""
        return self._faults.comments

    @property
    def slow_accept_s(self) -> float:
        return self._faults.slow_accept_s

    def pace(self, chance: float) -> int:
        """A request gets a token at each n-th decode step. chance: its own, in [0, 1). Asked once a request."""
        return round(float(self._faults.pace_spread**chance))
