"""What each client host carried in one attempt, from its records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.in_flight import in_flight

NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class NodeLoad:
    """tokens_per_s_peak: the most tokens read in one second; None where chunks were not kept."""

    client: str
    in_flight_peak: int
    tokens_per_s_peak: float | None


@dataclass(frozen=True)
class Writer:
    """Who wrote a worker's records: its host, and which client it sent with.

    tokens_by_second: what its load read in each whole second of its host's monotonic clock, which all workers of
    the host share; empty where chunks were not kept.
    """

    host: str
    client: str
    tokens_by_second: Mapping[int, float] = field(default_factory=dict)


def node_loads(requests: pa.Table, writers: Mapping[str, Writer]) -> dict[str, NodeLoad]:
    """By host. requests: load rows with `sent_unix_ns`, `end_unix_ns`; their chunks are not looked at.

    Hosts that sent nothing are left out.
    """
    loads = {}
    for host in sorted({writer.host for writer in writers.values()}):
        own = {worker: writer for worker, writer in writers.items() if writer.host == host}
        rows = requests.filter(pc.is_in(requests["worker"], pa.array(list(own), pa.string())))
        sent = rows.filter(pc.is_valid(rows["sent_unix_ns"]))
        peak = in_flight(sent["sent_unix_ns"].to_numpy(), sent["end_unix_ns"].to_numpy()).peak
        if peak is not None:
            client = next(iter(own.values())).client
            loads[host] = NodeLoad(client, peak, _tokens_per_s_peak(own.values()))
    return loads


def _tokens_per_s_peak(writers: Iterable[Writer]) -> float | None:
    seconds: dict[int, float] = {}
    for writer in writers:
        for second, tokens in writer.tokens_by_second.items():
            seconds[second] = seconds.get(second, 0.0) + tokens
    return max(seconds.values(), default=None)


def tokens_by_second(rows: pa.Table) -> dict[int, float]:
    """Tokens that one worker read, by whole seconds of `chunk_ns`. rows: its records, as its part has them."""
    if "chunk_ns" not in rows.column_names:
        return {}  # torn inside its schema
    kept = rows.filter(pc.is_valid(rows["chunk_ns"]))
    stamps = pc.list_flatten(kept["chunk_ns"]).to_numpy()
    if not stamps.size:
        return {}
    first = int(stamps.min()) // NS_PER_S
    sums = np.bincount(stamps // NS_PER_S - first, weights=_tokens(kept)).tolist()
    return {first + number: tokens for number, tokens in enumerate(sums)}


def _tokens(rows: pa.Table) -> npt.NDArray[np.float64]:
    """Tokens of each chunk; where the server did not count them, each chunk's even share of its answer's."""
    chunks = pc.list_value_length(rows["chunk_ns"]).to_numpy()
    answered = pc.add(pc.fill_null(rows["output_tokens"], 0), pc.fill_null(rows["partial_output_tokens"], 0))
    shares = np.repeat(answered.to_numpy() / np.maximum(chunks, 1), chunks)
    counted = pc.list_flatten(rows["chunk_tokens"]).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.where(np.isnan(counted), shares, counted)
