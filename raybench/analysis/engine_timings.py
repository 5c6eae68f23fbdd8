"""What engines say of their own speed, beside what the client measured; answers cut off. One function a metric.

Pure functions over a `pyarrow.Table` of request records, as in `metrics.py` (formulas in docs/METRICS.md). An
engine's times are of one request each: under concurrency they overlap, and their rates are no throughput.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.metrics import (
    count,
    e2e_ms,
    known_where,
    rate_per_s,
    sample,
    succeeded,
    tpot_ms,
    ttft_ms,
)

#: Finish reasons that mean "the budget is used up", of all engines: OpenAI's, ninfer's two.
BUDGET_REASONS: tuple[str, ...] = ("length", "output_limit", "context_capacity", "max_tokens")

#: A client cannot be done before its engine: from so many ms on, stamps were late or times are of other requests.
EARLY_MS = 5.0

#: Client and engine agree where the client took longer by no more than the larger of these two.
AGREE_MS, AGREE_SHARE = 50.0, 0.05


# -- one request -----------------------------------------------------------------------------------


def engine_request_s(requests: pa.Table) -> pa.ChunkedArray:
    """The engine's own time for the whole request; where it tells none, prefill + decode."""
    return pc.coalesce(requests["engine_e2e_s"], pc.add(requests["engine_prefill_s"], requests["engine_decode_s"]))


def engine_first_token_s(requests: pa.Table) -> pa.ChunkedArray:
    """The engine's own time to the first token; where it tells none, the prefill."""
    return pc.coalesce(requests["engine_ttft_s"], requests["engine_prefill_s"])


def computed_tokens(requests: pa.Table) -> pa.ChunkedArray:
    """Prompt tokens that were prefilled: input - cached, the input where cached tokens are not reported."""
    return pc.subtract(requests["input_tokens"], pc.fill_null(requests["cached_tokens"], 0))


def engine_prefill_tokens_per_s(requests: pa.Table) -> pa.ChunkedArray:
    """(input - cached tokens) / engine prefill seconds, of each successful request."""
    return _ratio(requests, computed_tokens(requests), requests["engine_prefill_s"])


def engine_decode_tokens_per_s(requests: pa.Table) -> pa.ChunkedArray:
    """(output tokens - 1) / engine decode seconds: the first token belongs to the prefill."""
    return _ratio(requests, pc.subtract(requests["output_tokens"], 1), requests["engine_decode_s"])


def decode_tokens_per_s(requests: pa.Table) -> pa.ChunkedArray:
    """The same by the client's stamps: 1000 / TPOT. Null without a stream."""
    tpot = tpot_ms(requests)
    return known_where(pc.greater(tpot, 0), pc.divide(1000.0, tpot))


def ttft_over_engine_ms(requests: pa.Table) -> pa.ChunkedArray:
    """Client TTFT - engine's time to first token: network, queue where the engine leaves it out, both ends."""
    return pc.subtract(ttft_ms(requests), pc.multiply(engine_first_token_s(requests), 1000.0))


def e2e_over_engine_ms(requests: pa.Table) -> pa.ChunkedArray:
    """Client end-to-end latency - engine's time for the request."""
    return pc.subtract(e2e_ms(requests), pc.multiply(engine_request_s(requests), 1000.0))


# -- a point ---------------------------------------------------------------------------------------


def prefill_rate(requests: pa.Table) -> float | None:
    """Prefilled tokens / prefill seconds, over the requests whose engine tells both."""
    return _pooled(requests, computed_tokens(requests), requests["engine_prefill_s"])


def decode_rate(requests: pa.Table) -> float | None:
    """Sum of (output tokens - 1) / sum of decode seconds, over the requests whose engine tells them."""
    return _pooled(requests, pc.subtract(requests["output_tokens"], 1), requests["engine_decode_s"])


def request_rate(requests: pa.Table) -> float | None:
    """Sum of output tokens / sum of the engine's seconds for whole requests."""
    return _pooled(requests, requests["output_tokens"], engine_request_s(requests))


def acceptance_rate(requests: pa.Table) -> float | None:
    """Accepted draft tokens / draft tokens, over the requests that report both."""
    return _pooled(requests, requests["accepted_tokens"], requests["draft_tokens"])


def tokens_per_round(requests: pa.Table) -> float | None:
    """1 + accepted draft tokens / verify rounds: with the bonus token that each round gives."""
    accepted = _pooled(requests, requests["accepted_tokens"], requests["verify_rounds"])
    return None if accepted is None else 1 + accepted


def total_s(requests: pa.Table, seconds: pa.ChunkedArray) -> float | None:
    """Sum over the successful requests; None when any of them is unknown."""
    known = seconds.filter(succeeded(requests))
    return None if known.null_count or not len(known) else float(pc.sum(known).as_py())


def truncated_answers(requests: pa.Table) -> int:
    """Successful requests whose answer ended because its budget was used up."""
    cut = pc.is_in(requests["finish_reason"], value_set=pa.array(BUDGET_REASONS, pa.string()))
    return count(pc.and_(succeeded(requests), cut))


def empty_answers(requests: pa.Table) -> int:
    """Successful requests of which tokens came and none of them was of the answer."""
    return count(pc.and_(succeeded(requests), pc.fill_null(requests["no_answer_text"], False)))


def client_agrees(over_ms: float, e2e_ms: float) -> bool:
    """Whether a client's E2E that is so much longer than its engine's is no news: network, both HTTP ends."""
    return -EARLY_MS <= over_ms <= max(AGREE_MS, AGREE_SHARE * e2e_ms)


def _ratio(requests: pa.Table, amount: pa.ChunkedArray, seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    known = pc.and_(succeeded(requests), pc.and_(pc.greater(seconds, 0), pc.greater(amount, 0)))
    return known_where(known, pc.divide(pc.cast(amount, pa.float64()), seconds))


def _pooled(requests: pa.Table, amount: pa.ChunkedArray, divisor: pa.ChunkedArray) -> float | None:
    both = pc.and_(succeeded(requests), pc.and_(pc.is_valid(amount), pc.is_valid(divisor)))
    return rate_per_s(float(sample(amount.filter(both)).sum()), float(sample(divisor.filter(both)).sum()))
