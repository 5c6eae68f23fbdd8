"""report.md and report.json of a whole run: what is valid is told, what is not says why."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_run import ACCEPT, LOST, NOT_COLD, SKIP, SyntheticRun, planned, wave, whole_run

from raybench.analysis.merge import merge
from raybench.analysis.points import read_points
from raybench.errors import RunDirectoryError
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import read_json, write_json
from raybench.report.source import read_source
from raybench.report.text import ENGLISH
from raybench.report.write import write_report


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    made = whole_run(tmp_path_factory.mktemp("report") / "run")
    facts = {"engine": "sglang", "version": "0.5.9", "kv_pool_tokens": 1_040_384, "prefix_cache": False, "raw": {}}
    write_json(made.arm("tp2pp4") / "facts.json", facts)
    device = {"name": "Example GPU", "memory_total_bytes": 80 * 1024**3, "driver_version": "580.1"}
    inventory = {"gpu-host": {"available": True, "reason": None, "devices": [device, device]}}
    write_json(made.arm("tp2pp4") / "gpus.json", inventory)
    lost = {"gpu-host": {"available": False, "reason": "library not found", "devices": []}}
    write_json(made.arm("tp8") / "gpus.json", lost)
    merge(made)
    write_report(read_source(made), made.path)
    return made


@pytest.fixture(scope="module")
def report(run: RunDirectory) -> str:
    return run.report_md.read_text(encoding="utf-8")


def section(report: str, heading: str) -> str:
    return report.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def line_of(block: str, *cells: str) -> str:
    (line,) = [line for line in block.splitlines() if line.startswith("| " + " | ".join(cells) + " |")]
    return line


def test_an_accepted_row_has_the_seeds_columns(report: str) -> None:
    results = section(report, "Results")
    assert "| C | Arm | Input TPS | Output TPS | TTFT P95 | TPOT P95 | n | Verdict |" in results
    expected = "| 2 | tp2pp4 | 2,048 | 22.0 | 400 ms | 60.0 ms | 4 | accepted |"
    assert line_of(results, "2", "tp2pp4") == expected


def test_numbers_of_a_void_point_are_struck_through_and_in_no_summary(report: str) -> None:
    row = line_of(section(report, "Results"), "2", "tp8")
    assert row == f"| 2 | tp8 | ~~2,048~~ | ~~22.0~~ | ~~400 ms~~ | ~~60.0 ms~~ | ~~2~~ | void: {LOST} |"
    summary = section(report, "Summary")
    assert "5 points: 2 accepted, 1 void, 1 skipped, 1 not measured." in summary
    assert "ahead" not in summary
    assert "valid numbers from tp2pp4 only, none from tp8" in summary


def test_what_a_scenario_says_of_itself_stands_at_the_head(tmp_path: Path) -> None:
    made = whole_run(tmp_path / "run")
    manifest = made.read_manifest()
    write_json(made.manifest, {**manifest, "scenario": {**manifest["scenario"], "description": "two *arms*"}})
    merge(made)
    told = write_report(read_source(made), made.path).markdown.read_text(encoding="utf-8")
    assert section(told, "Summary").strip().startswith("two \\*arms\\*\n\n5 points:")


def test_lost_requests_stay_in_n(report: str) -> None:
    assert "~~2/4~~" in line_of(section(report, "Appendix B: all points"), "1k", "2", "tp8")


def test_a_queueing_point_is_marked_and_the_mark_is_explained(report: str) -> None:
    assert line_of(section(report, "Results"), "4 †", "tp2pp4").endswith("accepted |")
    assert ENGLISH.queueing_note in section(report, "Notes")


def test_a_skipped_point_is_a_row_with_its_reason(report: str) -> None:
    boundary = line_of(section(report, "Context boundary"), "512k", "tp8")
    assert boundary == f"| 512k | tp8 | — | — | — | C=1 skipped: {SKIP} |"
    invalid = section(report, "Points without a valid number")
    assert line_of(invalid, "tp8/512k/c1", "skipped") == f"| tp8/512k/c1 | skipped | {SKIP} |"
    assert "skipped" in line_of(section(report, "Appendix B: all points"), "512k", "1", "tp8")


def test_a_point_that_was_not_measured_is_a_row(report: str) -> None:
    expected = "| 4 | tp8 | — | — | — | — | — | not measured |"
    assert line_of(section(report, "Results"), "4", "tp8") == expected


def test_rejected_attempts_are_told_with_hit_rates_and_windows(report: str) -> None:
    protocol = section(report, "Protocol as executed")
    row = line_of(protocol, "tp2pp4/1k/c4", "1")
    assert row == f"| tp2pp4/1k/c4 | 1 | retry | requests 0.9998, counters 0.9998 | 100 .. 150 (4) | {NOT_COLD} |"
    assert "4 attempts for 3 measured points; 2 rejected." in protocol


def test_an_attempt_that_was_cut_off_is_told_as_interrupted(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("a/w/c2")])
    made.event(1.0, "attempt_started", point_id="a/w/c2", attempt=1, serial=1, windows={})
    killed = made.done()
    merge(killed)
    text = write_report(read_source(killed), killed.path).markdown.read_text(encoding="utf-8")
    row = line_of(section(text, "Protocol as executed"), "a/w/c2", "1")
    assert row.endswith("| interrupted before its verdict |")
    assert ENGLISH.nothing_valid in section(text, "Summary")


@pytest.mark.parametrize(
    ("streams", "words"),
    [({}, "streaming"), ({"a": False, "b": False}, "not streamed"), ({"b": False}, "streaming, but for b")],
)
def test_the_protocol_says_whether_answers_came_as_streams(
    tmp_path: Path, streams: dict[str, bool], words: str
) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned("x/a/c2"), planned("x/b/c2")])
    manifest = read_json(made.run.manifest)
    assert isinstance(manifest, dict)
    workloads = [{"name": name, "stream": streams.get(name, True)} for name in ("a", "b")]
    write_json(made.run.manifest, manifest | {"scenario": {"workloads": workloads}})
    for start, name in ((5.0, "x/a/c2"), (10.0, "x/b/c2")):
        made.attempt(start, name, 1, wave(start, 4), (start, start + 2), ACCEPT)
    run = made.done()
    merge(run)
    told = section(
        write_report(read_source(run), run.path).markdown.read_text(encoding="utf-8"), "Protocol as executed"
    )
    assert f"until no request is unsent; {words}; token counts" in told


def test_that_all_arms_are_sequential_is_said_once_and_not_at_each_number(tmp_path: Path) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([planned(f"{arm}/w/c1") for arm in "abc"])
    for start, arm, tokens in ((5.0, "a", 20), (10.0, "b", 20), (15.0, "c", 11)):
        made.attempt(start, f"{arm}/w/c1", 1, wave(start, 4, tokens=tokens), (start, start + 2), ACCEPT)
        made.event(start + 3, "point_committed", point_id=f"{arm}/w/c1", attempt=1, verdict="accepted", reasons=[])
    run = made.done()
    merge(run)
    summary = section(write_report(read_source(run), run.path).markdown.read_text(encoding="utf-8"), "Summary")
    assert summary.count("C=1") == summary.count(ENGLISH.sequential) == 1
    assert "| a ≈ b | a ≈ b ≈ c |" in summary
    assert "- Output TPS: a, b ahead together (within 3 %)" in summary


def test_active_limits_say_what_bounds_them(report: str) -> None:
    row = line_of(section(report, "Active limits"), "1k (1k -> 11)")
    assert row == "| 1k (1k -> 11) | 2 (max running requests) | 2 (KV pool) |"


def test_facts_stand_side_by_side_and_unknown_ones_are_dashes(report: str) -> None:
    environment = section(report, "Environment and configuration")
    assert line_of(environment, "Prefix cache") == "| Prefix cache | no | — |"
    gpus = "| GPUs | 2 x Example GPU (80.0 GiB), driver 580.1 | not available (library not found) |"
    assert line_of(environment, "GPUs") == gpus


def test_gpu_memory_is_told_by_device_for_accepted_points_only(report: str) -> None:
    memory = section(report, "GPU memory")
    expected = "| tp2pp4 | gpu-host 0 | 80.0 GiB | 60.0 GiB | 65.0 GiB | 70.0 GiB | 10.0 GiB | 1k C=2 |"
    assert line_of(memory, "tp2pp4", "gpu-host 0") == expected
    assert "tp8" not in memory


def test_windows_of_every_attempt_are_in_appendix_a(report: str) -> None:
    windows = section(report, "Appendix A: corpus windows")
    assert line_of(windows, "tp2pp4/1k/c4", "1", "retry").endswith("| 100 .. 150 (4) | — |")
    assert line_of(windows, "tp2pp4/1k/c4", "2", "accept").endswith("| 200 .. 250 (4) | — |")


def test_the_report_names_the_percentile_method_the_torn_part_and_the_inputs(report: str) -> None:
    assert "P95 is the maximum for n < 20" in section(report, "Notes")
    assert "parts/gpu/gpu-host.arrows: file not closed" in section(report, "Warnings")
    assert line_of(section(report, "Ledger (sha256)"), "corpus") == f"| corpus | {'cd' * 32} |"


def test_every_table_has_rows_of_one_width(report: str) -> None:
    tables = [block for block in report.split("\n\n") if "\n| " in block]
    assert len(tables) > 5
    for table in tables:
        assert len({line.count(" | ") for line in table.splitlines() if line.startswith("| ")}) == 1, table


def test_o_f3_report_json_is_strict_and_undefined_is_null(run: RunDirectory) -> None:
    told = json.loads((run.path / "report.json").read_text(), parse_constant=pytest.fail)
    points = {point["point_id"]: point for point in told["points"]}
    assert points["tp8/512k/c1"]["tpot_ms_p95"] is None
    assert points["tp8/1k/c4"]["verdict"] is None
    assert points["tp2pp4/1k/c2"]["output_tokens_per_s"] == 22.0
    assert told["percentile_method"] == "nearest rank"


def test_rows_come_in_the_order_of_the_plan_with_their_json_decoded(run: RunDirectory) -> None:
    rows = read_points(run)
    manifest = read_json(run.manifest)
    assert isinstance(manifest, dict)
    assert [row["point_id"] for row in rows] == [point["point_id"] for point in manifest["points"]]
    assert rows[0]["errors_by_class"] == {}
    assert rows[1]["attempt_history"][0]["verdict"] == "retry"


def test_a_run_that_was_not_merged_is_told_how_to_merge(tmp_path: Path) -> None:
    made = whole_run(tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="raybench merge"):
        write_report(read_source(made), made.path)


def test_the_report_needs_neither_ray_nor_pandas() -> None:
    rooms = "raybench.report.write, raybench.report.terminal"
    unwanted = "{'ray', 'pandas', 'pydantic', 'aiohttp'} & set(sys.modules)"
    code = f"import sys, {rooms}; sys.exit(bool({unwanted}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
