"""How much of the asked output admission keeps memory back for. SGLang's new token ratio."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.sim.request import Request

#: The share without ignore_eos: first, last, and the decode steps between them.
FIRST, LAST, STEPS = 0.7, 0.098, 600
#: No more output than this is kept back for one request.
OUTPUT_TOKENS_MAX = 4096
#: After a retraction, each running request is taken to want this much more than it has.
MORE_TOKENS = 20


class OutputShare:
    """`ratio` of the output is kept back, all of it with ignore_eos. It sinks with every decode step, and
    is estimated anew when it was too small."""

    def __init__(self) -> None:
        self.ratio = FIRST

    def tokens(self, request: Request) -> int:
        """Output tokens to keep back for this request, beside those that it has."""
        left = min(request.max_new_tokens - request.output, OUTPUT_TOKENS_MAX)
        return left if request.ignore_eos else int(left * self.ratio)

    def decoded(self) -> None:
        self.ratio = max(self.ratio - (FIRST - LAST) / STEPS, LAST)

    def retracted(self, running: Sequence[Request]) -> None:
        have = sum(request.output + MORE_TOKENS for request in running)
        want = sum(request.max_new_tokens for request in running) + 1
        self.ratio = min(have / want, 1.0)
