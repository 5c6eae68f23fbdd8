"""How many tokens a verify step yields. Deterministic for each request, cheap for each step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from raybench.sim.request import Request

#: Output tokens that share one set of chances.
BUCKET_TOKENS = 64
_MULTIPLIER, _INCREMENT, _MASK = 6364136223846793005, 1442695040888963407, 2**64 - 1


@dataclass(frozen=True)
class Speculation:
    """Chance that a draft token is accepted, given that the one before it was.

    It rises from `chance_first` to `chance_last` as a request's output grows; `depth_tokens` is the
    scale of that rise. The first seed saw 2.0 accepted tokens a step at 128 output tokens, 2.1 to 3.0 at
    512 and 3.7 to 4.0 at 4096. A step yields 1 to `draft_tokens` tokens, the bonus token included.
    """

    algorithm: str
    steps: int
    draft_tokens: int
    chance_first: float
    chance_last: float
    depth_tokens: float

    @property
    def drafts(self) -> int:
        return self.draft_tokens - 1


class Acceptance:
    """Draft k is accepted with chance**k: each one needs the one before it."""

    def __init__(self, speculation: Speculation) -> None:
        self._drafts = speculation.drafts
        self._speculation = speculation
        self._thresholds: list[tuple[float, ...]] = []

    def draw(self, request: Request) -> int:
        """Tokens of this step, 1 to drafts + 1, not more than the request still wants; counts the drafts."""
        request.chance_state = (request.chance_state * _MULTIPLIER + _INCREMENT) & _MASK
        chance = (request.chance_state >> 11) / 2**53
        accepted = 0
        for threshold in self._at(request.output):
            if chance >= threshold:
                break
            accepted += 1
        if not request.correct_drafts:
            request.correct_drafts = [0] * (self._drafts + 1)
        request.correct_drafts[accepted] += 1
        request.verify_steps += 1
        return min(accepted + 1, request.output_max - request.output)

    def _at(self, output: int) -> tuple[float, ...]:
        bucket = output // BUCKET_TOKENS
        while len(self._thresholds) <= bucket:
            s = self._speculation
            risen = 1.0 - math.exp(-len(self._thresholds) * BUCKET_TOKENS / s.depth_tokens)
            chance = s.chance_first + (s.chance_last - s.chance_first) * risen
            self._thresholds.append(tuple(chance**k for k in range(1, self._drafts + 1)))
        return self._thresholds[bucket]
