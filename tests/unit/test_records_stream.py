"""records/stream.py: streams that survive their writer (O-F1) and parts of all ages in one table (O-F2)."""

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.errors import RunDirectoryError
from raybench.records.clock import ClockAnchor
from raybench.records.schema import GPU, REQUESTS, SCHEMA_VERSION
from raybench.records.stream import (
    END_OF_STREAM,
    SOURCE_COLUMN,
    ArrowEncoder,
    name_source,
    part_metadata,
    read_part,
    unify,
)

ANCHOR = ClockAnchor("gpu-host", "boot", unix_ns=10**18, monotonic_ns=5)
PLAIN = pa.schema([("n", pa.int64()), ("text", pa.string()), ("gaps", pa.list_(pa.int64()))])


def rows(first: int, count: int) -> list[dict[str, object]]:
    return [{"n": n, "text": f"row {n}", "gaps": [n, None]} for n in range(first, first + count)]


def stream_of(batches: int, size: int = 4) -> list[bytes]:
    """The pieces of a stream: schema, then one piece a batch."""
    encoder = ArrowEncoder(PLAIN, {"worker": "w0"})
    return [encoder.start(), *(encoder.encode(rows(size * index, size)) for index in range(batches))]


def write(path: Path, *pieces: bytes) -> Path:
    path.write_bytes(b"".join(pieces))
    return path


def test_the_bytes_of_all_calls_are_a_stream_that_arrow_reads(tmp_path: Path) -> None:
    encoder = ArrowEncoder(PLAIN, {"worker": "w0"})
    pieces = [encoder.encode(rows(0, 3)), encoder.encode([]), encoder.encode(rows(3, 2)), encoder.close()]
    table = pa.ipc.open_stream(b"".join(pieces)).read_all()
    assert table.to_pylist() == rows(0, 5)
    assert table.schema.metadata == {b"worker": b"w0"}
    assert pieces[1] == b""


def test_a_closed_part_is_read_whole_with_its_metadata(tmp_path: Path) -> None:
    metadata = part_metadata("gpu", ANCHOR, host_label="rack 7")
    encoder = ArrowEncoder(GPU, metadata)
    data = encoder.encode([{"gpu_uuid": "GPU-1", "power_w": 70}])
    part = read_part(write(tmp_path / "gpu.arrows", data, encoder.close()))
    assert (part.closed, part.dropped_bytes, part.warning) == (True, 0, None)
    assert part.metadata == metadata
    assert part.metadata["schema"] == "gpu"
    assert part.metadata["schema_version"] == str(SCHEMA_VERSION)
    assert part.anchor == ANCHOR
    assert part.table.select(["gpu_uuid", "power_w", "temperature_c"]).to_pylist() == [
        {"gpu_uuid": "GPU-1", "power_w": 70.0, "temperature_c": None}
    ]


def test_a_stream_without_rows_is_closed_and_has_its_columns(tmp_path: Path) -> None:
    part = read_part(write(tmp_path / "empty.arrows", ArrowEncoder(REQUESTS).close()))
    assert part.closed
    assert part.table.schema == REQUESTS
    assert part.table.num_rows == 0


def test_an_unknown_column_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="retractoins"):
        ArrowEncoder(REQUESTS).encode([{"retractions": 1}, {"retractoins": 1}])


def test_nothing_follows_the_end_marker() -> None:
    encoder = ArrowEncoder(PLAIN)
    encoder.close()
    with pytest.raises(AssertionError, match="closed"):
        encoder.encode(rows(0, 1))


def test_labels_may_not_overwrite_a_clock() -> None:
    with pytest.raises(AssertionError, match="host"):
        part_metadata("gpu", ANCHOR, host="another")


def test_o_f1_a_torn_tail_gives_back_all_complete_batches(tmp_path: Path) -> None:
    pieces = stream_of(batches=5)
    torn = b"".join(pieces[:5])[:-1]
    path = write(tmp_path / "host.arrows", torn)
    part = read_part(path)
    assert part.table.num_rows == 12
    assert part.table.to_pylist() == rows(0, 12)
    assert part.closed is False
    assert part.dropped_bytes == len(pieces[4]) - 1
    assert part.warning == f"host.arrows: file not closed, tail of {part.dropped_bytes} bytes dropped"
    assert path.read_bytes() == torn


def test_o_f1_the_file_format_that_was_never_closed_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "old.arrow"
    with pa.OSFile(str(path), "wb") as sink:
        writer = pa.ipc.new_file(sink, PLAIN)
        for index in range(3):
            writer.write(pa.RecordBatch.from_pylist(rows(4 * index, 4), schema=PLAIN))
        unclosed = sink.tell()
        sink.flush()
        data = path.read_bytes()[:unclosed]
        writer.close()
    part = read_part(write(tmp_path / "torn.arrow", data))
    assert part.table.to_pylist() == rows(0, 12)
    assert (part.closed, part.dropped_bytes) == (False, 0)
    whole = read_part(path)
    assert whole.table.to_pylist() == rows(0, 12)
    assert (whole.closed, whole.dropped_bytes) == (True, 0)


@given(cut=st.integers(min_value=0), batches=st.integers(0, 4))
def test_a_cut_anywhere_loses_only_what_was_not_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int, batches: int
) -> None:
    pieces = [*stream_of(batches), END_OF_STREAM]
    data = b"".join(pieces)
    cut %= len(data) + 1
    ends = list(itertools.accumulate(map(len, pieces)))
    whole_batches = sum(end <= cut for end in ends[1:-1])
    last_end = max((end for end in ends if end <= cut), default=0)
    part = read_part(write(tmp_path_factory.mktemp("cut") / "p.arrows", data[:cut]))
    assert part.table.to_pylist() == rows(0, 4 * whole_batches)
    assert part.dropped_bytes == cut - last_end
    assert part.closed == (cut == len(data))


@pytest.mark.parametrize("tail", [b"\x00" * 4096, b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"noise" * 9, b"\xff"])
def test_a_tail_that_is_no_message_is_dropped_and_does_not_look_closed(tmp_path: Path, tail: bytes) -> None:
    part = read_part(write(tmp_path / "p.arrows", *stream_of(2), tail))
    assert part.table.num_rows == 8
    assert (part.closed, part.dropped_bytes) == (False, len(tail))


@pytest.mark.parametrize("text", [b"gaps", b"worker", b"w0"], ids=["column", "key", "value"])
def test_a_damaged_text_in_the_schema_leaves_nothing_readable(tmp_path: Path, text: bytes) -> None:
    data = b"".join([*stream_of(2), END_OF_STREAM]).replace(text, b"\xff" * len(text))
    part = read_part(write(tmp_path / "p.arrows", data))
    assert (part.table.num_columns, part.closed, part.dropped_bytes, part.metadata) == (0, False, len(data), {})


def test_bytes_behind_the_end_marker_are_told(tmp_path: Path) -> None:
    part = read_part(write(tmp_path / "p.arrows", *stream_of(1), END_OF_STREAM, b"more"))
    assert (part.closed, part.dropped_bytes) == (True, 4)
    assert part.warning == "p.arrows: file closed, tail of 4 bytes dropped"


def test_an_empty_file_is_an_unclosed_part_without_rows(tmp_path: Path) -> None:
    part = read_part(write(tmp_path / "p.arrows", b""))
    assert (part.table.num_rows, part.table.num_columns, part.closed, part.metadata) == (0, 0, False, {})
    assert unify([part.table], PLAIN) == PLAIN.empty_table()


def test_a_missing_part_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"gone\.arrows"):
        read_part(tmp_path / "gone.arrows")


FIXED = pa.schema([("ttft", pa.float64()), ("error", pa.string()), ("retractions", pa.int64())])


def parts_of_four_ages() -> list[pa.Table]:
    part_a = pa.table({"error": pa.nulls(2), "ttft": [0.1, 0.2], "retractions": pa.array([0, 1], pa.int32())})
    part_b = pa.table({"error": ["http_503"], "ttft": pa.array([1], pa.int64()), "retractions": [2]})
    part_c = pa.table({"ttft": [0.3], "error": pa.array([None], pa.string()), "zone": ["b"]})
    part_d = FIXED.empty_table()
    return [name_source(table, name) for table, name in zip([part_a, part_b, part_c, part_d], "abcd", strict=True)]


def test_o_f2_parts_merge_to_the_same_table_in_every_order() -> None:
    results = [unify(order, FIXED) for order in itertools.permutations(parts_of_four_ages())]
    assert len(results) == 24
    assert all(result.equals(results[0], check_metadata=True) for result in results)
    merged = results[0]
    assert merged.schema.names == ["ttft", "error", "retractions", SOURCE_COLUMN, "zone"]
    assert merged.schema.field("ttft").type == pa.float64()
    assert merged.schema.field("error").type == pa.string()
    assert merged.schema.metadata == {b"schema_version": str(SCHEMA_VERSION).encode()}
    assert merged.to_pydict() == {
        "ttft": [0.1, 0.2, 1.0, 0.3],
        "error": [None, None, "http_503", None],
        "retractions": [0, 1, 2, None],
        SOURCE_COLUMN: ["a", "a", "b", "c"],
        "zone": [None, None, None, "b"],
    }


def test_o_f2_an_unknown_column_of_two_types_is_kept() -> None:
    numbers = pa.table({"extra": [1], "other": [[1, 2]]})
    texts = pa.table({"extra": ["x"], "other": ["y"]})
    for order in ([numbers, texts], [texts, numbers]):
        merged = unify(order, pa.schema([]))
        assert sorted(merged["extra"].to_pylist()) == ["1", "x"]
        assert sorted(merged["other"].to_pylist()) == ["[1, 2]", "y"]


def test_whole_numbers_and_fractions_of_an_unknown_column_meet_in_double() -> None:
    merged = unify([pa.table({"x": [1]}), pa.table({"x": [0.5]}), pa.table({"x": pa.nulls(1)})], pa.schema([]))
    assert merged.schema.field("x").type == pa.float64()
    assert merged["x"].to_pylist() == [1.0, 0.5, None]


def test_values_that_do_not_fit_the_schema_name_part_and_column() -> None:
    broken = name_source(pa.table({"retractions": [0.5]}), "w3.arrows")
    with pytest.raises(RunDirectoryError, match=r"w3\.arrows: column 'retractions' holds double"):
        unify([broken], FIXED)


def test_no_parts_give_an_empty_table_of_the_schema() -> None:
    assert unify([], REQUESTS).schema == REQUESTS


def test_null_lists_of_an_old_part_become_null_lists() -> None:
    merged = unify([pa.table({"gaps": pa.nulls(2)}), pa.table({"gaps": [[1, 2]]})], PLAIN)
    assert merged["gaps"].to_pylist() == [None, None, [1, 2]]


@given(st.lists(st.tuples(st.sets(st.sampled_from(["n", "text", "gaps"])), st.integers(1, 3)), max_size=5))
def test_unify_keeps_every_row_and_value_of_parts_with_any_columns(parts: list[tuple[set[str], int]]) -> None:
    tables = [
        pa.Table.from_pylist(rows(0, count), schema=pa.schema([PLAIN.field(name) for name in sorted(columns)]))
        for columns, count in parts
        if columns
    ]
    merged = unify(tables, PLAIN)
    assert merged.schema.names == PLAIN.names
    assert merged.to_pylist() == [
        {name: row.get(name) for name in PLAIN.names} for table in tables for row in table.to_pylist()
    ]
