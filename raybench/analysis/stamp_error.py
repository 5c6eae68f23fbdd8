"""How far a client's stamps are from the truth of a server that shares its clock. Pure.

TTFT error and stamp error: the client's stamp of a token minus the server's stamp of writing it, of the
first token and of all. Gap error: by how much the two sides' times between neighbouring tokens differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raybench.analysis.stats import Stamps, nearest_rank

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class StampErrors:
    """Errors in ms, None without a token to compare. tokens_per_s: the sum of what each stream brought.

    window_ns: from the last first token to the first last one, while all streams were under way; None = never.
    unmatched: streams whose tokens the two sides count differently; they give no errors.
    """

    ttft_ms_p50: float | None
    ttft_ms_p99: float | None
    stamp_ms_p99: float | None
    gap_ms_p99: float | None
    tokens_per_s: float | None
    window_ns: tuple[int, int] | None
    unmatched: int


def stamp_errors(rows: Iterable[Mapping[str, object]], writes: Mapping[str, Sequence[int]]) -> StampErrors:
    """rows: records with `rid`, `chunk_ns`, `chunk_tokens`. writes: the server's stamp of each token, by rid."""
    reads: list[Stamps] = []
    errors: list[Stamps] = []
    gaps: list[Stamps] = []
    unmatched = 0
    for row in rows:
        wrote = np.asarray(writes.get(str(row["rid"]), ()), np.int64)
        read = _reads(row)
        if not read.size or read.size != wrote.size:
            unmatched += 1
            continue
        reads.append(read)
        errors.append(read - wrote)
        gaps.append(np.abs(np.diff(read) - np.diff(wrote)))
    if not reads:
        return StampErrors(None, None, None, None, None, None, unmatched)
    window = max(int(read[0]) for read in reads), min(int(read[-1]) for read in reads)
    first = np.array([error[0] for error in errors])
    return StampErrors(
        _ms(first, 50),
        _ms(first, 99),
        _ms(np.concatenate(errors), 99),
        _ms(np.concatenate(gaps), 99),
        sum(filter(None, map(_rate, reads))) or None,
        window if window[1] > window[0] else None,
        unmatched,
    )


def _rate(stamps: Stamps) -> float | None:
    """Tokens a second of one stream, the first one left out; None of a stream that took no time."""
    took_ns = int(stamps[-1] - stamps[0])
    return (stamps.size - 1) * NS_PER_S / took_ns if took_ns > 0 else None


def _reads(row: Mapping[str, object]) -> Stamps:
    """The client's stamp of each token. A chunk of a count that it does not know is one event: one token here."""
    stamps, counts = row["chunk_ns"] or (), row["chunk_tokens"] or ()
    assert isinstance(stamps, Sequence) and isinstance(counts, Sequence)
    return np.repeat(np.asarray(stamps, np.int64), [1 if count is None else count for count in counts])


def _ms(values: Stamps, percent: int) -> float | None:
    found = nearest_rank(values, percent)
    return None if found is None else found / NS_PER_MS
