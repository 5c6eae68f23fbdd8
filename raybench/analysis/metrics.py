"""The metrics of a request and of a point: one function a metric (formulas in docs/METRICS.md).

Pure functions over a `pyarrow.Table` of request records (`records/schema.py`); they run wherever
records are read. Null is "not known" and stays null. Failed requests give no latency sample and no
throughput, and are never dropped from n.

Durations of one request come from its own host's monotonic stamps. What spans requests (wall, in
flight) uses the columns `sent_unix_ns` and `end_unix_ns` where merge has added them; a table
without them must come from one host.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.stats import Floats, Stamps, mean

#: A send of an open loop that is later than this, in ms, did not keep its schedule.
LATE_SEND_MS = 20.0


# -- which rows ------------------------------------------------------------------------------------


def of_load(requests: pa.Table) -> pa.Table:
    """The measured requests: all rows but those of the prewarm."""
    return requests.filter(pc.equal(pc.fill_null(requests["phase"], "load"), "load"))


def succeeded(requests: pa.Table) -> pa.ChunkedArray:
    """True for each successful request."""
    return pc.fill_null(pc.equal(requests["outcome"], "ok"), False)


def _of_successful(requests: pa.Table, *columns: str) -> pa.Table:
    # Only what is asked for is copied: the chunk lists are most of a table's bytes.
    return requests.select(columns).filter(succeeded(requests))


# -- one request -----------------------------------------------------------------------------------


def _elapsed_ms(requests: pa.Table, start: str, end: str) -> pa.ChunkedArray:
    return pc.divide(pc.cast(pc.subtract(requests[end], requests[start]), pa.float64()), 1e6)


def known_where(condition: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values where the condition holds, else null."""
    return pc.if_else(pc.fill_null(condition, False), values, pa.scalar(None, pa.float64()))


def ttft_ms(requests: pa.Table) -> pa.ChunkedArray:
    """Time to first token: first token - sent. Null for failed requests."""
    return known_where(succeeded(requests), _elapsed_ms(requests, "sent_ns", "first_token_ns"))


def ttft_scheduled_ms(requests: pa.Table) -> pa.ChunkedArray:
    """First token - scheduled time (open loop). Null for failed requests and in a closed loop."""
    return known_where(succeeded(requests), _elapsed_ms(requests, "scheduled_ns", "first_token_ns"))


def tpot_ms(requests: pa.Table) -> pa.ChunkedArray:
    """Time per output token: (last token - first token) / (output tokens - 1).

    Null for failed requests, for one output token, and where the server did not count the tokens:
    chunks are not tokens, so an estimate from chunks gives no TPOT.
    """
    tokens = requests["output_tokens"]
    known = pc.and_(pc.greater(tokens, 1), pc.and_(succeeded(requests), _counted_by_server(requests)))
    gaps = pc.cast(pc.subtract(tokens, 1), pa.float64())
    return known_where(known, pc.divide(_elapsed_ms(requests, "first_token_ns", "last_token_ns"), gaps))


def e2e_ms(requests: pa.Table) -> pa.ChunkedArray:
    """End-to-end latency: end - sent. Null for failed requests."""
    return known_where(succeeded(requests), _elapsed_ms(requests, "sent_ns", "end_ns"))


def e2e_scheduled_ms(requests: pa.Table) -> pa.ChunkedArray:
    """End - scheduled time (open loop). Null for failed requests and in a closed loop."""
    return known_where(succeeded(requests), _elapsed_ms(requests, "scheduled_ns", "end_ns"))


def connect_wait_ms(requests: pa.Table) -> pa.ChunkedArray:
    """Wait for a connection: connected - asked. Failed requests included."""
    return _elapsed_ms(requests, "asked_ns", "connected_ns")


def send_wait_ms(requests: pa.Table) -> pa.ChunkedArray:
    """Handing the request to the socket: sent - connected. Failed requests included."""
    return _elapsed_ms(requests, "connected_ns", "sent_ns")


def send_delay_ms(requests: pa.Table) -> pa.ChunkedArray:
    """Lateness of the client: sent - scheduled (open loop). Failed requests included."""
    return _elapsed_ms(requests, "scheduled_ns", "sent_ns")


#: What the client measured of one request, by column.
LATENCIES: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
    "ttft_ms": ttft_ms,
    "ttft_scheduled_ms": ttft_scheduled_ms,
    "tpot_ms": tpot_ms,
    "e2e_ms": e2e_ms,
    "e2e_scheduled_ms": e2e_scheduled_ms,
    "connect_wait_ms": connect_wait_ms,
    "send_wait_ms": send_wait_ms,
    "send_delay_ms": send_delay_ms,
}


def sample(values: pa.ChunkedArray) -> Floats:
    """The known values of a column."""
    known: Floats = pc.drop_null(values).to_numpy()
    return known


# -- chunks ----------------------------------------------------------------------------------------


def chunk_gap_ms(requests: pa.Table) -> Floats:
    """Times between neighbouring chunks of the successful requests.

    A chunk carries one or more tokens, so this is neither an inter-token latency nor a TPOT.
    """
    gaps = [np.zeros(0)]
    for batch in _of_successful(requests, "chunk_ns").to_batches():
        chunks = batch.column("chunk_ns")
        parents = pc.list_parent_indices(chunks).to_numpy()
        stamps = pc.list_flatten(chunks).to_numpy(zero_copy_only=False)
        gaps.append(np.diff(stamps)[parents[1:] == parents[:-1]] / 1e6)
    return np.concatenate(gaps)


def tokens_per_chunk(requests: pa.Table) -> float | None:
    """Mean number of tokens that a chunk carried, over the chunks whose tokens the server told."""
    lists = _of_successful(requests, "chunk_tokens")["chunk_tokens"]
    known = pc.drop_null(pc.list_flatten(lists))
    return mean(known.to_numpy())


def token_arrivals(requests: pa.Table) -> tuple[Stamps, Stamps] | None:
    """Stamps of the chunks of the successful requests and the tokens they carried.

    None where chunks were not kept or where the server did not tell the tokens of each.
    """
    stamps, tokens = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    stamped = [name for name in ("sent_ns", "sent_unix_ns") if name in requests.schema.names]
    for batch in _of_successful(requests, "chunk_ns", "chunk_tokens", *stamped).to_batches():
        chunks, carried = batch.column("chunk_ns"), pc.list_flatten(batch.column("chunk_tokens"))
        parents = pc.list_parent_indices(chunks).to_numpy()
        if chunks.null_count or carried.null_count or len(carried) != len(parents):
            return None
        shift = _shift_ns(batch)[parents]
        stamps.append(pc.list_flatten(chunks).to_numpy(zero_copy_only=False) + shift)
        tokens.append(carried.to_numpy().astype(np.int64))
    return np.concatenate(stamps), np.concatenate(tokens)


def _shift_ns(requests: pa.Table) -> Stamps:
    """What brings each row's own stamps onto the common time line; 0 where it has none.

    A request that was never sent has only the stamp of its end there.
    """
    shifts = [
        pc.subtract(requests[f"{name}_unix_ns"], requests[f"{name}_ns"])
        for name in ("sent", "end")
        if {f"{name}_unix_ns", f"{name}_ns"} <= set(requests.schema.names)
    ]
    if not shifts:
        return np.zeros(requests.num_rows, dtype=np.int64)
    return np.asarray(pc.fill_null(pc.coalesce(*shifts), 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def on_time_line(requests: pa.Table, name: str) -> pa.ChunkedArray:
    """The stamps `<name>_ns` on the time line that all rows share; null where not known."""
    if f"{name}_unix_ns" in requests.schema.names:
        return requests[f"{name}_unix_ns"]
    return pc.add(requests[f"{name}_ns"], pa.array(_shift_ns(requests)))


# -- a point ---------------------------------------------------------------------------------------


def wall_s(requests: pa.Table) -> float | None:
    """First sent to last end, over all requests, and nothing else. None when nothing was sent."""
    first = pc.min(on_time_line(requests, "sent")).as_py()
    last = pc.max(on_time_line(requests, "end")).as_py()
    return None if first is None or last is None else (last - first) / 1e9


def input_tokens(requests: pa.Table) -> int | None:
    """Prompt tokens of the successful requests as the server counted them; None if any is unknown."""
    return _total(_of_successful(requests, "input_tokens")["input_tokens"])


def output_tokens(requests: pa.Table) -> int | None:
    """Output tokens of the successful requests as the server counted them; None if any is unknown."""
    successful = _of_successful(requests, "output_tokens", "tokens_source")
    if not pc.all(_counted_by_server(successful), min_count=0).as_py():
        return None
    return _total(successful["output_tokens"])


def failed_output_tokens(requests: pa.Table) -> int:
    """Tokens seen of answers that then failed: told apart, in no throughput."""
    failed = pc.invert(succeeded(requests))
    return int(pc.sum(requests["partial_output_tokens"].filter(failed), min_count=0).as_py())


def rate_per_s(amount: float | None, seconds: float | None) -> float | None:
    """Amount / seconds; None when either is unknown or no time went by."""
    return None if amount is None or not seconds else amount / seconds


def input_tokens_per_s(requests: pa.Table) -> float | None:
    """Input throughput: prompt tokens of successful requests / wall."""
    return rate_per_s(input_tokens(requests), wall_s(requests))


def output_tokens_per_s(requests: pa.Table) -> float | None:
    """Output throughput: output tokens of successful requests / wall."""
    return rate_per_s(output_tokens(requests), wall_s(requests))


def decode_tokens_per_s(requests: pa.Table) -> float | None:
    """Decode rate of one stream: sum of (output tokens - 1) / sum of (last token - first token).

    Over the requests that have a TPOT. Unlike the output throughput it holds no prefill and no queue,
    and does not grow with the number of streams.
    """
    known = requests.select(["first_token_ns", "last_token_ns", "output_tokens"]).filter(
        pc.is_valid(tpot_ms(requests))
    )
    tokens = pc.sum(pc.subtract(known["output_tokens"], 1)).as_py()
    decode_ns = pc.sum(pc.subtract(known["last_token_ns"], known["first_token_ns"])).as_py()
    return None if tokens is None else rate_per_s(tokens, decode_ns / 1e9)


def count(flags: pa.ChunkedArray) -> int:
    """How many are true."""
    return int(pc.sum(flags, min_count=0).as_py())


def requests_ok(requests: pa.Table) -> int:
    """Number of successful requests."""
    return count(succeeded(requests))


def requests_failed(requests: pa.Table) -> int:
    """Number of the others."""
    return count(pc.invert(succeeded(requests)))


def requests_per_s(requests: pa.Table) -> float | None:
    """Successful requests / wall."""
    return rate_per_s(requests_ok(requests), wall_s(requests))


def offered_rate_per_s(requests: pa.Table) -> float | None:
    """Open loop: (requests - 1) / (last scheduled - first scheduled). None for fewer than two."""
    return _rate_of_stamps(on_time_line(requests, "scheduled"))


def sent_rate_per_s(requests: pa.Table) -> float | None:
    """Open loop: (requests sent - 1) / (last sent - first sent). None in a closed loop and for fewer than two."""
    if requests["scheduled_ns"].null_count:
        return None
    return _rate_of_stamps(on_time_line(requests, "sent"))


def _rate_of_stamps(stamps: pa.ChunkedArray) -> float | None:
    known = sample(stamps)
    return rate_per_s(known.size - 1, float(known.max() - known.min()) / 1e9) if known.size > 1 else None


def late_sends(requests: pa.Table) -> int | None:
    """Open loop: requests sent more than LATE_SEND_MS after their time, or never. None in a closed loop."""
    if requests["scheduled_ns"].null_count or not requests.num_rows:
        return None
    return int(requests.num_rows) - count(pc.less_equal(send_delay_ms(requests), LATE_SEND_MS))


def failure_share(requests: pa.Table) -> float | None:
    """Failed requests / all requests. None when there was none."""
    return requests_failed(requests) / requests.num_rows if requests.num_rows else None


def errors_by_class(requests: pa.Table) -> dict[str, int]:
    """Number of failed requests by error class (by outcome where a record names no class), sorted."""
    named = pc.fill_null(pc.coalesce(requests["error_class"], requests["outcome"]), "unknown")
    failed = named.filter(pc.invert(succeeded(requests)))
    counts = {item["values"]: item["counts"] for item in pc.value_counts(failed).to_pylist()}
    return dict(sorted(counts.items()))


def cached_tokens(requests: pa.Table) -> int | None:
    """Prompt tokens found in the prefix cache, over the requests that report them; None if none does."""
    value: int | None = pc.sum(requests["cached_tokens"]).as_py()
    return value


def prefix_hit_rate(requests: pa.Table) -> float | None:
    """Cached tokens / prompt tokens, over the requests that report both. None if none does.

    Retracted requests are left out: they find their own KV in their second prefill.
    """
    both = pc.and_(pc.is_valid(requests["cached_tokens"]), pc.is_valid(requests["input_tokens"]))
    once = pc.equal(pc.fill_null(requests["retractions"], 0), 0)
    told = requests.select(["cached_tokens", "input_tokens"]).filter(pc.and_(both, once))
    asked = pc.sum(told["input_tokens"]).as_py()
    return float(pc.sum(told["cached_tokens"]).as_py()) / asked if asked else None


def accept_length(requests: pa.Table) -> float | None:
    """Mean over the successful requests of the tokens per verify step that the server reports."""
    return mean(sample(_of_successful(requests, "accept_length")["accept_length"]))


def preemptions(requests: pa.Table) -> int | None:
    """Retractions (SGLang) or preemptions (vLLM) that the requests report; None if none reports."""
    value: int | None = pc.sum(requests["retractions"]).as_py()
    return value


def _counted_by_server(requests: pa.Table) -> pa.ChunkedArray:
    return pc.equal(pc.fill_null(requests["tokens_source"], "server"), "server")


def _total(column: pa.ChunkedArray) -> int | None:
    return None if column.null_count else int(pc.sum(column, min_count=0).as_py())
