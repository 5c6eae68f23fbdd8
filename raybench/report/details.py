"""What a page shows of one point beyond its row: requests, in flight, chunk gaps, GPU memory, the engine's queue.

Reads the Parquet files of a run once, in batches, so that memory holds the light columns of one point and not
the records of a run. Only the final attempt of each point is told, without its prewarm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raybench.analysis.in_flight import in_flight
from raybench.analysis.metrics import chunk_gap_ms
from raybench.analysis.stats import Floats
from raybench.records.rundir import RunDirectory
from raybench.report.points import Point

#: So many requests of a point are drawn and listed; of more, every k-th by time of sending.
REQUESTS_SHOWN = 256
#: So many failed ones are shown beside these in any case.
FAILED_SHOWN = 64
#: A time line is drawn with about so many values.
TIMELINE_VALUES = 240
BATCH_ROWS = 16_384

#: Numbers of a point that are one request's own (nearest rank), each with the column of the request.
OWN_VALUES = {
    f"{metric}_ms_{part}": f"{metric}_ms" for metric in ("ttft", "tpot", "e2e") for part in ("p95", "max")
}

#: Chunk gaps are counted in bins of equal width on a logarithmic scale: so many a decade, from 0.01 ms to 1,000 s.
GAP_BINS_PER_DECADE = 8
GAP_EDGES_MS = 10.0 ** (np.arange(8 * GAP_BINS_PER_DECADE + 1) / GAP_BINS_PER_DECADE - 2)

_LIGHT = (
    "point_id",
    "phase",
    "ticket",
    "worker",
    "outcome",
    "error_class",
    "sent_ns",
    "first_token_ns",
    "last_token_ns",
    "sent_unix_ns",
    "end_unix_ns",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "engine_queue_s",
)


@dataclass(frozen=True)
class Timeline:
    """Values over seconds since the first send. low and high are of what lies together in one place."""

    at_s: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class PointDetail:
    """requests: rows of those shown, by time of sending, with `sent_s`, `first_s`, `last_s`, `end_s` and
    `queue_s` (seconds since the first send; queue_s: when the engine took it up, None where it does not say).

    total: all requests of the load. gap_counts: chunk gaps by the bins between `GAP_EDGES_MS`.
    gpu: bytes in use, lowest and highest of all devices. running, queued: as the engine counts them.
    """

    total: int
    requests: Sequence[dict[str, Any]]
    in_flight: Timeline
    gap_counts: npt.NDArray[np.int64]
    start_unix_ns: int
    gpu: Timeline | None = None
    running: Timeline | None = None
    queued: Timeline | None = None

    @property
    def end_s(self) -> float:
        return max((row["end_s"] for row in self.requests), default=0.0)


@dataclass
class _Gathering:
    """Records of one point while the file is read: light columns, and chunk gaps already counted."""

    tables: list[pa.Table] = field(default_factory=list)
    gaps: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(GAP_EDGES_MS) - 1, dtype=np.int64))


def read_details(run: RunDirectory, points: Sequence[Point]) -> dict[str, PointDetail]:
    """By point id, of the points given that have records. Empty where the run has no records (imported)."""
    if not run.requests_parquet.is_file():
        return {}
    rows = {point["point_id"]: point for point in points}
    found = {
        point_id: detail
        for point_id, gathered in _gather(run)
        if point_id in rows
        and (detail := _detail(pa.concat_tables(gathered.tables), gathered.gaps, rows[point_id]))
    }
    gpus = _samples(run.gpu_parquet, "gpu_uuid", "memory_in_use_bytes")
    servers = _samples(run.server_parquet, "running_requests", "queued_requests")
    return {
        point_id: _with_monitors(detail, gpus.get(point_id), servers.get(point_id))
        for point_id, detail in found.items()
    }


def _gather(run: RunDirectory) -> Iterator[tuple[str, _Gathering]]:
    """Point by point as they lie in the file; merge writes the records of one attempt together."""
    with pq.ParquetFile(run.requests_parquet) as file:
        present = [name for name in _LIGHT if name in file.schema_arrow.names]
        columns = [*present, "final", "chunk_ns"]
        current, gathered = None, _Gathering()
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
            table = pa.Table.from_batches([batch])
            table = table.filter(pc.and_(table["final"], pc.equal(pc.fill_null(table["phase"], "load"), "load")))
            for point_id in pc.unique(table["point_id"]).to_pylist():
                if point_id != current:
                    if current is not None:
                        yield current, gathered
                    current, gathered = point_id, _Gathering()
                own = table.filter(pc.equal(table["point_id"], point_id))
                gathered.gaps += _gap_counts(chunk_gap_ms(own))
                gathered.tables.append(own.select(present))
        if current is not None:
            yield current, gathered


def _gap_counts(gaps_ms: Floats) -> npt.NDArray[np.int64]:
    """How many gaps lie in each bin; what is outside counts in the outermost."""
    if not gaps_ms.size:
        return np.zeros(len(GAP_EDGES_MS) - 1, dtype=np.int64)
    place = (np.log10(np.maximum(gaps_ms, GAP_EDGES_MS[0])) + 2) * GAP_BINS_PER_DECADE
    bins = np.clip(place.astype(np.int64), 0, len(GAP_EDGES_MS) - 2)
    return np.bincount(bins, minlength=len(GAP_EDGES_MS) - 1)


def _detail(table: pa.Table, gaps: npt.NDArray[np.int64], point: Point) -> PointDetail | None:
    """None where no request of the point was sent: there is no time line."""
    sent = table.filter(pc.and_(pc.is_valid(table["sent_unix_ns"]), pc.is_valid(table["end_unix_ns"])))
    if not sent.num_rows:
        return None
    sent = sent.sort_by([("sent_unix_ns", "ascending"), ("ticket", "ascending")])
    starts, ends = sent["sent_unix_ns"].to_numpy(), sent["end_unix_ns"].to_numpy()
    start = int(starts[0])
    flow = in_flight(starts, ends)
    rows = sent.take(_shown(sent, point)).to_pylist()
    return PointDetail(
        total=table.num_rows,
        requests=[_timed(row, start) for row in rows],
        in_flight=_thinned((flow.at_ns - start) / 1e9, flow.level.astype(np.float64)),
        gap_counts=gaps,
        start_unix_ns=start,
    )


def _shown(sent: pa.Table, point: Point) -> npt.NDArray[np.int64]:
    """Which requests to show: all, or evenly spread ones, the failed, and those that a percentile is."""
    if sent.num_rows <= REQUESTS_SHOWN:
        return np.arange(sent.num_rows)
    chosen = set(np.linspace(0, sent.num_rows - 1, REQUESTS_SHOWN).astype(int).tolist())
    failed = np.flatnonzero(np.asarray(pc.not_equal(sent["outcome"], "ok")))
    chosen.update(failed[:FAILED_SHOWN].tolist())
    for name, column in OWN_VALUES.items():
        same = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(sent[column], point[name]), False)))
        chosen.update(same[:1].tolist())
    return np.asarray(sorted(chosen), dtype=np.int64)


def _timed(row: dict[str, Any], start_unix_ns: int) -> dict[str, Any]:
    """A request with its stamps in seconds since the first send of its point."""
    shift = row["sent_unix_ns"] - row["sent_ns"] - start_unix_ns
    sent_s = (row["sent_unix_ns"] - start_unix_ns) / 1e9

    def seconds(name: str) -> float | None:
        return None if row.get(name) is None else (row[name] + shift) / 1e9

    queue = row.get("engine_queue_s")
    return row | {
        "sent_s": sent_s,
        "queue_s": None if queue is None else sent_s + queue,
        "first_s": seconds("first_token_ns"),
        "last_s": seconds("last_token_ns"),
        "end_s": (row["end_unix_ns"] - start_unix_ns) / 1e9,
    }


def _thinned(at_s: Floats, values: Floats) -> Timeline:
    """A step function as it is, or its lowest and highest value in each of many equal parts of the time."""
    if at_s.size <= 2 * TIMELINE_VALUES:
        plain = values.tolist()
        return Timeline(at_s.tolist(), plain, plain)
    part = np.minimum(((at_s - at_s[0]) / (at_s[-1] - at_s[0]) * TIMELINE_VALUES).astype(int), TIMELINE_VALUES - 1)
    firsts = np.flatnonzero(np.append(True, np.diff(part) > 0))
    return Timeline(
        at_s[firsts].tolist(),
        np.minimum.reduceat(values, firsts).tolist(),
        np.maximum.reduceat(values, firsts).tolist(),
    )


def _samples(path: Path, *columns: str) -> dict[str, pa.Table]:
    """Samples of one monitor by the point under whose load they were taken; empty where there are none."""
    if not path.is_file():
        return {}
    table = pq.read_table(path, columns=["point_id", "aligned_unix_ns", *columns], memory_map=False)
    table = table.filter(pc.and_(pc.is_valid(table["point_id"]), pc.is_valid(table["aligned_unix_ns"])))
    return {
        point_id: table.filter(pc.equal(table["point_id"], point_id))
        for point_id in pc.unique(table["point_id"]).to_pylist()
    }


def _with_monitors(detail: PointDetail, gpu: pa.Table | None, server: pa.Table | None) -> PointDetail:
    devices = []
    if gpu is not None:
        uuids = pc.unique(gpu["gpu_uuid"]).to_pylist()
        devices = [gpu.filter(pc.equal(gpu["gpu_uuid"], uuid)) for uuid in uuids]
    engine = [] if server is None else [server]
    return replace(
        detail,
        gpu=_timeline(devices, "memory_in_use_bytes", detail),
        running=_timeline(engine, "running_requests", detail),
        queued=_timeline(engine, "queued_requests", detail),
    )


def _timeline(series: Sequence[pa.Table], column: str, detail: PointDetail) -> Timeline | None:
    """The highest value of each series in each of many equal parts of the load: over all series the lowest
    and the highest of these. None where no series has two samples, which make the shortest line; those of
    rejected attempts lie before the first send.
    """
    known = [stamped for one in series if (stamped := _known(one, column, detail.start_unix_ns))[0].size > 1]
    if not known:
        return None
    moments = max(1, min(TIMELINE_VALUES, min(at_s.size for at_s, _ in known)))
    edges = np.linspace(0, max(float(at_s[-1]) for at_s, _ in known), moments + 1)[:-1]
    highest = []
    for at_s, values in known:
        firsts = np.searchsorted(at_s, edges, side="left").clip(0, at_s.size - 1)
        highest.append(np.maximum.reduceat(values, firsts))
    return Timeline(edges.tolist(), np.min(highest, axis=0).tolist(), np.max(highest, axis=0).tolist())


def _known(samples: pa.Table, column: str, start_unix_ns: int) -> tuple[Floats, Floats]:
    """Seconds since the first send and values, in order of time."""
    known = samples.filter(
        pc.and_(pc.is_valid(samples[column]), pc.greater_equal(samples["aligned_unix_ns"], start_unix_ns))
    ).sort_by("aligned_unix_ns")
    at_s = (known["aligned_unix_ns"].to_numpy() - start_unix_ns) / 1e9
    return at_s, known[column].to_numpy().astype(np.float64)
