"""Merge: parts and journal of a whole run become tables, and no row is lost."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from request_rows import ns
from synthetic_run import (
    ACCEPT,
    COORDINATOR,
    GIB,
    LOST,
    NOT_COLD,
    SKIP,
    START_UNIX_NS,
    SyntheticRun,
    planned,
    wave,
    whole_run,
)

from raybench.analysis.agreement import read_agreements
from raybench.analysis.history import read_history
from raybench.analysis.merge import MERGE_JSON, merge
from raybench.analysis.parts import AttemptParts
from raybench.analysis.points import POINTS
from raybench.errors import RunDirectoryError
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory
from raybench.records.schema import REQUESTS
from raybench.records.stream import ArrowEncoder
from raybench.records.strict_json import read_json
from raybench.report.source import read_source
from raybench.report.write import write_report

Points = dict[str, dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = whole_run(tmp_path / "run")
    merge(made)
    return made


def points(run: RunDirectory) -> Points:
    return {row["point_id"]: row for row in pq.read_table(run.points_parquet).to_pylist()}


def test_every_planned_point_is_a_row_whatever_became_of_it(run: RunDirectory) -> None:
    verdicts = {point_id: row["verdict"] for point_id, row in points(run).items()}
    assert verdicts == {
        "tp2pp4/1k/c2": "accepted",
        "tp2pp4/1k/c4": "accepted",
        "tp8/1k/c2": "void",
        "tp8/512k/c1": "skipped",
        "tp8/1k/c4": None,
    }


def test_a_row_without_a_valid_number_says_why(run: RunDirectory) -> None:
    reasons = {point_id: row["reasons"] for point_id, row in points(run).items()}
    assert reasons["tp2pp4/1k/c2"] == []
    assert reasons["tp8/1k/c2"] == [LOST]
    assert reasons["tp8/512k/c1"] == [SKIP]
    assert reasons["tp8/1k/c4"] == ["not measured"]


def test_chunks_stay_in_the_requests_and_are_left_out_where_only_judging_is_wanted(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("tp8/1k/c2")])
    rows = wave(10.0, 4, chunk_ns=[ns(10.4), ns(11.0)], chunk_tokens=[1, 10])
    made.attempt(5.0, "tp8/1k/c2", 1, rows, (10.0, 12.0), ACCEPT)
    made.event(13.0, "point_committed", point_id="tp8/1k/c2", attempt=1, verdict="accepted", reasons=[])
    run = made.done()
    merge(run)
    assert pq.read_table(run.requests_parquet)["chunk_tokens"].to_pylist() == [[1, 10]] * 4
    parts = AttemptParts(run, "tp8/1k/c2", 1, read_history(read_journal(run.journal)))
    judged = parts.requests(chunks=False).table
    assert judged["chunk_ns"].to_pylist() == judged["chunk_tokens"].to_pylist() == [None] * 4


def test_the_request_log_of_an_arm_is_joined_to_the_requests_of_that_arm(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("tp8/1k/c2"), planned("1k/1k/c2")])
    rows = [row | {"response_id": f"chatcmpl-{row['ticket']}"} for row in wave(10.0, 4)]
    for at_s, arm in ((5.0, "tp8"), (25.0, "1k")):  # the second arm is called as the workload is
        made.attempt(at_s, f"{arm}/1k/c2", 1, rows, (10.0, 12.0), ACCEPT)
        done = {"point_id": f"{arm}/1k/c2", "attempt": 1, "verdict": "accepted", "reasons": []}
        made.event(at_s + 8.0, "point_committed", **done)
    made.run.next_request_log("tp8").write_text("".join(map(served, rows)))
    run = made.done()
    merge(run)
    told = pq.read_table(run.requests_parquet, columns=["point_id", "engine_decode_s"]).to_pylist()
    assert {(row["point_id"], row["engine_decode_s"]) for row in told} == {("tp8/1k/c2", 2.0), ("1k/1k/c2", None)}


def test_a_request_log_that_cannot_be_joined_is_told_and_voids_nothing(tmp_path: Path) -> None:
    """The records are as they were when the point was accepted; only what the log would add is not known."""
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("tp8/1k/c2")])
    rows = wave(10.0, 4)
    made.attempt(5.0, "tp8/1k/c2", 1, rows, (10.0, 12.0), ACCEPT)
    made.event(13.0, "point_committed", point_id="tp8/1k/c2", attempt=1, verdict="accepted", reasons=[])
    made.run.next_request_log("tp8").write_text(served(rows[0]))
    run = made.done()
    (warning,) = merge(run)
    assert warning.startswith("tp8/1k/c2 attempt 1: the server's request log cannot be joined: 1 lines")
    assert (points(run)["tp8/1k/c2"]["verdict"], points(run)["tp8/1k/c2"]["reasons"]) == ("accepted", [])


def served(row: dict[str, Any]) -> str:
    """The line of a server's request log about this answer."""
    told = {
        "artifact_type": "ninfer_serve_request_log",
        "schema_version": 21,
        "event": "request_done",
        "timestamp_unix_ms": START_UNIX_NS // 10**6 + 11_000,
        "server_instance_id": "i",
        "request": {"request_id": row["ticket"]},
        "result": {
            "finish_reason": "output_limit",
            "prompt_tokens": row["input_tokens"],
            "completion_tokens": row["output_tokens"],
            "prefix_cache_hit_tokens": 0,
        },
        "timings_seconds": {"prepare": 0.1, "vision": 0.0, "prefill": 0.4, "decode": 2.0, "total": 2.5},
    }
    return json.dumps(told) + "\n"


def test_points_have_the_fixed_schema(run: RunDirectory) -> None:
    assert pq.read_schema(run.points_parquet).equals(POINTS)


def test_wall_over_two_hosts_whose_clocks_differ_by_three_seconds(run: RunDirectory) -> None:
    row = points(run)["tp2pp4/1k/c2"]
    assert row["wall_s"] == 2.0
    assert row["output_tokens_per_s"] == 22.0
    assert (row["ttft_ms_p95"], row["tpot_ms_p95"], row["e2e_ms_max"]) == (400.0, 60.0, 1000.0)
    assert (row["in_flight_peak"], row["clock_uncertainty_ms"]) == (2, 0.2)


def test_a_retried_point_is_told_by_its_final_attempt_and_keeps_the_other(run: RunDirectory) -> None:
    row = points(run)["tp2pp4/1k/c4"]
    assert (row["attempts"], row["final_attempt"]) == (2, 2)
    assert json.loads(row["hit_rates"]) == {"requests": 0.0, "counters": None}
    assert json.loads(row["windows"])["load"] == {"first": 200, "last": 250, "count": 4}
    rejected, accepted = json.loads(row["attempt_history"])
    assert (rejected["verdict"], accepted["verdict"]) == ("retry", "accept")
    assert rejected["findings"][0]["message"] == NOT_COLD
    assert rejected["windows"]["load"]["first"] == 100
    requests = pq.read_table(run.requests_parquet).to_pylist()
    final = {(r["attempt"], r["final"]) for r in requests if r["point_id"] == "tp2pp4/1k/c4"}
    assert final == {(1, False), (2, True)}


def test_preemptions_come_from_requests_and_else_from_the_engines_counter(run: RunDirectory) -> None:
    rows = points(run)
    assert rows["tp2pp4/1k/c2"]["preemptions"] == 0
    assert rows["tp2pp4/1k/c4"]["preemptions"] == 3
    assert rows["tp8/1k/c2"]["preemptions"] is None


def test_a_void_point_keeps_its_counts(run: RunDirectory) -> None:
    row = points(run)["tp8/1k/c2"]
    assert (row["requests_planned"], row["requests"], row["requests_ok"]) == (4, 2, 2)
    assert json.loads(row["findings"])[0]["code"] == "worker_lost"


def test_a_skipped_point_has_no_number(run: RunDirectory) -> None:
    row = points(run)["tp8/512k/c1"]
    assert [row[name] for name in ("requests", "wall_s", "ttft_ms_n", "gpu_memory_peak_bytes")] == [None] * 4


def test_requests_have_their_derived_columns_and_name_their_part(run: RunDirectory) -> None:
    requests = pq.read_table(run.requests_parquet)
    assert requests.num_rows == 4 + 4 + 4 + 2
    first = requests.to_pylist()[0]
    assert (first["ttft_ms"], first["tpot_ms"], first["e2e_ms"]) == (400.0, 60.0, 1000.0)
    assert first["sent_unix_ns"] == START_UNIX_NS + ns(10.0)
    assert first["source_part"] == "parts/tp2pp4/1k/c2/attempt-1/w0.arrows"
    assert requests.schema.names[: len(REQUESTS)] == REQUESTS.names


def test_o_r5_a_sample_of_a_host_two_and_a_half_seconds_behind_lands_in_its_point(run: RunDirectory) -> None:
    """Raw wall time of that host would put the samples of 10..12 s before the load."""
    row = points(run)["tp2pp4/1k/c2"]
    assert row["gpu_memory_peak_bytes"] == 70 * GIB
    samples = pq.read_table(run.gpu_parquet).to_pylist()
    of_point = [s for s in samples if s["point_id"] == "tp2pp4/1k/c2" and s["gpu_uuid"] == "GPU-0"]
    assert [(s["aligned_unix_ns"] - START_UNIX_NS) / 1e9 for s in of_point] == [10.0, 10.5, 11.0, 11.5, 12.0]
    assert {s["memory_in_use_bytes"] for s in of_point} == {70 * GIB}
    assert of_point[0]["sample_unix_ns"] == START_UNIX_NS + ns(7.5)


def test_the_headline_is_total_minus_free_and_the_worst_gpu_gives_the_headroom(run: RunDirectory) -> None:
    row = points(run)["tp2pp4/1k/c2"]
    assert (row["gpu_idle_bytes"], row["gpu_headroom_min_bytes"]) == (65 * GIB, 10 * GIB)
    gpus = {gpu["gpu_uuid"]: gpu for gpu in json.loads(row["gpus"])}
    assert gpus["GPU-0"]["idle_bytes"] == 60 * GIB
    assert gpus["GPU-1"]["peak_bytes"] == 65 * GIB
    assert gpus["GPU-1"]["headroom_min_bytes"] == 15 * GIB
    assert gpus["GPU-0"]["samples"] == 5


def test_each_request_has_the_memory_of_its_own_life(run: RunDirectory) -> None:
    requests = [r for r in pq.read_table(run.requests_parquet).to_pylist() if r["point_id"] == "tp2pp4/1k/c4"]
    assert {r["gpu_memory_peak_bytes"] for r in requests} == {65 * GIB}
    assert {r["gpu_headroom_min_bytes"] for r in requests} == {15 * GIB}
    assert all(60 * GIB < r["gpu_memory_mean_bytes"] < 65 * GIB for r in requests)


def test_points_without_gpu_samples_have_unknown_memory_and_say_so(run: RunDirectory) -> None:
    row = points(run)["tp8/1k/c2"]
    assert (row["gpu_data"], row["gpu_memory_peak_bytes"], row["gpu_headroom_min_bytes"]) == (
        "none",
        None,
        None,
    )
    void = [r for r in pq.read_table(run.requests_parquet).to_pylist() if r["point_id"] == "tp8/1k/c2"]
    assert [r["gpu_memory_peak_bytes"] for r in void] == [None, None]


def test_o_f1_a_torn_part_gives_its_whole_batches_and_a_warning(run: RunDirectory) -> None:
    told = read_json(run.path / MERGE_JSON)
    assert isinstance(told, dict)
    (warning,) = told["warnings"]
    assert warning.startswith("parts/gpu/gpu-host.arrows: file not closed, tail of ")
    assert pq.read_table(run.gpu_parquet).num_rows == 66 + 65 - 1


def test_o_f1_a_point_whose_samples_end_early_has_incomplete_gpu_data(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("a/w/c2")])
    made.attempt(0.0, "a/w/c2", 1, wave(10.0, 8), (10.0, 14.0), ACCEPT)
    made.event(15.0, "point_committed", point_id="a/w/c2", attempt=1, verdict="accepted", reasons=[])
    made.gpu_part([(0.5 * k, "GPU-0", GIB) for k in range(24)], cut_bytes=12)
    run = made.done()
    merge(run)
    assert points(run)["a/w/c2"]["gpu_data"] == "incomplete"


def test_scrapes_of_the_engine_are_named_by_the_point_they_fell_into(run: RunDirectory) -> None:
    scrapes = pq.read_table(run.server_parquet).to_pylist()
    assert [s["point_id"] for s in scrapes] == [None, "tp2pp4/1k/c2", "tp2pp4/1k/c4"]
    assert [s["attempt"] for s in scrapes] == [None, 1, 2]


def test_merging_again_gives_the_same_tables(run: RunDirectory) -> None:
    tables = (run.points_parquet, run.requests_parquet, run.gpu_parquet, run.server_parquet)
    before = [pq.read_table(path) for path in tables]
    merge(run)
    assert [pq.read_table(path) for path in tables] == before
    assert not [path for path in run.path.iterdir() if path.name.startswith(".")]


def test_a_run_killed_in_its_first_point_merges_to_an_interrupted_row(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("a/w/c2")])
    made.event(1.0, "attempt_started", point_id="a/w/c2", attempt=1, serial=1, windows={})
    made.request_part("a/w/c2", 1, "w0", wave(2.0, 2, worker="w0"), 1.5)
    run = made.done()
    with run.journal.open("ab") as journal:
        journal.write(b'{"event": "st')
    assert merge(run) == ["journal.jsonl:2: torn"]
    row = points(run)["a/w/c2"]
    assert (row["verdict"], row["attempts"], row["requests"]) == (None, 1, None)
    assert row["reasons"] == ["interrupted: no attempt was committed"]
    assert pq.read_table(run.requests_parquet)["final"].to_pylist() == [False, False]


def test_a_run_that_ended_before_anything_was_sent_has_all_columns_and_a_report(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("a/w/c2")])
    made.event(1.0, "arm_failed", arm="a", error="alive: no server")
    run = made.done()
    assert merge(run) == []
    assert "aligned_unix_ns" in pq.read_schema(run.worker_parquet).names
    assert read_agreements(run) == []
    assert "a/w/c2" in write_report(read_source(run), run.path).markdown.read_text()


def test_a_point_of_unknown_plan_is_told_by_its_name(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([])
    made.request_part("a/w/c16", 1, "w0", wave(2.0, 2, worker="w0"), 1.5)
    made.event(1.0, "run_started")
    run = made.done()
    merge(run)
    row = points(run)["a/w/c16"]
    assert (row["arm"], row["workload"], row["concurrency"], row["input_tokens"]) == ("a", "w", 16, None)


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        merge(RunDirectory(tmp_path))


def test_merge_needs_neither_ray_nor_pydantic() -> None:
    unwanted = "{'ray', 'pydantic', 'aiohttp', 'pandas'} & set(sys.modules)"
    code = f"import sys, raybench.analysis.merge; sys.exit(bool({unwanted}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class FoundOtherwise(RunDirectory):
    """A disk that lists the parts of an attempt in another order."""

    def parts_of(self, point_id: str, attempt: int) -> list[Path]:
        return super().parts_of(point_id, attempt)[::-1]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return iter(tmp_path_factory.mktemp("merges") / str(k) for k in range(10_000))


@settings(max_examples=15, deadline=None, suppress_health_check=HealthCheck)
@given(
    splits=st.lists(st.tuples(st.sampled_from(["w0", "w1"]), st.integers(0, 3)), min_size=1, max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_merge_keeps_every_row_in_any_order_of_parts(
    splits: list[tuple[str, int]], order: Any, folders: Iterator[Path]
) -> None:
    rows = [dict(row) for row in wave(10.0, len(splits))]
    for row, (worker, _) in zip(rows, splits, strict=True):
        row["worker"] = worker
    shuffled = order.sample(rows, len(rows))
    tables = []
    for rows_in_order in (rows, shuffled):
        made = SyntheticRun(next(folders))
        made.manifest([planned("a/w/c2")])
        made.attempt(5.0, "a/w/c2", 1, rows_in_order, (10.0, 30.0), ACCEPT)
        made.event(31.0, "point_committed", point_id="a/w/c2", attempt=1, verdict="accepted", reasons=[])
        run = made.done()
        merge(run if rows_in_order is rows else FoundOtherwise(run.path))
        tables.append((pq.read_table(run.requests_parquet), pq.read_table(run.points_parquet)))
    assert tables[0] == tables[1]
    merged = tables[0][0]
    assert sorted(merged["ticket"].to_pylist()) == list(range(len(rows)))
    assert merged["ticket"].type == pa.int64()


def test_o_f2_parts_of_other_versions_merge_and_keep_their_unknown_columns(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("a/w/c2")])
    made.attempt(5.0, "a/w/c2", 1, wave(10.0, 4, retractions=1), (10.0, 12.0), ACCEPT)
    older = pa.schema([field for field in REQUESTS if field.name != "retractions"])
    newer = REQUESTS.append(pa.field("energy_j", pa.float64()))
    for name, schema, extra in (("old", older, {}), ("new", newer, {"energy_j": 2.5})):
        row = {"phase": "load", "ticket": 9, "worker": name, "outcome": "ok", **extra}
        metadata = COORDINATOR.metadata("requests", 5.0, worker=name)
        encoder = ArrowEncoder(schema, metadata)
        path = made.run.relative(made.run.part("a/w/c2", 1, name))
        made.files.append(path, encoder.encode([row]) + encoder.close())
    run = made.done()
    merge(run)
    rows = {(row["worker"], row["ticket"]): row for row in pq.read_table(run.requests_parquet).to_pylist()}
    assert len(rows) == 6
    assert rows["old", 9]["retractions"] is None
    assert rows["w0", 0]["retractions"] == 1
    assert rows["new", 9]["energy_j"] == 2.5
    assert rows["w0", 0]["energy_j"] is None


def test_gpus_that_were_watched_for_another_arm_are_not_a_points(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("a/w/c2"), planned("b/w/c2")])
    for start, arm in ((0.0, "a"), (50.0, "b")):
        made.event(start, "arm_ready", arm=arm, limits={})
        loaded = (start + 10.0, start + 12.0)
        made.attempt(start + 5.0, f"{arm}/w/c2", 1, wave(loaded[0], 4), loaded, ACCEPT)
        commit = {"point_id": f"{arm}/w/c2", "attempt": 1, "verdict": "accepted", "reasons": []}
        made.event(start + 13.0, "point_committed", **commit)
    made.gpu_part([(0.5 * k, "GPU-0" if k < 60 else "GPU-1", (k + 1) * GIB // 4) for k in range(140)])
    run = made.done()
    merge(run)
    watched = {row["arm"]: json.loads(row["gpus"]) for row in points(run).values()}
    assert [gpu["gpu_uuid"] for gpu in watched["a"]] == ["GPU-0"]
    assert [gpu["gpu_uuid"] for gpu in watched["b"]] == ["GPU-1"]
    assert {row["gpu_data"] for row in points(run).values()} == {"complete"}
    assert points(run)["b/w/c2"]["gpu_idle_bytes"] == 101 * GIB // 4


def test_a_point_whose_load_never_began_is_void_without_numbers(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("a/w/c2")])
    where = {"point_id": "a/w/c2", "attempt": 1}
    made.event(1.0, "attempt_started", **where, serial=1, windows={})
    made.event(2.0, "step", **where, step="flush", status="failed", error="flush: refused")
    made.event(2.0, "verdict", **where, verdict="void", findings=[], hit_rates={})
    made.event(2.0, "point_committed", **where, verdict="void", reasons=["flush: refused"])
    run = made.done()
    merge(run)
    row = points(run)["a/w/c2"]
    assert (row["verdict"], row["reasons"], row["requests"]) == ("void", ["flush: refused"], None)
    assert json.loads(row["attempt_history"])[0]["failed_step"] == ["flush", "flush: refused"]
