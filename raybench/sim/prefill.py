"""The queue of the simulated engine and the prompts that are being prefilled: who is let in, how far.

Pure. First come, first served: the first in line that does not fit, beside what the others may still want, holds
up the rest. A batch takes whole prompts and at most one part of a prompt, up to the chunk budget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from raybench.sim.pool import KvPool
from raybench.sim.profiles import Profile
from raybench.sim.request import Request

NEVER = float("inf")

#: SGLang's new token ratio, the share kept back without ignore_eos: first, last, the decode steps between them.
FIRST, LAST, STEPS = 0.7, 0.098, 600
#: No more output than this is kept back for one request.
OUTPUT_TOKENS_MAX = 4096
#: After a retraction, each running request is taken to want this much more than it has.
MORE_TOKENS = 20


class OutputShare:
    """`ratio` of the asked output is kept back by admission, all of it with ignore_eos. It sinks with every
    decode step, and is estimated anew when it was too small."""

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


@dataclass
class Batch:
    """One prefill step. chunks: (request, tokens to compute). admitted: who is new in it, with the tokens
    that were found on the device and in the host tier."""

    chunks: list[tuple[Request, int]] = field(default_factory=list)
    admitted: list[tuple[Request, int, int]] = field(default_factory=list)

    def of_rank(self, rank: int) -> Batch:
        """The part of one data-parallel rank."""
        return Batch(
            [(request, tokens) for request, tokens in self.chunks if request.rank == rank],
            [admitted for admitted in self.admitted if admitted[0].rank == rank],
        )

    @property
    def new_tokens(self) -> int:
        return sum(tokens for _, tokens in self.chunks)

    @property
    def cached_tokens(self) -> int:
        return sum(device + host for _, device, host in self.admitted)

    @property
    def host_tokens(self) -> int:
        return sum(host for _, _, host in self.admitted)


class PrefillQueue:
    """`waiting` has no memory yet; `filling` has, and its first token is not out yet."""

    def __init__(self, profile: Profile, pool: KvPool, share: OutputShare) -> None:
        self.waiting: deque[Request] = deque()
        self.filling: list[Request] = []
        self._chunked: Request | None = None
        self._profile = profile
        self._pool = pool
        self._share = share

    def __len__(self) -> int:
        return len(self.waiting) + len(self.filling)

    @property
    def pending_tokens(self) -> int:
        """Tokens that wait for their prefill, before any look into the cache."""
        chunked = 0 if self._chunked is None else self._chunked.target - self._chunked.prefilled
        return chunked + sum(request.length for request in self.waiting)

    @property
    def next_ready(self) -> float:
        """When the next first token is out of the pipeline; NEVER if none is in it."""
        return min((request.ready_at for request in self.filling), default=NEVER)

    def take_ready(self, now: float) -> list[Request]:
        """Requests whose first token is out; they leave this queue."""
        ready = [request for request in self.filling if request.ready_at <= now]
        for request in ready:
            self.filling.remove(request)
        return ready

    def remove(self, request: Request) -> None:
        """Take out a request, wherever it stands in here."""
        (self.filling if request in self.filling else self.waiting).remove(request)
        if self._chunked is request:
            self._chunked = None

    def plan(self, running: Sequence[Request], now: float) -> Batch:
        """The next batch, with its memory; empty if nothing can be prefilled now."""
        batch = Batch()
        budget = self._profile.chunk_tokens
        if (request := self._chunked) is not None:
            tokens = self._chunk_tokens(request, budget)
            if self._pool.missing(request, request.prefilled + tokens) > self._pool.available:
                return batch
            budget -= self._put(request, tokens, batch)
        while self._chunked is None and self.waiting and budget >= self._profile.page_tokens:
            request = self.waiting[0]
            if not self._admit(request, running, batch, now):
                break
            self.filling.append(self.waiting.popleft())
            budget -= self._put(request, self._chunk_tokens(request, budget), batch)
        return batch

    def _chunk_tokens(self, request: Request, budget: int) -> int:
        """How much of the prompt the step takes: what is left of it, or whole pages."""
        left = request.target - request.prefilled
        return left if left <= budget else budget - budget % self._profile.page_tokens

    def _put(self, request: Request, tokens: int, batch: Batch) -> int:
        self._pool.grow(request, request.prefilled + tokens)
        self._chunked = request if request.prefilled + tokens < request.target else None
        batch.chunks.append((request, tokens))
        return tokens

    def _admit(self, request: Request, running: Sequence[Request], batch: Batch, now: float) -> bool:
        """Let the first in line in if it fits beside what is promised to the others; lock what the tree has
        of it. Alone it always fits."""
        assert request.arrival <= now, "admitted before it came"
        inside = (*running, *self.filling)
        if len(inside) >= self._profile.max_running_requests:
            return False
        page = self._profile.page_tokens
        device, host = self._pool.match(request, now)
        self._pool.hold(request, device)
        promised = sum(self._still_to_take(other) for other in inside)
        # SGLang keeps one page more than it counts.
        if inside and self._still_to_take(request) + 1 + promised > self._pool.available:
            self._pool.release(request)
            return False
        request.prefilled = (device + host) * page
        request.ready_at = NEVER
        if request.admitted_at is None:
            request.admitted_at = now
            request.cached_device, request.cached_host = device * page, host * page
        else:
            request.found_again += (device + host) * page
        batch.admitted.append((request, device * page, host * page))
        return True

    def _still_to_take(self, request: Request) -> int:
        """Pages that are kept back for a request beside those that it holds."""
        return self._pool.missing(request, request.length + self._share.tokens(request))
