"""The lies and faults of the simulated engine, as answers to questions that the engine asks.

Each method is one decision point. A new lie is a field of `scenario.schema.SimFaults` and a branch in the
method where it bites; a new decision point is a new method. Nothing else in this room knows a fault.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raybench.scenario.sim_block import SimFaults
from raybench.sim.preload import Preload

#: Size of the host tier, in KV pools, where a fault needs one and the profile has none.
HOST_TIER_RATIO = 3.0


class Faults:
    """Answers of one engine; counts what it was asked. `preload` is the text of `preload_corpus`."""

    def __init__(self, faults: SimFaults, preload: Preload | None = None) -> None:
        self._faults = faults
        self._preload = preload if faults.preload_corpus else None
        self._flushes_refused = 0

    def host_tier_ratio(self, ratio: float) -> float:
        """The size of the host tier in KV pools, where the profile has `ratio`."""
        return max(ratio, HOST_TIER_RATIO) if self._faults.host_tier else ratio

    def flush_clears_host(self) -> bool:
        """Real SGLang clears its host tier; the first seed saw an engine that did not."""
        return not self._faults.host_tier

    def refuse_flush(self) -> bool:
        """Whether an idle engine refuses this flush all the same. Asked once a flush."""
        if self._faults.flush_refused:
            return True
        if self._flushes_refused < self._faults.flush_refusals:
            self._flushes_refused += 1
            return True
        return False

    def pace(self, chance: float) -> int:
        """A request gets a token at each n-th decode step. chance: its own, in [0, 1). Asked once a request."""
        return round(float(self._faults.pace_spread**chance))

    def held_tokens(self, prompt: NDArray[np.uint32]) -> int:
        """How many leading tokens a tier holds that no flush clears. Asked once a request, on its arrival."""
        if self._faults.always_hit:
            return len(prompt)
        return 0 if self._preload is None else self._preload.held_tokens(prompt)
