"""What the records say beside what the engine says of itself: counts, latencies, request by request. Pure but
for reading the merged tables; it needs neither the server nor Ray.

Two books kept by two programs: the client's records, and the engine's counters and histograms before and after
the load (in the journal) and what it told with each answer. A difference is equal to nothing, within what lies
between the two clocks, explained by something that is known, or flagged.

A lateness is explained by the head of the answer when it lies before it: with a clock that starts where the
client read the head, the same comparison agrees. SGLang writes the head of a stream and starts its own clock with
the next statement (`stream_results` of `/generate`): the wait for its HTTP process is in no number of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raybench.analysis.history import Attempt, read_history
from raybench.analysis.metrics import Floats, sample, succeeded
from raybench.analysis.stats import mean, nearest_rank
from raybench.engines.histogram import Histogram
from raybench.errors import RunDirectoryError
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory

#: Above, and up to: None = without end.
Bounds = tuple[float, float | None]
Judgement = Literal["equal", "agrees", "explained", "flagged"]

#: Between the engine's clock and ours lie its HTTP server, the network and our reading: so much, in ms or as a
#: share of the engine's value, whichever is more, is no news.
BETWEEN_MS, BETWEEN_SHARE = 20.0, 0.05
#: We cannot see an answer before the engine does: what is sooner by more than this is a fault of a clock.
SOONER_MS = 1.0

_COLUMNS = [
    *("point_id", "phase", "final", "outcome", "tries", "ttft_ms", "tpot_ms", "e2e_ms", "sent_unix_ns"),
    *("sent_ns", "headers_ns", "first_token_ns", "last_token_ns", "input_tokens", "input_tokens_asked"),
    *("output_tokens", "output_tokens_asked", "cached_tokens", "engine_queue_s", "engine_ttft_s", "engine_e2e_s"),
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
    none because it was imported.
    """
    if run.read_manifest().get("imported"):
        raise RunDirectoryError(f"{run.path}: was imported, so there are no records to hold against an engine")
    if not run.requests_parquet.is_file():
        raise RunDirectoryError(
            f"{run.path}: has no {run.requests_parquet.name}; make it with: raybench merge {run.path}"
        )
    rows = pq.read_table(run.requests_parquet, columns=_COLUMNS, memory_map=False)
    rows = rows.filter(pc.and_(rows["final"], pc.equal(rows["phase"], "load")))
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
    sums: dict[str, tuple[float | None, float]] = {
        "requests": (ok.num_rows, _sum(rows["tries"])),
        "input_tokens": (_known_sum(ok["input_tokens"]), _sum_of_tries(rows, "input_tokens_asked")),
        "output_tokens": (_known_sum(ok["output_tokens"]), _sum_of_tries(rows, "output_tokens_asked")),
        "cached_tokens": (_known_sum(ok["cached_tokens"]), _sum_of_tries(rows, "input_tokens_asked")),
    }
    for name, (client, most) in sums.items():
        engine = _moved(attempt.counters_before, attempt.counters_after, name)
        if engine is None or client is None:
            continue
        if engine == client:
            yield CountLine(name, engine, client, "equal")
        elif ok.num_rows < rows.num_rows and client < engine <= most:
            failed = rows.num_rows - ok.num_rows
            yield CountLine(name, engine, client, "explained", f"the engine counted some of {failed} that failed")
        else:
            side = "more" if engine > client else "less"
            yield CountLine(
                name, engine, client, "flagged", f"{abs(engine - client):,.0f} {side} than the records"
            )


def _moved(before: Mapping[str, float | None], after: Mapping[str, float | None], name: str) -> float | None:
    first, last = before.get(name), after.get(name)
    return None if first is None or last is None else last - first


def _known_sum(column: pa.ChunkedArray) -> float | None:
    """None when one is not known: a sum never takes unknown for zero."""
    return None if column.null_count else _sum(column)


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
    gaps = pc.subtract(ok["output_tokens"], 1)
    spans = pc.subtract(ok["last_token_ns"], ok["first_token_ns"])
    if gaps.null_count or spans.null_count or not _sum(gaps):
        return None
    return int(_sum(gaps)), _sum(spans) / 1e6 / _sum(gaps)


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
    judgement, why = _of_values(line, lag_ms)
    if why and since_head is not None and _agrees(since_head, line.client_n):
        head_ms = line.client_mean_ms - since_head.client_mean_ms
        judgement, why = _before_head(line.difference_ms, head_ms, judgement, why)
    return replace(line, judgement=judgement, why=why)


def _agrees(since_head: LatencyLine, n: int) -> bool:
    return since_head.client_n == n and _of_values(since_head, None)[0] == "agrees"


def _of_values(line: LatencyLine, lag_ms: float | None) -> tuple[Judgement, str]:
    judgement, why = _of_means(line, lag_ms)
    return _of_percentiles(line, lag_ms) if judgement == "agrees" else (judgement, why)


def _of_means(line: LatencyLine, lag_ms: float | None) -> tuple[Judgement, str]:
    limit = between_ms(line.engine_mean_ms)
    if line.name in ("ttft", "e2e"):
        return _beyond(line.difference_ms, line.difference_ms, limit, lag_ms)
    if abs(line.difference_ms) > limit:
        return "flagged", f"more than {limit:.1f} ms apart"
    return "agrees", ""


def _of_percentiles(line: LatencyLine, lag_ms: float | None) -> tuple[Judgement, str]:
    pairs = ((50, line.client_p50_ms, line.engine_p50_ms), (99, line.client_p99_ms, line.engine_p99_ms))
    for percent, value, bounds in pairs:
        if value is None or bounds is None or (outside_ms := _outside_ms(value, bounds)) == 0:
            continue
        why = f"P{percent} lies {outside_ms:.1f} ms outside the engine's bucket"
        if lag_ms is not None and outside_ms <= lag_ms:
            return "explained", f"{why}; the client was up to {lag_ms:.0f} ms late"
        return "flagged", why
    return "agrees", ""


def between_ms(engine_ms: float) -> float:
    """How much later than the engine we may see something that it saw at `engine_ms`."""
    return max(BETWEEN_MS, BETWEEN_SHARE * engine_ms)


def _outside_ms(value_ms: float, bounds_ms: Bounds) -> float:
    """How far the client's percentile is from where the engine's own would let us see it; 0 inside."""
    above, up_to = bounds_ms
    if value_ms < above - SOONER_MS:
        return above - value_ms
    if up_to is None or value_ms <= up_to + between_ms(up_to):
        return 0.0
    return value_ms - up_to


def _beyond(least_ms: float, typical_ms: float, limit_ms: float, lag_ms: float | None) -> tuple[Judgement, str]:
    """least, typical: client minus engine."""
    if least_ms < -SOONER_MS and lag_ms is not None and -least_ms <= lag_ms:
        return "explained", f"the client's stamps were up to {lag_ms:.0f} ms late"
    if least_ms < -SOONER_MS:
        return "flagged", f"seen {-least_ms:.1f} ms sooner than the engine: a clock or a stamp is wrong"
    if typical_ms <= limit_ms:
        return "agrees", ""
    if lag_ms is not None and typical_ms <= lag_ms:
        return "explained", f"the client read up to {lag_ms:.0f} ms late"
    return "flagged", f"{typical_ms:.1f} ms later than the engine, of which {limit_ms:.1f} ms are no news"


def _before_head(late_ms: float, head_ms: float, judgement: Judgement, why: str) -> tuple[Judgement, str]:
    """judgement, why: without looking at the head; what explains it as well is told as well."""
    told = f"{late_ms:.1f} ms later than the engine, {head_ms:.1f} ms passed before the head of the answer"
    return "explained", f"{told}; {why}" if judgement == "explained" else told


def _ms(bounds_s: Bounds | None) -> Bounds | None:
    if bounds_s is None:
        return None
    above, up_to = bounds_s
    return above * 1000, None if up_to is None else up_to * 1000


# -- request by request ----------------------------------------------------------------------------


def _paired(ok: pa.Table, lag_ms: float | None) -> Iterator[PairedLine]:
    head_ms = _head_ms(ok)
    for name, ours, theirs in (("ttft", "ttft_ms", "engine_ttft_s"), ("e2e", "e2e_ms", "engine_e2e_s")):
        engine_ms = pc.multiply(ok[theirs], 1000.0)
        apart = pc.subtract(ok[ours], engine_ms)
        since_head = pc.subtract(apart, head_ms)
        differences = sample(apart)
        p50, p99 = nearest_rank(differences, 50), nearest_rank(differences, 99)
        if p50 is None or p99 is None:
            continue
        least = float(differences.min())
        limit = between_ms(mean(sample(engine_ms)) or 0.0)
        judgement, why = _beyond(least, p50, limit, lag_ms)
        known = since_head.null_count == apart.null_count
        if why and known and least >= -SOONER_MS and _agree_from_head(since_head, engine_ms, limit):
            judgement, why = _before_head(p50, nearest_rank(sample(head_ms), 50) or 0.0, judgement, why)
        yield PairedLine(name, differences.size, p50, p99, least, float(differences.max()), judgement, why)


def _agree_from_head(since_head: pa.ChunkedArray, engine_ms: pa.ChunkedArray, limit_ms: float) -> bool:
    """Client minus engine, by request: as late as is no news, and all but one in twenty hardly sooner.

    A head that came after the engine's clock began takes from the engine's own time, and we seem to be sooner: by
    all of it where the head comes with the first token. A few heads that we read late ourselves look the same.
    """
    no_news = pc.max_element_wise(pc.multiply(engine_ms, BETWEEN_SHARE), SOONER_MS)
    typical, sooner = nearest_rank(sample(since_head), 50), nearest_rank(sample(pc.add(since_head, no_news)), 5)
    return typical is not None and typical <= limit_ms and sooner is not None and sooner >= 0
