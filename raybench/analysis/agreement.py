"""What the records say beside what the engine says of itself: counts, latencies, request by request. Pure but
for reading the merged tables; it needs neither the server nor Ray.

Two books kept by two programs: the client's records, and the engine's counters and histograms before and after
the load (in the journal) and what it told with each answer. A difference is equal to nothing, within what lies
between the two clocks, explained by something that is known, or flagged (`lateness.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raybench.analysis import metrics
from raybench.analysis.history import Attempt, read_history
from raybench.analysis.lateness import (
    AGREES,
    BETWEEN_SHARE,
    SOONER_MS,
    Bounds,
    Judged,
    Judgement,
    apart,
    before_head,
    between_ms,
    later,
    outside_bucket,
)
from raybench.analysis.metrics import of_load, sample, succeeded
from raybench.analysis.points import merged_table
from raybench.analysis.stats import Floats, mean, nearest_rank
from raybench.engines.histogram import Histogram
from raybench.errors import RunDirectoryError
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory

_COLUMNS = [
    *("point_id", "phase", "final", "outcome", "tries", "ttft_ms", "tpot_ms", "e2e_ms", "sent_unix_ns"),
    *("sent_ns", "headers_ns", "first_token_ns", "last_token_ns", "input_tokens", "input_tokens_asked"),
    *("output_tokens", "output_tokens_asked", "tokens_source", "cached_tokens"),
    *("engine_queue_s", "engine_ttft_s", "engine_e2e_s"),
]
_HEALTH_COLUMNS = ["point_id", "attempt", "aligned_unix_ns", "loop_lag_ms_max"]


@dataclass(frozen=True)
class CountLine:
    """One counter: over the load by the engine, and the sum of the records."""

    name: str
    engine: float
    client: float
    judgement: Judgement
    why: str = ""


@dataclass(frozen=True)
class LatencyLine:
    """One latency in ms, the engine's histogram beside the records.

    n: observations in each. p50 / p99: the client's nearest rank, and the engine's bucket that holds its own.
    """

    name: str
    engine_n: float
    client_n: int
    engine_mean_ms: float
    client_mean_ms: float
    client_p50_ms: float | None = None
    client_p99_ms: float | None = None
    engine_p50_ms: Bounds | None = None
    engine_p99_ms: Bounds | None = None
    judgement: Judgement = "agrees"
    why: str = ""

    @property
    def difference_ms(self) -> float:
        return self.client_mean_ms - self.engine_mean_ms


@dataclass(frozen=True)
class PairedLine:
    """Client minus engine, request by request, in ms."""

    name: str
    n: int
    p50_ms: float
    p99_ms: float
    min_ms: float
    max_ms: float
    judgement: Judgement
    why: str = ""


@dataclass(frozen=True)
class Wait:
    """A part of the way that one side alone sees, in ms; compared with nothing.

    head: from the sending to the head of the answer, by the records. queue: inside the engine, as it told.
    """

    name: Literal["head", "queue"]
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Agreement:
    """Of the final attempt of one point."""

    point_id: str
    requests: int
    failed: int
    counts: tuple[CountLine, ...]
    latencies: tuple[LatencyLine, ...]
    paired: tuple[PairedLine, ...]
    waits: tuple[Wait, ...]

    @property
    def lines(self) -> tuple[CountLine | LatencyLine | PairedLine, ...]:
        return (*self.counts, *self.latencies, *self.paired)

    @property
    def flagged(self) -> list[CountLine | LatencyLine | PairedLine]:
        return [line for line in self.lines if line.judgement == "flagged"]


def read_agreements(run: RunDirectory) -> list[Agreement]:
    """All points that left records, in the order of the file. Raises RunDirectoryError if it is not merged, or has
    none because it was not measured here (imported, or the outcome of a retest).
    """
    if (made_by := run.read_manifest().get("provenance")) is not None:
        raise RunDirectoryError(f"{run.path}: not measured here ({made_by}): no records to hold against an engine")
    rows = pq.read_table(merged_table(run, run.requests_parquet), columns=_COLUMNS, memory_map=False)
    rows = of_load(rows.filter(rows["final"]))
    history = read_history(read_journal(run.journal))
    health = None
    if run.worker_parquet.is_file():
        health = pq.read_table(run.worker_parquet, columns=_HEALTH_COLUMNS)
    agreements = []
    for point_id in pc.unique(rows["point_id"]).to_pylist():
        attempt = history.point(point_id).final
        if attempt is not None:
            own = rows.filter(pc.equal(rows["point_id"], point_id))
            lag_ms = None if health is None else _lag_ms(health, point_id, attempt.attempt, own)
            agreements.append(agreement(point_id, own, attempt, lag_ms))
    return agreements


def agreement(point_id: str, rows: pa.Table, attempt: Attempt, lag_ms: float | None) -> Agreement:
    """rows: the load of the final attempt as in requests.parquet. lag_ms: the latest that a worker was in it."""
    ok = rows.filter(succeeded(rows))
    return Agreement(
        point_id=point_id,
        requests=rows.num_rows,
        failed=rows.num_rows - ok.num_rows,
        counts=tuple(_counts(rows, ok, attempt)),
        latencies=tuple(_latencies(ok, rows.num_rows - ok.num_rows, attempt, lag_ms)),
        paired=tuple(_paired(ok, lag_ms)),
        waits=tuple(_waits(ok)),
    )


def _lag_ms(health: pa.Table, point_id: str, attempt: int, rows: pa.Table) -> float | None:
    """The latest that a worker's loop was, from the load's first request on; None when nobody wrote it down."""
    own = pc.and_(pc.equal(health["point_id"], point_id), pc.equal(health["attempt"], attempt))
    in_load = pc.greater_equal(health["aligned_unix_ns"], pc.min(rows["sent_unix_ns"]))
    value: float | None = pc.max(health.filter(pc.and_(own, in_load))["loop_lag_ms_max"]).as_py()
    return value


def _waits(ok: pa.Table) -> Iterator[Wait]:
    parts: tuple[tuple[Literal["head", "queue"], pa.ChunkedArray], ...] = (
        ("head", _head_ms(ok)),
        ("queue", pc.multiply(ok["engine_queue_s"], 1000.0)),
    )
    for name, column in parts:
        values = sample(column)
        p50, p99 = nearest_rank(values, 50), nearest_rank(values, 99)
        if p50 is not None and p99 is not None:
            yield Wait(name, p50, p99)


def _head_ms(ok: pa.Table) -> pa.ChunkedArray:
    """From the sending to where the head of the answer was read."""
    return pc.divide(pc.subtract(ok["headers_ns"], ok["sent_ns"]), 1e6)


# -- counts ----------------------------------------------------------------------------------------


def _counts(rows: pa.Table, ok: pa.Table, attempt: Attempt) -> Iterator[CountLine]:
    """What failed may be in the engine's counters with all of it, a part of it, or not at all."""
    failed = rows.num_rows - ok.num_rows
    input_asked = _sum_of_tries(rows, "input_tokens_asked")
    sums: dict[str, tuple[float | None, float]] = {
        "requests": (ok.num_rows, _sum(rows["tries"])),
        "input_tokens": (metrics.input_tokens(ok), input_asked),
        "output_tokens": (metrics.output_tokens(ok), _sum_of_tries(rows, "output_tokens_asked")),
        "cached_tokens": (None if ok["cached_tokens"].null_count else _sum(ok["cached_tokens"]), input_asked),
    }
    for name, (client, most) in sums.items():
        before, after = attempt.counters_before.get(name), attempt.counters_after.get(name)
        if before is None or after is None or client is None:
            continue
        engine = after - before
        if engine == client:
            yield CountLine(name, engine, client, "equal")
        elif failed and client < engine <= most:
            yield CountLine(name, engine, client, "explained", f"the engine counted some of {failed} that failed")
        else:
            why = f"{abs(engine - client):,.0f} {'more' if engine > client else 'less'} than the records"
            yield CountLine(name, engine, client, "flagged", why)


def _sum(column: pa.ChunkedArray) -> float:
    return float(pc.sum(column).as_py() or 0)


def _sum_of_tries(rows: pa.Table, column: str) -> float:
    return _sum(pc.multiply(rows[column], rows["tries"]))


# -- latencies -------------------------------------------------------------------------------------


def _latencies(ok: pa.Table, failed: int, attempt: Attempt, lag_ms: float | None) -> Iterator[LatencyLine]:
    """A latency of requests has a distribution to compare; the gap between tokens only its mean."""
    for name, column, from_head in (
        ("ttft", ok["ttft_ms"], pc.subtract(ok["ttft_ms"], _head_ms(ok))),
        ("e2e", ok["e2e_ms"], pc.subtract(ok["e2e_ms"], _head_ms(ok))),
        ("tpot", ok["tpot_ms"], None),
    ):
        engine = _histogram(attempt, name)
        line = _line(name, engine, sample(column))
        if line is not None:
            since = None if from_head is None else _line(name, engine, sample(from_head))
            yield _judged(line, failed, lag_ms, since)
    engine, gaps = _histogram(attempt, "itl"), _gaps(ok)
    if engine is not None and engine.mean_s is not None and gaps is not None:
        n, gap_ms = gaps
        yield _judged(LatencyLine("itl", engine.count, n, engine.mean_s * 1000, gap_ms), failed, lag_ms)


def _line(name: str, engine: Histogram | None, values: Floats) -> LatencyLine | None:
    """Not judged yet; None where one side knows nothing."""
    ours = mean(values)
    if engine is None or engine.mean_s is None or ours is None:
        return None
    return LatencyLine(
        name,
        engine.count,
        len(values),
        engine.mean_s * 1000,
        ours,
        client_p50_ms=nearest_rank(values, 50),
        client_p99_ms=nearest_rank(values, 99),
        engine_p50_ms=_ms(engine.bounds_s(50)),
        engine_p99_ms=_ms(engine.bounds_s(99)),
    )


def _gaps(ok: pa.Table) -> tuple[int, float] | None:
    """(how many gaps between tokens there were, their mean in ms) over all requests; None if any is not known."""
    tokens = metrics.output_tokens(ok)
    spans = pc.subtract(ok["last_token_ns"], ok["first_token_ns"])
    if tokens is None or spans.null_count or tokens == ok.num_rows:
        return None
    gaps = tokens - ok.num_rows
    return gaps, _sum(spans) / 1e6 / gaps


def _histogram(attempt: Attempt, name: str) -> Histogram | None:
    after = attempt.latencies_after.get(name)
    if after is None:
        return None
    before = attempt.latencies_before.get(name)
    return Histogram.of_record(after).since(None if before is None else Histogram.of_record(before))


def _judged(
    line: LatencyLine, failed: int, lag_ms: float | None, since_head: LatencyLine | None = None
) -> LatencyLine:
    """since_head: the same comparison with the client's clock started at the head of each answer."""
    if line.engine_n != line.client_n:
        why = f"{line.engine_n:,.0f} observations, {line.client_n:,} records"
        if failed and line.engine_n > line.client_n:
            return replace(line, judgement="explained", why=f"{why}: {failed} failed")
        return replace(line, judgement="flagged", why=why)
    judged = _of_values(line, lag_ms)
    if judged != AGREES and since_head is not None and _agrees(since_head, line.client_n):
        head_ms = line.client_mean_ms - since_head.client_mean_ms
        judged = before_head(line.difference_ms, head_ms, judged)
    return replace(line, judgement=judged[0], why=judged[1])


def _agrees(since_head: LatencyLine, n: int) -> bool:
    return since_head.client_n == n and _of_values(since_head, None) == AGREES


def _of_values(line: LatencyLine, lag_ms: float | None) -> Judged:
    """The first of the means and the percentiles that does not agree."""
    limit_ms = between_ms(line.engine_mean_ms)
    if line.name in ("ttft", "e2e"):
        judged = later(line.difference_ms, line.difference_ms, limit_ms, lag_ms)
    else:
        judged = apart(line.difference_ms, limit_ms)
    pairs = ((50, line.client_p50_ms, line.engine_p50_ms), (99, line.client_p99_ms, line.engine_p99_ms))
    for percent, value, bounds in pairs:
        if judged == AGREES and value is not None and bounds is not None:
            judged = outside_bucket(percent, value, bounds, lag_ms)
    return judged


def _ms(bounds_s: Bounds | None) -> Bounds | None:
    if bounds_s is None:
        return None
    above, up_to = bounds_s
    return above * 1000, None if up_to is None else up_to * 1000


# -- request by request ----------------------------------------------------------------------------


def _paired(ok: pa.Table, lag_ms: float | None) -> Iterator[PairedLine]:
    head_ms = _head_ms(ok)
    head_p50 = nearest_rank(sample(head_ms), 50)
    for name, ours, theirs in (("ttft", "ttft_ms", "engine_ttft_s"), ("e2e", "e2e_ms", "engine_e2e_s")):
        engine_ms = pc.multiply(ok[theirs], 1000.0)
        behind = pc.subtract(ok[ours], engine_ms)
        differences, engine_mean_ms = sample(behind), mean(sample(engine_ms))
        p50, p99 = nearest_rank(differences, 50), nearest_rank(differences, 99)
        if p50 is None or p99 is None or engine_mean_ms is None:
            continue
        least, limit_ms = float(differences.min()), between_ms(engine_mean_ms)
        judged = later(least, p50, limit_ms, lag_ms)
        if judged != AGREES and least >= -SOONER_MS and head_p50 is not None:
            since_head = pc.subtract(behind, head_ms)
            known = since_head.null_count == behind.null_count
            if known and _agree_from_head(since_head, engine_ms, limit_ms):
                judged = before_head(p50, head_p50, judged)
        yield PairedLine(name, differences.size, p50, p99, least, float(differences.max()), *judged)


def _agree_from_head(since_head: pa.ChunkedArray, engine_ms: pa.ChunkedArray, limit_ms: float) -> bool:
    """Client minus engine, by request: as late as is no news, and all but one in twenty hardly sooner.

    A head that came after the engine's clock began takes from the engine's own time, and we seem to be sooner: by
    all of it where the head comes with the first token. A few heads that we read late ourselves look the same.
    """
    no_news = pc.max_element_wise(pc.multiply(engine_ms, BETWEEN_SHARE), SOONER_MS)
    typical, sooner = nearest_rank(sample(since_head), 50), nearest_rank(sample(pc.add(since_head, no_news)), 5)
    return typical is not None and typical <= limit_ms and sooner is not None and sooner >= 0
