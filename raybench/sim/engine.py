"""The scheduler of the simulated engine: SGLang's rules in virtual time, without sockets or sleeping.

Work comes in with `submit`, time goes on with `advance`. One step after the other is planned and ended:
a prefill batch while anything can be prefilled, else a decode step of all that runs. It runs in the
simulator's process (`sim/server.py`); unit tests step it by hand.

What follows SGLang 0.5.23: first come first served admission against the KV pool (the whole output is
reserved with `ignore_eos`, else a decaying share of it), chunked prefill, the radix cache by page with
locks and LRU eviction, a write-through host tier, retraction of the shortest answer under pool pressure,
silent clipping of the output length, a flush only when idle. The model never ends an answer by itself.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raybench.sim.admission import OutputShare
from raybench.sim.cache import PrefixHasher
from raybench.sim.faults import Faults
from raybench.sim.pool import KvPool
from raybench.sim.profiles import Profile
from raybench.sim.request import Finish, Request
from raybench.sim.speculation import Acceptance
from raybench.sim.tally import Gauges, Tally
from raybench.sim.tokens import TokenRing

#: The scheduler counts as busy for a moment after its last batch.
SETTLE_S = 0.005
NEVER = float("inf")


@dataclass(frozen=True)
class _Step:
    """What the engine does until `end`. chunks: (request, tokens to prefill)."""

    kind: Literal["prefill", "decode", "wait"]
    end: float
    stage_s: float = 0.0
    chunks: tuple[tuple[Request, int], ...] = ()
    batch: tuple[Request, ...] = ()


class Engine:
    """`seed` decides the answers; `log` gets log lines without their prefix; `compression` is virtual over
    wall seconds and matters only to what is reported."""

    def __init__(
        self,
        profile: Profile,
        faults: Faults,
        *,
        seed: int = 0,
        compression: float = 1.0,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.profile = profile
        self.faults = faults
        self.now = 0.0
        self.ring = TokenRing(seed)
        self.tally = Tally(log, compression)
        pages = profile.kv_pool_tokens // profile.page_tokens
        host_pages = int(pages * faults.host_tier_ratio(profile.host_tier_ratio))
        self.pool = KvPool(pages, profile.page_tokens, radix=profile.radix_cache, host_pages=host_pages)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.in_flight_max = self.running_max = self.flushes = 0
        #: Highest number of pages in use and of requests running since the last flush.
        self.pages_peak = self.running_peak = 0
        self._seed = seed
        self._hasher = PrefixHasher(profile.page_tokens)
        self._acceptance = None if profile.speculation is None else Acceptance(profile.speculation)
        #: Admitted, first token not yet out; `_chunked` is the one of them whose prompt is not through.
        self._filling: list[Request] = []
        self._chunked: Request | None = None
        self._step: _Step | None = None
        self._share = OutputShare()
        self._copies_end = 0.0

    # ---- the outside ----------------------------------------------------------------------------

    @property
    def next_time(self) -> float | None:
        """When the next step ends; now, if one can begin; None when there is nothing to do."""
        if self._step is not None:
            return self._step.end
        return self.now if self.in_flight else None

    @property
    def admitted(self) -> int:
        """Requests that hold memory: what SGLang calls running."""
        return len(self.running) + len(self._filling)

    @property
    def in_flight(self) -> int:
        """Requests inside, waiting ones included."""
        return len(self.waiting) + self.admitted

    @property
    def in_prefill(self) -> bool:
        return self._step is not None and self._step.kind == "prefill"

    def gauges(self) -> Gauges:
        page = self.profile.page_tokens
        return Gauges(
            running=self.admitted,
            queued=len(self.waiting),
            used_tokens=self.pool.used * page,
            available_tokens=self.pool.free * page,
            evictable_tokens=self.pool.device.evictable * page,
            pool_tokens=self.profile.kv_pool_tokens,
            sequence_tokens=sum(request.length for request in self.running),
            cuda_graph=0 < len(self.running) <= self.profile.graph_batch_max,
            new_token_ratio=self._share.ratio,
        )

    def pending_tokens(self) -> int:
        """Tokens that wait for their prefill, before any look into the cache."""
        chunked = 0 if self._chunked is None else self._chunked.target - self._chunked.prefilled
        return chunked + sum(request.length for request in self.waiting)

    def submit(self, request: Request, at: float) -> None:
        """Hand a request over. A refused one comes back finished; the output length may be clipped."""
        if not self.in_flight and at > self.now:
            self.tally.seconds["idle"] += at - self.now
            self.now = at
        request.arrival = at
        prompt = len(request.prompt)
        if prompt > self.profile.input_tokens_max:
            message = (
                f"Input length ({prompt} tokens) exceeds the maximum allowed length "
                f"({self.profile.input_tokens_max} tokens). "
                "Use a shorter input or enable --allow-auto-truncate."
            )
            self._finish(request, Finish("abort", message, 400), at)
            return
        request.max_new_tokens = min(request.max_new_tokens, self.profile.request_tokens_max - prompt - 1)
        request.target = prompt
        request.keys = self._hasher.keys(request.prompt)
        request.held_pages = self.faults.held_tokens(request.prompt) // self.profile.page_tokens
        text = np.ascontiguousarray(request.prompt, dtype=np.uint32).tobytes()
        request.ring_start = request.chance_state = zlib.crc32(text, self._seed & 0xFFFFFFFF)
        self.waiting.append(request)
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

    def abort(self, prefix: str, at: float) -> list[Request]:
        """End each request whose id begins with `prefix`, as SGLang matches them; gives them."""
        inside = (*self.waiting, *self._filling, *self.running)
        victims = [request for request in inside if request.rid.startswith(prefix)]
        for request in victims:
            self.cancel(request, at)
        return victims

    def cancel(self, request: Request, at: float) -> None:
        """End this request, which is inside."""
        self._leave(request)
        self._finish(request, Finish("abort", "Aborted"), max(at, request.arrival))
        if not self.in_flight:
            self._step = None
            self.now = max(self.now, at)
            self.tally.idle(self.gauges(), self.now)

    def idle(self, at: float) -> bool:
        """Whether a flush would be carried out: nothing inside, no copy to the host tier under way."""
        return not self.in_flight and at >= max(self.now + SETTLE_S, self._copies_end)

    def flush(self, at: float) -> bool:
        """Empty the caches. False, and nothing happens, when the engine is not idle or a fault refuses."""
        done = self.idle(at) and not self.faults.refuse_flush()
        if done:
            self.pool.flush(host=self.faults.flush_clears_host())
            self.pages_peak = self.running_peak = 0
            self.flushes += 1
        self.tally.flushed(done, self.gauges())
        return done

    def forget_peaks(self) -> None:
        """Begin anew with what /sim/state tells of highest numbers."""
        self.in_flight_max = self.running_max = self.in_flight

    def advance(self, until: float) -> list[Request]:
        """Go on to `until`; gives the requests that got tokens or ended, each once, in order."""
        touched: dict[Request, None] = {}
        while self._step is not None or (self.in_flight and self.now <= until):
            if self._step is None:
                self._step = self._plan()
            if self._step.end > until:
                break
            step, self._step = self._step, None
            self.tally.seconds[step.kind] += step.end - self.now
            self.now = step.end
            if step.kind == "prefill":
                self._end_prefill(step)
            elif step.kind == "decode":
                self._end_decode(step, touched)
            self._release_filled(touched)
            if not self.in_flight:
                self.tally.idle(self.gauges(), self.now)
        return list(touched)

    # ---- planning -------------------------------------------------------------------------------

    def _plan(self) -> _Step:
        for _ in range(2):
            chunks, load_back = self._plan_prefill()
            if chunks:
                return self._begin_prefill(chunks, load_back)
            if self.running and self._make_room_for_decode():
                self.running_max = max(self.running_max, len(self.running))
                self._note_peak()
                end = self.now + self.profile.decode_s(len(self.running))
                return _Step("decode", end, batch=tuple(self.running))
            ready_at = min((request.ready_at for request in self._filling), default=NEVER)
            if ready_at < NEVER:
                return _Step("wait", max(ready_at, self.now))
            # Everything that ran was retracted: now the prompt under way, or the first in line, has room.
        raise AssertionError("requests wait, and nothing holds the memory that they wait for")

    def _plan_prefill(self) -> tuple[list[tuple[Request, int]], int]:
        """Whole prompts and at most one part of a prompt, up to the chunk budget; and the tokens to load
        back from the host tier for them."""
        budget = self.profile.chunk_tokens
        chunks: list[tuple[Request, int]] = []
        load_back = 0
        if (request := self._chunked) is not None:
            tokens = self._chunk_tokens(request, budget)
            if self.pool.missing(request, request.prefilled + tokens) > self.pool.available:
                return [], 0
            budget -= self._take(request, tokens, chunks)
        while self._chunked is None and self.waiting and budget >= self.profile.page_tokens:
            request = self.waiting[0]
            loaded = self._admit(request)
            if loaded is None:
                break
            self._filling.append(self.waiting.popleft())
            load_back += loaded
            budget -= self._take(request, self._chunk_tokens(request, budget), chunks)
        return chunks, load_back

    def _chunk_tokens(self, request: Request, budget: int) -> int:
        """How much of the prompt the next step takes: what is left of it, or whole pages."""
        left = request.target - request.prefilled
        return left if left <= budget else budget - budget % self.profile.page_tokens

    def _take(self, request: Request, tokens: int, chunks: list[tuple[Request, int]]) -> int:
        """Give a part of a prompt its memory and its place in the batch."""
        self.pool.grow(request, request.prefilled + tokens)
        self._chunked = request if request.prefilled + tokens < request.target else None
        chunks.append((request, tokens))
        return tokens

    def _admit(self, request: Request) -> int | None:
        """Let the first in line in: lock what the cache has of it. None if it must wait; else how many
        tokens come from the host tier."""
        if self.admitted >= self.profile.max_running_requests:
            return None
        page = self.profile.page_tokens
        device, host = self.pool.match(request, self.now)
        self.pool.hold(request, device)
        promised = sum(self._still_to_take(other) for other in (*self.running, *self._filling))
        need = self._still_to_take(request) + 1
        if self.admitted and need + promised > self.pool.available:
            self.pool.release(request)
            return None
        request.prefilled = (device + host) * page
        request.ready_at = NEVER
        if request.admitted_at is None:
            request.admitted_at = self.now
            request.cached_device, request.cached_host = device * page, host * page
        self.tally.admitted(request, device * page, host * page)
        return host * page

    def _still_to_take(self, request: Request) -> int:
        """Pages that admission keeps back for a request beside those that it holds."""
        return self.pool.missing(request, request.length + self._share.tokens(request))

    def _begin_prefill(self, chunks: list[tuple[Request, int]], load_back: int) -> _Step:
        profile = self.profile
        stage_s = profile.prefill_step_s + load_back * profile.host_load_s
        cached = new = 0
        for request, tokens in chunks:
            stage_s += profile.prefill_s(tokens, request.prefilled)
            new += tokens
            if request.admitted_at == self.now or request.retractions:
                cached += request.prefilled
        self._note_peak()
        self.tally.prefill(self.gauges(), chunks, cached, self.pending_tokens(), load_back, self.now)
        return _Step("prefill", self.now + stage_s, stage_s, tuple(chunks))

    def _make_room_for_decode(self) -> bool:
        """Pages for the next step of all that runs; retracts the shortest answers where there are none."""
        most = 1 if self._acceptance is None else self._acceptance.drafts + 1
        victims = []
        while self.running:
            wanted = [(r, min(r.length + most, r.length_max)) for r in self.running]
            if sum(self.pool.missing(r, tokens) for r, tokens in wanted) <= self.pool.available:
                for request, tokens in wanted:
                    self.pool.grow(request, tokens)
                break
            victim = min(self.running, key=lambda r: (r.output, -len(r.prompt)))
            victims.append(victim)
            self._retract(victim)
        if victims:
            before = self._share.ratio
            self._share.retracted(self.running)
            self.tally.retracted(victims, before, self._share.ratio)
        return bool(self.running)

    def _retract(self, request: Request) -> None:
        """Back into the queue; its answer so far is kept and prefilled again with the prompt."""
        self.running.remove(request)
        self.pool.release(request)
        request.retractions += 1
        request.target = request.length
        request.keys = self._keys_with_output(request)
        request.prefilled = 0
        self.waiting.append(request)

    def _note_peak(self) -> None:
        self.pages_peak = max(self.pages_peak, self.pool.used)
        self.running_peak = max(self.running_peak, self.admitted)

    # ---- ends of steps --------------------------------------------------------------------------

    def _end_prefill(self, step: _Step) -> None:
        """The first token comes when the last chunk has gone through all stages of the pipeline."""
        for request, tokens in step.chunks:
            if request.finish is not None:
                continue
            request.prefilled += tokens
            self._back_up(self.pool.share(request, request.prefilled, self.now))
            if request.prefilled == request.target:
                request.ready_at = self.now + (self.profile.pipeline_stages - 1) * step.stage_s

    def _release_filled(self, touched: dict[Request, None]) -> None:
        ready = [request for request in self._filling if request.ready_at <= self.now]
        for request in ready:
            self._filling.remove(request)
            self.running.append(request)
            if request.first_token_at is None:
                request.first_token_at = request.ready_at
            self._emit(request, 1, touched)

    def _end_decode(self, step: _Step, touched: dict[Request, None]) -> None:
        tokens = verified = 0
        for request in step.batch:
            if request.finish is not None:
                continue
            count = 1
            if self._acceptance is not None:
                count = self._acceptance.draw(request)
                verified += 1
            tokens += count
            self._emit(request, count, touched)
        self._share.decoded()
        drafts = 0 if self._acceptance is None else self._acceptance.drafts
        self.tally.decode(self.gauges, tokens, verified, drafts * verified, self.now)

    def _emit(self, request: Request, count: int, touched: dict[Request, None]) -> None:
        request.output += count
        request.last_token_at = self.now
        touched[request] = None
        if request.output >= request.max_new_tokens:
            if self.profile.radix_cache:
                request.keys = self._keys_with_output(request)
                self._back_up(self.pool.share(request, request.length, self.now))
            self._leave(request)
            self._finish(request, Finish("length"), self.now)

    def _keys_with_output(self, request: Request) -> list[int]:
        output = self.ring.ids(request.ring_start, request.output)
        return self._hasher.keys(np.concatenate((request.prompt, output)))

    def _back_up(self, pages: int) -> None:
        """Write-through to the host tier goes on beside the steps, one copy after the other."""
        tokens = pages * self.profile.page_tokens
        self._copies_end = max(self._copies_end, self.now) + tokens * self.profile.host_write_s
        self.tally.count("backup", tokens)

    def _leave(self, request: Request) -> None:
        """Out of every list, its memory given back."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self._filling:
            self._filling.remove(request)
        else:
            self.running.remove(request)
        if self._chunked is request:
            self._chunked = None
        self.pool.release(request)

    def _finish(self, request: Request, finish: Finish, at: float) -> None:
        request.finish = finish
        request.finished_at = at
        self.tally.finished(request)
