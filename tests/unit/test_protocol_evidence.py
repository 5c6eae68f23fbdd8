"""What is judged is what stands on disk: whole parts, torn ones, prewarm rows left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from protocol_fakes import FakeClock
from request_rows import request

from raybench.analysis.parts import AttemptParts
from raybench.protocol.evidence import history_of, load_requests
from raybench.records.clock import ClockAnchor, ClockOffset
from raybench.records.journal import Journal
from raybench.records.rundir import RunDirectory
from raybench.records.schema import REQUESTS
from raybench.records.stream import ArrowEncoder, part_metadata

POINT = "arm/load/c2"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    journal = Journal(directory.journal, FakeClock())
    journal.append("run_started")
    journal.close()
    return directory


def part(
    run: RunDirectory,
    worker: str,
    batches: list[list[dict[str, object]]],
    *,
    phase: str = "load",
    offset_ns: int = 0,
    close: bool = True,
    cut: int = 0,
) -> None:
    anchor = ClockAnchor(worker, "boot", unix_ns=1_000_000_000_000, monotonic_ns=0)
    labels = {"worker": worker, "phase": phase, **ClockOffset(offset_ns, 0).to_metadata()}
    encoder = ArrowEncoder(REQUESTS, part_metadata("requests", anchor, **labels))
    data = b"".join(encoder.encode([row | {"phase": phase, "worker": worker} for row in rows]) for rows in batches)
    data += encoder.close() if close else b""
    path = run.part(POINT, 1, worker if phase == "load" else f"{worker}.{phase}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data[: len(data) - cut])


def test_the_rows_of_all_workers_and_nothing_of_the_prewarm(run: RunDirectory) -> None:
    part(run, "w0", [[request(0, 0, 1)], [request(2, 1, 2)]])
    part(run, "w1", [[request(1, 0, 1)]])
    part(run, "w0", [[request(0, -5, -4)]], phase="prewarm")
    rows, torn, _ = load_requests(AttemptParts(run, POINT, 1, history_of(run)))
    assert (rows["ticket"].to_pylist(), torn) == ([0, 1, 2], ())


def test_a_worker_of_share_0_leaves_an_empty_part_that_breaks_nothing(run: RunDirectory) -> None:
    part(run, "w0", [[request(0, 0, 1)]])
    part(run, "w1", [])
    rows, torn, _ = load_requests(AttemptParts(run, POINT, 1, history_of(run)))
    assert (rows.num_rows, torn) == (1, ())


def test_stamps_of_two_hosts_are_brought_onto_the_coordinator_s_clock(run: RunDirectory) -> None:
    part(run, "w0", [[request(0, 0, 1)]])
    part(run, "w1", [[request(1, 0, 1)]], offset_ns=2_500_000_000)
    rows, _, _ = load_requests(AttemptParts(run, POINT, 1, history_of(run)))
    sent = rows["sent_unix_ns"].to_pylist()
    assert sent == [1_000_000_000_000, 1_000_000_000_000 - 2_500_000_000]


@pytest.mark.parametrize(("cut", "kept"), [(0, 2), (1, 1)], ids=["between batches", "inside a batch"])
def test_o_f1_a_torn_part_gives_its_whole_batches_and_is_named(run: RunDirectory, cut: int, kept: int) -> None:
    part(run, "w0", [[request(0, 0, 1)], [request(2, 1, 2)]], close=False, cut=cut)
    part(run, "w1", [[request(1, 0, 1)]])
    rows, torn, _ = load_requests(AttemptParts(run, POINT, 1, history_of(run)))
    assert rows.num_rows == kept + 1
    assert len(torn) == 1
    assert "w0.arrows" in torn[0]
    assert "not closed" in torn[0]


def test_a_part_torn_inside_its_schema_is_named_and_gives_no_rows(run: RunDirectory) -> None:
    part(run, "w0", [[request(0, 0, 1)]])
    path = run.part(POINT, 1, "w1")
    path.write_bytes(run.part(POINT, 1, "w0").read_bytes()[:40])
    rows, torn, _ = load_requests(AttemptParts(run, POINT, 1, history_of(run)))
    assert rows.num_rows == 1
    assert ["w1.arrows" in text for text in torn] == [True]


def test_an_attempt_without_any_part_is_an_empty_table_with_all_columns(run: RunDirectory) -> None:
    rows, torn, _ = load_requests(AttemptParts(run, POINT, 1, history_of(run)))
    assert (rows.num_rows, torn) == (0, ())
    assert {"sent_unix_ns", "end_unix_ns", *REQUESTS.names} <= set(rows.column_names)


def test_what_is_judged_is_read_without_the_lists_of_chunks(run: RunDirectory) -> None:
    part(run, "w0", [[request(0, 0, 1) | {"chunk_ns": [1, 2], "chunk_tokens": [1, 1]}]])
    rows, _, carried = load_requests(AttemptParts(run, POINT, 1, history_of(run)))
    assert [load.tokens_per_s_peak for load in carried.values()] == [2.0], "they are counted before they go"
    assert rows["chunk_ns"].null_count == rows["chunk_tokens"].null_count == rows.num_rows == 1
    whole = AttemptParts(run, POINT, 1, history_of(run)).requests().table
    assert whole["chunk_ns"].to_pylist() == [[1, 2]]
    assert rows.drop_columns(["chunk_ns", "chunk_tokens"]).equals(whole.drop_columns(["chunk_ns", "chunk_tokens"]))
