"""What each client host carried in one attempt, from its records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    """Who wrote a worker's records: its host, and which client it sent with."""

    host: str
    client: str


def node_loads(requests: pa.Table, writers: Mapping[str, Writer]) -> dict[str, NodeLoad]:
    """By host. requests: load rows with `sent_unix_ns`, `end_unix_ns`; chunk stamps are the host's own clock.

    Hosts that sent nothing are left out.
    """
    loads = {}
    for host in sorted({writer.host for writer in writers.values()}):
        own = [worker for worker, writer in writers.items() if writer.host == host]
        rows = requests.filter(pc.is_in(requests["worker"], pa.array(own, pa.string())))
        sent = rows.filter(pc.is_valid(rows["sent_unix_ns"]))
        peak = in_flight(sent["sent_unix_ns"].to_numpy(), sent["end_unix_ns"].to_numpy()).peak
        if peak is not None:
            loads[host] = NodeLoad(writers[own[0]].client, peak, _tokens_per_s_peak(rows))
    return loads


def _tokens_per_s_peak(rows: pa.Table) -> float | None:
    kept = rows.filter(pc.is_valid(rows["chunk_ns"]))
    stamps = pc.list_flatten(kept["chunk_ns"]).to_numpy()
    if not stamps.size:
        return None
    seconds = (stamps - stamps.min()) // NS_PER_S
    return float(np.bincount(seconds, weights=_tokens(kept)).max())


def _tokens(rows: pa.Table) -> npt.NDArray[np.float64]:
    """Tokens of each chunk; where the server did not count them, each chunk's even share of its answer's."""
    chunks = pc.list_value_length(rows["chunk_ns"]).to_numpy()
    answered = pc.add(pc.fill_null(rows["output_tokens"], 0), pc.fill_null(rows["partial_output_tokens"], 0))
    shares = np.repeat(answered.to_numpy() / np.maximum(chunks, 1), chunks)
    counted = pc.list_flatten(rows["chunk_tokens"]).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.where(np.isnan(counted), shares, counted)
