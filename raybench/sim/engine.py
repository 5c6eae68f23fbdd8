"""The scheduler of the simulated engine: SGLang's rules in virtual time, without sockets or sleeping.

Work comes in with `submit`, time goes on with `advance`. One step after the other is planned and ended:
a prefill batch while anything can be prefilled, else a decode step of all that runs. It runs in the
simulator's process (`sim/server.py`); unit tests step it by hand.

What follows SGLang 0.5.23: first come first served admission against the KV pool (the whole output is
reserved with `ignore_eos`, else a decaying share of it), chunked prefill, the radix cache by page with
locks and LRU eviction, a write-through host tier, retraction of the shortest answer under pool pressure,
silent clipping of the output length, a flush only when idle. The model ends an answer by itself only where it
understood the question (`sim/questions.py`) and may end it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raybench.sim.cache import PrefixHasher
from raybench.sim.faults import Faults
from raybench.sim.pool import KvPool
from raybench.sim.prefill import NEVER, Batch, OutputShare, PrefillQueue
from raybench.sim.profiles import Profile
from raybench.sim.request import UNAVAILABLE, Finish, Request
from raybench.sim.speculation import Acceptance
from raybench.sim.tally import Gauges, Tally
from raybench.sim.tokens import TokenRing

#: The scheduler counts as busy for a moment after its last batch.
SETTLE_S = 0.005


@dataclass(frozen=True)
class _Step:
    """What the engine does until `end`; neither of both: it waits for the pipeline."""

    end: float
    prefill: Batch | None = None
    decode: tuple[Request, ...] = ()
    stage_s: float = 0.0


class Engine:
    """`seed` decides the answers; `log` gets log lines without their prefix, each with its data-parallel rank;
    `compression` is virtual over wall seconds and matters only to what is reported."""

    def __init__(
        self,
        profile: Profile,
        faults: Faults,
        *,
        seed: int = 0,
        compression: float = 1.0,
        log: Callable[[str, int], None] = lambda line, rank: None,
    ) -> None:
        self.profile = profile
        self.faults = faults
        self.now = 0.0
        self.ring = TokenRing(seed)
        self.tally = Tally(log, compression, faults, profile.drafts)
        pages = profile.kv_pool_tokens // profile.page_tokens
        host_pages = int(pages * faults.host_tier_ratio(profile.host_tier_ratio))
        self.pool = KvPool(pages, profile.page_tokens, radix=profile.radix_cache, host_pages=host_pages)
        self.running: list[Request] = []
        self.in_flight_max = self.running_max = 0
        #: Highest number of pages in use and of requests running since the last flush.
        self.pages_peak = self.running_peak = 0
        self._seed = seed
        self._submitted = 0
        self._hasher = PrefixHasher(profile.page_tokens)
        self._acceptance = None if profile.speculation is None else Acceptance(profile.speculation)
        self._share = OutputShare()
        self.queue = PrefillQueue(profile, self.pool, self._share)
        self._step: _Step | None = None
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
        return len(self.running) + len(self.queue.filling)

    @property
    def in_flight(self) -> int:
        """Requests inside, waiting ones included."""
        return len(self.running) + len(self.queue)

    def gauges(self) -> Gauges:
        page = self.profile.page_tokens
        return Gauges(
            running=self.admitted,
            queued=len(self.queue.waiting),
            used_tokens=self.pool.used * page,
            available_tokens=self.pool.free * page,
            evictable_tokens=self.pool.device.evictable * page,
            pool_tokens=self.profile.kv_pool_tokens,
            sequence_tokens=sum(request.length for request in self.running),
            cuda_graph=0 < len(self.running) <= self.profile.graph_batch_max,
            new_token_ratio=self._share.ratio,
        )

    def submit(self, request: Request, at: float) -> None:
        """Hand a request over. A refused one comes back finished; the output length may be clipped."""
        if not self.in_flight and at > self.now:
            self.tally.spent("idle", at - self.now)
            self.now = at
        request.arrival = at
        request.rank = self._submitted % self.faults.dp_ranks
        self._submitted += 1
        prompt = len(request.prompt)
        if prompt > self.profile.input_tokens_max:
            message = (
                f"Input length ({prompt} tokens) exceeds the maximum allowed length "
                f"({self.profile.input_tokens_max} tokens). "
                "Use a shorter input or enable --allow-auto-truncate."
            )
            self._finish(request, Finish("abort", message, 400), at)
            return
        most = self.profile.max_queued_requests
        if most is not None and len(self.queue.waiting) >= most:
            self._finish(request, Finish("abort", "The request queue is full.", UNAVAILABLE), at)
            return
        room = self.profile.request_tokens_max - prompt - 1
        request.max_new_tokens = self.faults.output_limit(min(request.max_new_tokens, room))
        request.target = prompt
        request.keys = self._hasher.keys(request.prompt)
        request.held_pages = self.faults.held_tokens(request.prompt, request.rank) // self.profile.page_tokens
        text = np.ascontiguousarray(request.prompt, dtype=np.uint32).tobytes()
        request.ring_start = request.chance_state = zlib.crc32(text, self._seed & 0xFFFFFFFF)
        request.pace = self.faults.pace(request.ring_start / 2**32)
        self.queue.waiting.append(request)
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

    def abort(self, prefix: str, at: float) -> list[Request]:
        """End each request whose id begins with `prefix`, as SGLang matches them; gives them."""
        inside = (*self.queue.waiting, *self.queue.filling, *self.running)
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
            if self.faults.flush_clears_device():
                self.pool.flush(host=self.faults.flush_clears_host())
            self.pages_peak = self.running_peak = 0
        self.tally.flushed(done, self.gauges())
        return done

    def restart(self) -> None:
        """Count from zero, as another process would; nothing else is lost."""
        self.tally.restart()
        self.pool.evicted_pages = 0

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
            began, self.now = self.now, step.end
            if step.prefill is not None:
                self.tally.spent("prefill", self.now - began)
                self._end_prefill(step.prefill, step.stage_s)
            elif step.decode:
                self._end_decode(step.decode, touched)
            self._release_ready(touched)
            if not self.in_flight:
                self.tally.idle(self.gauges(), self.now)
        return list(touched)

    # ---- planning -------------------------------------------------------------------------------

    def _plan(self) -> _Step:
        for _ in range(2):
            batch = self.queue.plan(self.running, self.now)
            if batch.chunks:
                return self._begin_prefill(batch)
            if self.running and self._make_room_for_decode():
                self.running_max = max(self.running_max, len(self.running))
                self._note_peak()
                end = self.now + self.profile.decode_s(len(self.running))
                return _Step(end, decode=tuple(self.running))
            if self.queue.next_ready < NEVER:
                return _Step(max(self.queue.next_ready, self.now))
            # Everything that ran was retracted: now the prompt under way, or the first in line, has room.
        raise AssertionError("requests wait, and nothing holds the memory that they wait for")

    def _begin_prefill(self, batch: Batch) -> _Step:
        profile = self.profile
        stage_s = profile.prefill_step_s + batch.host_tokens * profile.host_load_s
        stage_s += sum(profile.prefill_s(tokens, request.prefilled) for request, tokens in batch.chunks)
        self._note_peak()
        self.tally.prefill(self.gauges(), batch, self.queue.pending_tokens, self.now)
        return _Step(self.now + stage_s, prefill=batch, stage_s=stage_s)

    def _make_room_for_decode(self) -> bool:
        """Pages for the next step of all that runs; retracts the shortest answers where there are none."""
        most = 1 + self.profile.drafts
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
        self.queue.waiting.append(request)

    def _note_peak(self) -> None:
        self.pages_peak = max(self.pages_peak, self.pool.used)
        self.running_peak = max(self.running_peak, self.admitted)

    # ---- ends of steps --------------------------------------------------------------------------

    def _end_prefill(self, batch: Batch, stage_s: float) -> None:
        """The first token comes when the last chunk has gone through all stages of the pipeline."""
        for request, tokens in batch.chunks:
            if request.finish is not None:
                continue
            request.prefilled += tokens
            self._back_up(self.pool.share(request, request.prefilled, self.now))
            if request.prefilled == request.target:
                request.ready_at = self.now + (self.profile.pipeline_stages - 1) * stage_s

    def _release_ready(self, touched: dict[Request, None]) -> None:
        for request in self.queue.take_ready(self.now):
            self.running.append(request)
            if request.first_token_at is None:
                request.first_token_at = request.ready_at
                self.tally.first_token(request)
            self._emit(request, 1, touched)

    def _end_decode(self, batch: tuple[Request, ...], touched: dict[Request, None]) -> None:
        tokens = verified = 0
        for request in batch:
            if request.finish is not None:
                continue
            request.steps += 1
            if request.steps % request.pace:
                continue
            count = 1
            if self._acceptance is not None:
                count = self._acceptance.draw(request)
                verified += 1
            tokens += count
            self._emit(request, count, touched)
        self._share.decoded()
        graph = len(batch) <= self.profile.graph_batch_max
        self.tally.decode(self.gauges, tokens, verified, self.now, graph=graph)

    def _emit(self, request: Request, count: int, touched: dict[Request, None]) -> None:
        if request.last_token_at is not None:
            self.tally.next_tokens(request, count, self.now)
        request.output += count
        request.last_token_at = self.now
        touched[request] = None
        if request.output >= request.output_max:
            stopped = request.output == request.stops_at
            if self.profile.radix_cache:
                request.keys = self._keys_with_output(request)
                self._back_up(self.pool.share(request, request.length, self.now))
            self._leave(request)
            self._finish(request, Finish("stop" if stopped else "length"), self.now)

    def _keys_with_output(self, request: Request) -> list[int]:
        output = self.ring.ids(request.ring_start, request.output)
        return self._hasher.keys(np.concatenate((request.prompt, output)))

    def _back_up(self, pages: int) -> None:
        """Write-through to the host tier goes on beside the steps, one copy after the other."""
        tokens = pages * self.profile.page_tokens
        self._copies_end = max(self._copies_end, self.now) + tokens * self.profile.host_write_s
        self.tally.count("hicache_backup_tokens_total", tokens)

    def _leave(self, request: Request) -> None:
        """Out of every list, its memory given back."""
        if request in self.running:
            self.running.remove(request)
        else:
            self.queue.remove(request)
        self.pool.release(request)

    def _finish(self, request: Request, finish: Finish, at: float) -> None:
        request.finish = finish
        request.finished_at = at
        self.tally.finished(request)
