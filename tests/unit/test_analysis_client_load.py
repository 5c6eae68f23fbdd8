"""What a client host carried: its own peak of streams and of tokens in a second."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from raybench.analysis.client_load import NodeLoad, Writer, node_loads, tokens_by_second

S = 1_000_000_000
SCHEMA = pa.schema(
    [
        ("worker", pa.string()),
        ("sent_unix_ns", pa.int64()),
        ("end_unix_ns", pa.int64()),
        ("chunk_ns", pa.list_(pa.int64())),
        ("chunk_tokens", pa.list_(pa.int32())),
        ("output_tokens", pa.int64()),
        ("partial_output_tokens", pa.int64()),
    ]
)
WRITERS = {"w0": Writer("a", "wire"), "w1": Writer("a", "wire"), "w2": Writer("b", "plain")}


def row(worker: str, sent: float | None, end: float, chunks: dict[float, int | None] | None) -> dict[str, object]:
    stamps = None if chunks is None else [int(at * S) for at in chunks]
    tokens = None if chunks is None else list(chunks.values())
    at = None if sent is None else int(sent * S)
    answered = None if chunks is None else sum(2 if count is None else count for count in chunks.values())
    return dict(zip(SCHEMA.names, (worker, at, int(end * S), stamps, tokens, answered, None), strict=True))


def loads(*rows: dict[str, object]) -> dict[str, NodeLoad]:
    """As it is done with parts: tokens are counted by worker, and the chunks are gone after that."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    writers = {}
    for name, writer in WRITERS.items():
        own = pa.Table.from_pylist([one for one in rows if one["worker"] == name], schema=SCHEMA)
        writers[name] = replace(writer, tokens_by_second=tokens_by_second(own))
    return node_loads(table.drop_columns(["chunk_ns", "chunk_tokens"]), writers)


def test_workers_of_one_host_add_up_and_hosts_stay_apart() -> None:
    found = loads(
        row("w0", 0, 3, {0.5: 1, 1.5: 4, 1.6: 4}),
        row("w1", 1, 2, {1.7: 10}),
        row("w1", 2, 3, {2.9: 1}),
        row("w2", 0, 9, {0.0: 7}),
    )
    # From 1.5 to 1.7, 4 + 4 + 10 tokens lie in one second of the host's clock.
    assert found == {"a": NodeLoad("wire", 2, 18.0), "b": NodeLoad("plain", 1, 7.0)}


def test_without_chunks_the_tokens_are_unknown_and_the_streams_are_not() -> None:
    assert loads(row("w0", 0, 3, None))["a"] == NodeLoad("wire", 1, None)


def test_what_was_never_sent_was_carried_by_nobody() -> None:
    assert loads(row("w0", None, 3, None)) == {}


def test_chunks_that_nobody_counted_share_the_tokens_of_their_answer() -> None:
    uncounted = {0.0: None, 0.1: None, 5.0: None}
    assert loads(row("w0", 0, 9, uncounted), row("w1", 0, 9, {0.5: 1}))["a"].tokens_per_s_peak == 2 + 2 + 1
