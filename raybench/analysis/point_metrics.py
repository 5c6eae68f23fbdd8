"""All metrics of one attempt of a point as the columns of its row in points.parquet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis import engine_timings, metrics
from raybench.analysis.in_flight import InFlight, Window, handover_gaps_ms, in_flight
from raybench.analysis.intervals import Interval, percentile_interval, rate_interval
from raybench.analysis.stats import SUMMARY_PARTS, Stamps, nearest_rank, summary_row

Row = dict[str, Any]


def _summary_columns(name: str) -> list[tuple[str, pa.DataType]]:
    return [(f"{name}_{part}", pa.int64() if part == "n" else pa.float64()) for part in SUMMARY_PARTS]


#: Latencies whose percentiles have confidence intervals, and those percentiles.
INTERVALS = tuple((name, percent) for name in ("ttft_ms", "tpot_ms", "e2e_ms") for percent in (50, 95, 99))


def interval_columns(metric: str) -> tuple[str, str]:
    """The columns of the two ends of a metric's interval: `ttft_ms_p95_low`, `ttft_ms_p95_high`."""
    return f"{metric}_low", f"{metric}_high"


def interval_row(metric: str, interval: Interval | None) -> Row:
    """A metric's interval in its columns; null where it has none."""
    low, high = interval_columns(metric)
    return {low: None, high: None} if interval is None else {low: interval.low, high: interval.high}


def interval_of(point: Mapping[str, Any], metric: str) -> Interval | None:
    """A metric's interval out of its columns; None where a row has none."""
    low, high = (point.get(name) for name in interval_columns(metric))
    return None if low is None or high is None else Interval(low, high)


#: The derived columns of requests.parquet; each is also summarised over the requests of a point.
REQUEST_METRICS: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
    **metrics.LATENCIES,
    "engine_prefill_tokens_per_s": engine_timings.engine_prefill_tokens_per_s,
    "engine_decode_tokens_per_s": engine_timings.engine_decode_tokens_per_s,
    "decode_tokens_per_s": engine_timings.decode_tokens_per_s,
    "ttft_over_engine_ms": engine_timings.ttft_over_engine_ms,
    "e2e_over_engine_ms": engine_timings.e2e_over_engine_ms,
}

_INT, _FLOAT = pa.int64(), pa.float64()
Metrics = dict[str, tuple[pa.DataType, Callable[[pa.Table], object]]]

#: Columns that are one number of a whole load, each with its type and its function (formulas in docs/METRICS.md):
#: what the client counted, and what the server said.
_OF_CLIENT: Metrics = {
    "requests": (_INT, len),
    "requests_ok": (_INT, metrics.requests_ok),
    "requests_failed": (_INT, metrics.requests_failed),
    "failure_share": (_FLOAT, metrics.failure_share),
    "errors_by_class": (pa.string(), metrics.errors_by_class),
    "wall_s": (_FLOAT, metrics.wall_s),
    "requests_per_s": (_FLOAT, metrics.requests_per_s),
    "offered_rate_per_s": (_FLOAT, metrics.offered_rate_per_s),
    "sent_rate_per_s": (_FLOAT, metrics.sent_rate_per_s),
    "late_sends": (_INT, metrics.late_sends),
    "input_tokens_total": (_INT, metrics.input_tokens),
    "output_tokens_total": (_INT, metrics.output_tokens),
    "failed_output_tokens": (_INT, metrics.failed_output_tokens),
    "input_tokens_per_s": (_FLOAT, metrics.input_tokens_per_s),
    "output_tokens_per_s": (_FLOAT, metrics.output_tokens_per_s),
    "decode_tokens_per_s": (_FLOAT, metrics.decode_tokens_per_s),
}
_OF_SERVER: Metrics = {
    "tokens_per_chunk": (_FLOAT, metrics.tokens_per_chunk),
    "cached_tokens": (_INT, metrics.cached_tokens),
    "prefix_hit_rate": (_FLOAT, metrics.prefix_hit_rate),
    "accept_length": (_FLOAT, metrics.accept_length),
    "preemptions": (_INT, metrics.preemptions),
    "engine_prefill_s": (_FLOAT, lambda load: engine_timings.total_s(load, load["engine_prefill_s"])),
    "engine_decode_s": (_FLOAT, lambda load: engine_timings.total_s(load, load["engine_decode_s"])),
    "engine_request_s": (_FLOAT, lambda load: engine_timings.total_s(load, engine_timings.engine_request_s(load))),
    "engine_prefill_tokens_per_s": (_FLOAT, engine_timings.prefill_rate),
    "engine_decode_tokens_per_s": (_FLOAT, engine_timings.decode_rate),
    "engine_request_tokens_per_s": (_FLOAT, engine_timings.request_rate),
    "acceptance_rate": (_FLOAT, engine_timings.acceptance_rate),
    "tokens_per_round": (_FLOAT, engine_timings.tokens_per_round),
    "truncated_answers": (_INT, engine_timings.truncated_answers),
    "empty_answers": (_INT, engine_timings.empty_answers),
}

#: Names and types of what `point_metrics` gives.
POINT_METRICS: dict[str, pa.DataType] = dict(
    [
        *[(name, kind) for name, (kind, _) in _OF_CLIENT.items()],
        *[column for name in REQUEST_METRICS for column in _summary_columns(name)],
        *[(end, _FLOAT) for name, p in INTERVALS for end in interval_columns(f"{name}_p{p}")],
        *_summary_columns("chunk_gap_ms"),
        *[(name, kind) for name, (kind, _) in _OF_SERVER.items()],
        ("in_flight_peak", _INT),
        ("in_flight_share", _FLOAT),
        ("in_flight_share_unsent", _FLOAT),
        *_summary_columns("handover_gap_ms"),
        ("steady_start_s", _FLOAT),
        ("steady_end_s", _FLOAT),
        ("steady_share", _FLOAT),
        ("steady_requests", _INT),
        ("input_tokens_per_s_steady", _FLOAT),
        ("output_tokens_per_s_steady", _FLOAT),
        *[(end, _FLOAT) for end in interval_columns("output_tokens_per_s_steady")],
        ("ttft_ms_p95_steady", _FLOAT),
        ("tpot_ms_p95_steady", _FLOAT),
    ]
)


def point_metrics(requests: pa.Table, concurrency: int | None = None) -> Row:
    """The metrics of one attempt, from all of its request records (rows of the prewarm are left out).

    concurrency: the level of a closed loop; None leaves what is told against it unknown.
    """
    load = metrics.of_load(requests)
    row: Row = dict.fromkeys(POINT_METRICS)
    row |= {name: metric(load) for name, (_, metric) in (_OF_CLIENT | _OF_SERVER).items()}
    for name, of_request in REQUEST_METRICS.items():
        row |= summary_row(name, metrics.sample(of_request(load)))
    for name, percent in INTERVALS:
        interval = percentile_interval(metrics.sample(metrics.LATENCIES[name](load)), percent)
        row |= interval_row(f"{name}_p{percent}", interval)
    row |= summary_row("chunk_gap_ms", metrics.chunk_gap_ms(load))
    return row | _in_flight_columns(load, concurrency)


def _flights(load: pa.Table) -> tuple[Stamps, Stamps]:
    """Send and end stamps of all requests that were sent, in one order."""
    sent, end = metrics.on_time_line(load, "sent"), metrics.on_time_line(load, "end")
    known = pc.and_(pc.is_valid(sent), pc.is_valid(end))
    return sent.filter(known).to_numpy(), end.filter(known).to_numpy()


def _in_flight_columns(load: pa.Table, concurrency: int | None) -> Row:
    """Those that are known; all but the peak are told against a concurrency."""
    flights = _flights(load)
    flow = in_flight(*flights)
    row: Row = {"in_flight_peak": flow.peak}
    if concurrency is None or not flow.at_ns.size:
        return row
    row |= summary_row("handover_gap_ms", handover_gaps_ms(*flights, concurrency))
    whole = Window(int(flow.at_ns[0]), int(flow.at_ns[-1]))
    row["in_flight_share"] = flow.share_at(concurrency, whole)
    row["in_flight_share_unsent"] = _share_while_unsent(load, flow, concurrency)
    if (steady := flow.steady_window(concurrency)) is not None:
        row |= _steady_columns(load, steady, whole)
    return row


def _share_while_unsent(load: pa.Table, flow: InFlight, concurrency: int) -> float | None:
    """Share of the time at the level while requests were still unsent.

    That time runs from the moment at which every slot had sent its first request to the last send.
    With one request a slot it has no length: then 1.0 or 0.0, whether the level was reached.
    """
    sent = np.sort(metrics.sample(metrics.on_time_line(load, "sent")))
    if sent.size < concurrency:
        return 0.0
    share = flow.share_at(concurrency, Window(int(sent[concurrency - 1]), int(sent[-1])))
    return share if share is not None else float((flow.peak or 0) >= concurrency)


def _steady_columns(load: pa.Table, steady: Window, whole: Window) -> Row:
    """Metrics of the steady-state window: of requests that ended in it, of tokens that came in it."""
    start = whole.start_ns
    slim = load.drop_columns(["chunk_ns", "chunk_tokens"])
    ended, prefilled = (slim.filter(_inside(load, name, steady)) for name in ("end", "first_token"))
    arrivals = metrics.token_arrivals(load)
    came = None if arrivals is None else int(arrivals[1][steady.contains(arrivals[0])].sum())
    rate = None if arrivals is None else _steady_rate(load, *arrivals, steady)
    seconds = steady.duration_s
    return {
        "steady_start_s": (steady.start_ns - start) / 1e9,
        "steady_end_s": (steady.end_ns - start) / 1e9,
        "steady_share": metrics.rate_per_s(seconds, whole.duration_s),
        "steady_requests": metrics.requests_ok(ended),
        "input_tokens_per_s_steady": metrics.rate_per_s(metrics.input_tokens(prefilled), seconds),
        "output_tokens_per_s_steady": metrics.rate_per_s(came, seconds),
        **interval_row("output_tokens_per_s_steady", rate),
        "ttft_ms_p95_steady": nearest_rank(metrics.sample(metrics.ttft_ms(ended)), 95),
        "tpot_ms_p95_steady": nearest_rank(metrics.sample(metrics.tpot_ms(ended)), 95),
    }


def _steady_rate(load: pa.Table, stamps: Stamps, tokens: Stamps, steady: Window) -> Interval | None:
    """The interval of the output rate, whose slices must outlive most requests to be repeats."""
    longest = nearest_rank(metrics.sample(metrics.e2e_ms(load)), 95)
    if longest is None:
        return None
    return rate_interval(stamps, tokens, (steady.start_ns, steady.end_ns), round(longest * 1e6))


def _inside(load: pa.Table, name: str, window: Window) -> pa.ChunkedArray:
    stamps = metrics.on_time_line(load, name)
    return pc.and_(pc.greater_equal(stamps, window.start_ns), pc.less_equal(stamps, window.end_ns))
