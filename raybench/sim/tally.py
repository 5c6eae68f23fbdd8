"""What the simulated engine counts, as SGLang counts it: counters, histograms, gauges, log lines.

Counters of prompts and answers move only when a request finishes; prefill counters move with each
batch; gauges are refreshed by prefill batches, by every 40th decode step, and once on going idle.
Times come in virtual and are kept in wall seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from raybench.sim.faults import Faults
from raybench.sim.prefill import Batch
from raybench.sim.request import Request

DECODE_LOG_INTERVAL = 40

_SECONDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_E2E = (*_SECONDS, 600, 1200, 1800, 2400)
_TOKEN = (
    *(0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040),
    *(0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8),
)
_QUEUE = (
    *(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20),
    *range(30, 101, 10),
    *range(200, 1001, 100),
    *(1200, 1400, 1600, 1800, 2000, 2500, 3000),
)
_LENGTHS = (
    *(100, 300, 500, 700, 1000, 1500),
    *range(2000, 10_001, 1000),
    *range(12_500, 30_001, 2500),
    *(35_000, 40_000, 60_000, 80_000, 100_000, 200_000, 300_000, 400_000, 600_000, 800_000),
    *(1_000_000, 1_100_000),
)


#: name of a histogram on `/metrics` -> its bounds.
BOUNDS: dict[str, tuple[float, ...]] = {
    "time_to_first_token_seconds": _SECONDS,
    "e2e_request_latency_seconds": _E2E,
    "request_time_per_output_token_seconds": _TOKEN,
    "inter_token_latency_seconds": _TOKEN,
    "queue_time_seconds": _QUEUE,
    "prompt_tokens_histogram": _LENGTHS,
    "uncached_prompt_tokens_histogram": _LENGTHS,
    "generation_tokens_histogram": _LENGTHS,
}


class Histogram:
    """Counts below each bound; `counts` has one more entry for what is above all of them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True)
class Gauges:
    """The state of the scheduler at one moment."""

    running: int = 0
    queued: int = 0
    used_tokens: int = 0
    available_tokens: int = 0
    evictable_tokens: int = 0
    pool_tokens: int = 1
    sequence_tokens: int = 0
    gen_throughput: float = 0.0
    cache_hit_rate: float = 0.0
    cuda_graph: bool = False
    retracted: int = 0
    new_token_ratio: float = 0.0

    @property
    def usage(self) -> float:
        return self.used_tokens / self.pool_tokens


class Tally:
    """`log` takes finished log lines without their prefix, and the data-parallel rank that prints them;
    `compression` is virtual over wall seconds; `drafts` are the tokens that are drafted for a verify step."""

    def __init__(self, log: Callable[[str, int], None], compression: float, faults: Faults, drafts: int) -> None:
        self._log = log
        self._faults = faults
        self._drafts = drafts
        self._wall = 1.0 / compression
        self.gauges = Gauges()
        #: (name on `/metrics`, value of the label that tells its series apart, or "") -> what is counted.
        self.counts: Counter[tuple[str, str]] = Counter()
        self.histograms: dict[tuple[str, str], Histogram] = {}
        #: Wall seconds of the scheduler, by what it did.
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._prefilled_at = self._decoded_at = 0.0
        self._decode_steps = self._decoded = self._verified = 0
        self.accept_length = self.accept_rate = 0.0

    def restart(self) -> None:
        """Everything that is counted begins at zero, as in a new process."""
        self.counts.clear()
        self.histograms.clear()
        self.seconds.clear()

    def count(self, name: str, amount: float, label: str = "") -> None:
        if amount:
            self.counts[name, label] += int(amount)

    def observe(self, name: str, value: float, label: str = "", *, times: int = 1) -> None:
        """A value of a histogram, in its own unit."""
        if (name, label) not in self.histograms:
            self.histograms[name, label] = Histogram(BOUNDS[name])
        self.histograms[name, label].add(value, times)

    def spent(self, doing: Literal["idle", "prefill"], virtual_s: float) -> None:
        self.seconds[doing] += virtual_s * self._wall

    def prefill(self, gauges: Gauges, batch: Batch, pending: int, now: float) -> None:
        """A prefill batch begins. What a request needs again after a retraction is not effective."""
        for request, device, host in batch.admitted:
            self.count("realtime_tokens_total", device + host, "prefill_cache")
            if not request.retractions:
                self.count("prefill_effective_tokens_total", device, "device_hit")
                self.count("prefill_effective_tokens_total", host, f"{self._faults.lower_tier}_hit")
                self.observe("queue_time_seconds", (now - request.arrival) * self._wall)
        first = sum(tokens for request, tokens in batch.chunks if not request.retractions)
        self.count("prefill_effective_tokens_total", first, "input")
        self.count("realtime_tokens_total", batch.new_tokens, "prefill_compute")
        self.count("load_back_tokens_total", batch.host_tokens)
        self.count("cuda_graph_passes_total", 1, "prefill_none")
        new, cached = batch.new_tokens, batch.cached_tokens
        elapsed = (now - self._prefilled_at) * self._wall
        rate = new / elapsed if elapsed > 0 else 0.0
        self._prefilled_at = now
        hit_rate = cached / (new + cached)
        self.gauges = replace(gauges, cache_hit_rate=hit_rate, gen_throughput=self.gauges.gen_throughput)
        for rank in range(self._faults.dp_ranks):
            self._log_prefill(gauges, batch.of_rank(rank), rank, pending, rate)

    def _log_prefill(self, gauges: Gauges, batch: Batch, rank: int, pending: int, rate: float) -> None:
        """A data-parallel rank prints what it prefills itself."""
        told = self._faults.logged_prefill(batch.new_tokens, batch.cached_tokens)
        if not batch.chunks or told is None:
            return
        self._log(
            f"Prefill batch, #new-seq: {len(batch.chunks)}, #new-token: {told[0]}, #cached-token: {told[1]}, "
            f"token usage: {gauges.usage:.2f}, #running-req: {gauges.running - len(batch.chunks)}, "
            f"#queue-req: {gauges.queued}, #pending-token: {pending}, cuda graph: False, "
            f"input throughput (token/s): {rate:.2f}",
            rank,
        )

    def decode(self, gauges: Callable[[], Gauges], tokens: int, verified: int, now: float, *, graph: bool) -> None:
        """One decode step, by a captured graph or not; reported every 40th time."""
        self.count("realtime_tokens_total", tokens, "decode")
        self.count("cuda_graph_passes_total", 1, "decode_cuda_graph" if graph else "decode_none")
        self.count("spec_verify_calls_total", verified)
        self._decoded += tokens
        self._verified += verified
        self._decode_steps += 1
        if self._decode_steps % DECODE_LOG_INTERVAL:
            return
        state = gauges()
        rate = self._decoded / ((now - self._decoded_at) * self._wall)
        speculation = ""
        if self._verified:
            self.accept_length = self._decoded / self._verified
            self.accept_rate = (self._decoded - self._verified) / (self._drafts * self._verified)
            speculation = f"accept len: {self.accept_length:.2f}, accept rate: {self.accept_rate:.2f}, "
        self.gauges = replace(state, gen_throughput=rate)
        self._decoded_at, self._decoded, self._verified = now, 0, 0
        self._log(
            f"Decode batch, #running-req: {state.running}, #token: {state.used_tokens}, "
            f"token usage: {state.usage:.2f}, {speculation}cuda graph: {state.cuda_graph}, "
            f"gen throughput (token/s): {rate:.2f}, #queue-req: {state.queued}",
            0,
        )

    def retracted(self, requests: Sequence[Request], before: float, after: float) -> None:
        output = sum(request.output for request in requests)
        self.count("num_retracted_requests_total", len(requests))
        self.count("num_retracted_input_tokens_total", sum(len(request.prompt) for request in requests))
        self.count("num_retracted_output_tokens_total", output)
        self.gauges = replace(self.gauges, retracted=len(requests))
        self._log(
            f"KV cache pool is full. Retract requests. #retracted_reqs: {len(requests)}, "
            f"#new_tokens_gained: {sum(request.length for request in requests)}, "
            f"#new_token_ratio: {before:.4f} -> {after:.4f}",
            requests[0].rank,
        )

    def idle(self, gauges: Gauges, now: float) -> None:
        """The scheduler has nothing left to do; its rates begin anew."""
        self.gauges = gauges
        self._decoded_at = self._prefilled_at = now
        self._decoded = self._verified = 0

    def flushed(self, done: bool, gauges: Gauges) -> None:
        if done:
            self.accept_length = self.accept_rate = 0.0
        for rank in range(self._faults.dp_ranks):
            if done and self._faults.rank_flushes(rank):
                self._log("Cache flushed successfully!", rank)
            else:
                self._log(
                    "Cache not flushed because there are pending requests. "
                    f"#queue-req: {gauges.queued}, #running-req: {gauges.running}",
                    rank,
                )

    def flush_timed_out(self) -> None:
        self._log("Deferred flush_cache timed out while waiting for idle state.", 0)

    def first_token(self, request: Request) -> None:
        """Told before the request's end, as are its next tokens. Health checks are no requests of a client."""
        assert request.first_token_at is not None
        if not request.internal:
            ttft_s = (request.first_token_at - request.arrival) * self._wall
            self.observe("time_to_first_token_seconds", ttft_s, _streaming(request))

    def next_tokens(self, request: Request, count: int, now: float) -> None:
        """Tokens behind the first. Only a stream has gaps."""
        assert request.last_token_at is not None
        if request.stream and not request.internal:
            gap_s = (now - request.last_token_at) * self._wall / count
            self.observe("inter_token_latency_seconds", gap_s, times=count)

    def finished(self, request: Request) -> None:
        """Everything that moves only now."""
        if request.internal:
            return
        stream = _streaming(request)
        assert request.finish is not None
        assert request.finished_at is not None
        if request.finish.kind == "abort" and request.finish.status is None:
            self.count("num_aborted_requests_total", 1)  # of those that were refused SGLang counts nothing
        if request.first_token_at is None:
            return
        self.count("prompt_tokens_total", len(request.prompt), stream)
        self.count("generation_tokens_total", request.output, stream)
        self.count("num_requests_total", 1, stream)
        self.count("cached_tokens_total", request.cached_device, "device")
        self.count("cached_tokens_total", request.cached_host, self._faults.lower_tier)
        e2e_s = (request.finished_at - request.arrival) * self._wall
        self.observe("e2e_request_latency_seconds", e2e_s, stream)
        self.observe("prompt_tokens_histogram", len(request.prompt))
        self.observe("uncached_prompt_tokens_histogram", len(request.prompt) - request.cached)
        self.observe("generation_tokens_histogram", request.output)
        if request.output > 1:
            tpot_s = (request.finished_at - request.first_token_at) * self._wall / (request.output - 1)
            self.observe("request_time_per_output_token_seconds", tpot_s, stream)


def _streaming(request: Request) -> str:
    """The value of the label."""
    return "true" if request.stream else "false"
