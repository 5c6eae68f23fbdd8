"""The journal and every part of a run directory, cut at any byte: read without an exception, and said.

Two run directories: one that a fake line of events made (GPU and server parts, several clocks), one that the
coordinator made itself and resumed.
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_fakes import FakeClock, FakeEngine, Stage, scenario
from synthetic_run import whole_run

from raybench.analysis.merge import merge
from raybench.analysis.searches import read_search
from raybench.engines import ENGINES
from raybench.protocol.evidence import strike_damaged
from raybench.protocol.invocation import Earlier
from raybench.records.files import write_file
from raybench.records.journal import Journal, read_journal
from raybench.records.rundir import RunDirectory
from raybench.records.schema import SERVER_LOG
from raybench.records.stream import ArrowEncoder
from raybench.report.source import read_source
from raybench.report.write import write_report

Row = dict[str, Any]

#: Columns that other files than a point's own parts and journal lines have a part in.
OF_GPUS = ("gpu_idle_bytes", "gpu_memory_peak_bytes", "gpu_memory_mean_bytes", "gpu_headroom_min_bytes")
OF_GPUS += ("gpu_data", "gpus")

WORKLOADS = """
  - {name: first, input_tokens: 64, output_tokens: 4, concurrency: [1, 2], requests: 4}
  - {name: second, input_tokens: 128, output_tokens: 4, concurrency: [2], requests: 6}
"""


def by_the_coordinator(path: Path) -> RunDirectory:
    """A worker is lost in the second point, which is measured again by a second invocation."""
    engine = FakeEngine()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, "sglang", engine)  # type: ignore[arg-type]
        stage = Stage(path, scenario(WORKLOADS), engine, lose_in=(2, "w001"))
        asyncio.run(stage.play())
        stage.lose_in = None
        asyncio.run(stage.play())
    log = ArrowEncoder(SERVER_LOG, {})
    write_file(
        stage.run.next_server_log_part("arm"), log.encode([{"position": 80, "kind": "flush"}]) + log.close()
    )
    return stage.run


@pytest.fixture(scope="module", params=["by hand", "by the coordinator"])
def whole(request: pytest.FixtureRequest) -> Iterator[RunDirectory]:
    with TemporaryDirectory() as folder:
        path = Path(folder)
        made = whole_run(path / "run") if request.param == "by hand" else by_the_coordinator(path)
        merge(made)
        assert sum(row["verdict"] == "accepted" for row in rows_of(made).values()) >= 2
        yield made


def rows_of(run: RunDirectory) -> dict[str, Row]:
    return {row["point_id"]: row for row in pq.read_table(run.points_parquet).to_pylist()}


def part_files(run: RunDirectory) -> list[str]:
    return sorted(run.relative(path) for path in run.parts.rglob("*.arrows"))


def commit_ends(run: RunDirectory) -> dict[str, int]:
    """By point, how many bytes of the journal tell everything up to its last commit."""
    ends, at = {}, 0
    for line in run.journal.read_bytes().splitlines(keepends=True):
        at += len(line)
        event = json.loads(line)
        if event["event"] == "point_committed":
            ends[event["point_id"]] = at
    return ends


@settings(max_examples=20)
@given(data=st.data())
def test_files_cut_at_any_byte_are_read_and_no_other_number_changes(
    whole: RunDirectory, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from(["journal.jsonl", *part_files(whole)]), min_size=1, unique=True))
    kept = {name: data.draw(st.integers(0, (whole.path / name).stat().st_size), label=name) for name in names}
    with TemporaryDirectory() as folder:
        cut = RunDirectory(Path(folder) / "cut")
        shutil.copytree(whole.path, cut.path)
        for name, size in kept.items():
            with (cut.path / name).open("r+b") as file:
                file.truncate(size)
        warnings = merge(cut)
        assert write_report(read_source(cut), cut.path).markdown.read_text()
        shorter = {name for name, size in kept.items() if size < (whole.path / name).stat().st_size}
        for name in shorter - {"journal.jsonl"}:
            assert any(warning.startswith(f"{name}:") for warning in warnings), name
        check_rows(whole, cut, kept.get("journal.jsonl"), shorter, struck(cut))


def check_rows(
    whole: RunDirectory, cut: RunDirectory, journal_bytes: int | None, shorter: set[str], again: list[str]
) -> None:
    before, after = rows_of(whole), rows_of(cut)
    assert after.keys() == before.keys()
    gpu_cut = any(name.startswith("parts/gpu/") for name in shorter)
    for point_id, end in commit_ends(whole).items():
        row = before[point_id]
        if journal_bytes is not None and journal_bytes < end:
            assert after[point_id]["verdict"] in (None, "void"), point_id
            continue
        own = {whole.relative(path) for path in whole.parts_of(point_id, row["final_attempt"] or 1)}
        if own & shorter and row["verdict"] == "accepted":
            assert after[point_id]["verdict"] == "void"
            assert "damaged after it was accepted" in after[point_id]["reasons"][0]
            assert point_id in again
        elif not own & shorter:
            assert point_id not in again
            differing = {name for name, value in row.items() if after[point_id][name] != value}
            assert differing <= (set(OF_GPUS) if gpu_cut else set()), (point_id, differing)


def test_a_resumed_run_measures_a_damaged_point_again(tmp_path: Path) -> None:
    run = by_the_coordinator(tmp_path)
    assert struck(run) == []
    part = run.parts_of("arm/first/c2", 2)[0]
    part.write_bytes(part.read_bytes()[:-20])
    assert struck(run) == ["arm/first/c2"]
    earlier = Earlier.of(read_journal(run.journal))
    assert not earlier.settled("arm/first/c2")
    assert earlier.settled("arm/first/c1")
    merge(run)
    row = rows_of(run)["arm/first/c2"]
    assert (row["verdict"], row["reasons"][0][:48]) == ("void", "its records were damaged after it was accepted: ")
    assert struck(run) == []


def test_a_search_whose_probe_was_struck_is_open_again() -> None:
    point = {"event": "point_committed", "point_id": "a/w/c2", "attempt": 1, "verdict": "accepted"}
    ended = [
        {"event": "search_started", "arm": "a", "workload": "w"},
        point,
        {"event": "search_ended", "arm": "a", "workload": "w", "status": "found"},
    ]
    assert read_search(ended, "a", "w").settled
    assert not read_search([*ended, point | {"verdict": "void"}], "a", "w").settled


def struck(run: RunDirectory) -> list[str]:
    """What a resume strikes before it goes on."""
    before = len(read_journal(run.journal))
    journal = Journal(run.journal, FakeClock())
    strike_damaged(run, journal)
    journal.close()
    lines = read_journal(run.journal)[before:]
    return [str(line["point_id"]) for line in lines if line["event"] == "point_committed"]
