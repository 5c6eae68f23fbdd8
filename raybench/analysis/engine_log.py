"""A server's own request log joined to the records of an attempt: engine timings where the answers told none.

Pure. A line belongs to a record when the record's `response_id` names it. Where ids tell nothing, lines are laid
beside the records in the order of their ends, and count only if there are as many of both, and each pair agrees in
prompt and output tokens: a guess never gets into a column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.metrics import succeeded
from raybench.engines.request_log import LoggedRequest

#: Columns that a line fills, with its field; a value that the answer gave itself stays.
_FILLED = {
    "cached_tokens": "cached_tokens",
    "engine_queue_s": "queue_s",
    "engine_prefill_s": "prefill_s",
    "engine_decode_s": "decode_s",
    "engine_ttft_s": "ttft_s",
    "engine_e2e_s": "total_s",
    "draft_tokens": "draft_tokens",
    "accepted_tokens": "accepted_tokens",
    "verify_rounds": "verify_rounds",
}
#: A log's stamp may lie this far outside the load by the coordinator's clock: the host has a clock of its own.
MARGIN_MS = 5000


def join_log(
    requests: pa.Table, log: Sequence[LoggedRequest], load_unix_ns: tuple[int, int] | None
) -> tuple[pa.Table, str | None]:
    """The records of one attempt with what the log adds, and what is wrong with the join (None: nothing).

    load_unix_ns: start and end of the attempt's load. Without a log the table is returned as it is.
    """
    if not log or load_unix_ns is None or not requests.num_rows:
        return requests, None
    begin, end = (stamp // 1_000_000 for stamp in load_unix_ns)
    near = [one for one in log if begin - MARGIN_MS <= one.ended_unix_ms <= end + MARGIN_MS]
    rows = requests.select(["phase", "response_id", "end_unix_ns", "input_tokens", "output_tokens"]).to_pylist()
    ok = succeeded(requests).to_pylist()
    ours = [index for index, row in enumerate(rows) if ok[index] and row["phase"] != "prewarm"]
    pairs = _by_id(rows, ours, near)
    if pairs is None:
        pairs = _by_order(rows, ours, near)
    if pairs is None:
        return requests, (
            f"the server's request log cannot be joined: {len(near)} lines around the load, {len(ours)} successful"
            " requests, and neither ids nor token counts tell which is which"
        )
    return _filled(requests, pairs), None


def _by_id(
    rows: Sequence[dict[str, object]], ours: Sequence[int], log: Sequence[LoggedRequest]
) -> dict[int, LoggedRequest] | None:
    """By the response's id, as a whole or the number at its end (`chatcmpl-17`); None if any has no line."""
    known = {one.request_id: one for one in log}
    if len(known) != len(log):
        return None
    pairs: dict[int, LoggedRequest] = {}
    for index in ours:
        identity = str(rows[index]["response_id"] or "")
        number = re.search(r"[0-9]+$", identity)
        line = known.get(identity) or (known.get(number[0]) if number else None)
        if line is None or not _agree(rows[index], line):
            return None
        pairs[index] = line
    return pairs if len({line.request_id for line in pairs.values()}) == len(pairs) else None


def _by_order(
    rows: Sequence[dict[str, object]], ours: Sequence[int], log: Sequence[LoggedRequest]
) -> dict[int, LoggedRequest] | None:
    if len(ours) != len(log):
        return None
    ends = sorted(ours, key=lambda index: (rows[index]["end_unix_ns"] is None, rows[index]["end_unix_ns"]))
    pairs = dict(zip(ends, sorted(log, key=lambda one: one.ended_unix_ms), strict=True))
    return pairs if all(_agree(rows[index], line) for index, line in pairs.items()) else None


def _agree(row: dict[str, object], line: LoggedRequest) -> bool:
    return (row["input_tokens"], row["output_tokens"]) == (line.input_tokens, line.output_tokens)


def _filled(requests: pa.Table, pairs: dict[int, LoggedRequest]) -> pa.Table:
    for column, field in _FILLED.items():
        values = [getattr(pairs[index], field) if index in pairs else None for index in range(requests.num_rows)]
        told = pa.chunked_array([pa.array(values, requests.schema.field(column).type)])
        place = requests.schema.get_field_index(column)
        requests = requests.set_column(place, column, pc.coalesce(requests[column], told))
    return requests
