"""Comparisons of whole run directories: the conditions that they tell, and those that they do not (O-K2)."""

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import ACCEPT, SyntheticRun, planned, wave

from raybench.analysis.agreement import read_agreements
from raybench.analysis.merge import MERGE_JSON, merge
from raybench.errors import RunDirectoryError
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import read_json, write_json
from raybench.report.compare import PairComparison, compare_runs
from raybench.report.document import Heading, Paragraph, Row, Table
from raybench.report.markdown import answer
from raybench.report.metric_words import change, label, shown
from raybench.report.retest import compare_retest, write_final
from raybench.report.source import read_source
from raybench.report.write import write_report

RATE = "output_tokens_per_s"


def made(path: Path, facts: dict[str, Any] | None, *, attempt: int = 1, **guards: object) -> RunDirectory:
    """A run of one accepted point whose manifest and facts say what is given."""
    run = SyntheticRun(path)
    run.manifest([planned("x/1k/c2")])
    manifest = read_json(run.run.manifest)
    assert isinstance(manifest, dict)
    manifest["scenario"] = {"guards": {"flush": True, **guards}, "workloads": [{"name": "1k", "temperature": 0.0}]}
    write_json(run.run.manifest, manifest)
    if facts is not None:
        write_json(run.run.arm("x") / "facts.json", facts)
    run.event(0.0, "fleet_ready", clients=["c0", "c1"], workers=[{"worker": "w0"}])
    for number in range(1, attempt + 1):
        verdict = ACCEPT if number == attempt else ACCEPT | {"verdict": "retry"}
        run.attempt(5.0 * number, "x/1k/c2", number, wave(5.0 * number, 4, cached_tokens=0), (5.0, 7.0), verdict)
    run.event(30.0, "point_committed", point_id="x/1k/c2", attempt=attempt, verdict="accepted", reasons=[])
    done = run.done()
    merge(done)
    return done


def pair(a: RunDirectory, b: RunDirectory, **options: Any) -> PairComparison:
    (found,) = compare_runs([str(a.path)], [str(b.path)], (RATE,), **options).pairs
    return found


def told(found: PairComparison) -> dict[str, tuple[str | None, str | None]]:
    return {condition.name: (condition.a, condition.b) for condition in found.conditions}


FACTS = {
    "engine": "sglang",
    "version": "0.5.9",
    "model": "m",
    "context_tokens": 196608,
    "raw": {"args": {"tp": 2}},
}


def test_o_k2_flush_context_and_server_settings_that_differ_are_listed(tmp_path: Path) -> None:
    a = made(tmp_path / "a", FACTS)
    b = made(tmp_path / "b", FACTS | {"context_tokens": 155648, "raw": {"args": {"tp": 4}}}, flush=False)
    assert told(pair(a, b)) == {
        "gpus": (None, None),
        "cache_flush": ("true", "false"),
        "guards.flush": ("true", "false"),
        "context_tokens": ("196608", "155648"),
        "args.tp": ("2", "4"),
    }


def test_o_k2_versions_and_the_percentile_method_are_conditions(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a", FACTS), made(tmp_path / "b", FACTS)
    manifest, how = read_json(b.manifest), read_json(b.path / MERGE_JSON)
    assert isinstance(manifest, dict) and isinstance(how, dict)
    write_json(b.manifest, manifest | {"raybench_version": "0.0.9"})
    write_json(b.path / MERGE_JSON, how | {"percentile_method": "linear"})
    assert told(pair(a, b)) == {
        "gpus": (None, None),
        "raybench_version": ("0.1.0", "0.0.9"),
        "percentile_method": ("nearest rank", "linear"),
    }


def test_o_k2_a_run_without_facts_is_unknown_not_equal(tmp_path: Path) -> None:
    conditions = told(pair(made(tmp_path / "a", FACTS), made(tmp_path / "b", None)))
    assert conditions["version"] == ("0.5.9", None)
    assert conditions["context_tokens"] == ("196608", None)


def test_o_k2_a_point_that_was_measured_again_says_so(tmp_path: Path) -> None:
    from raybench.report.compare import Comparison, comparison_blocks

    found = pair(made(tmp_path / "a", FACTS), made(tmp_path / "b", FACTS, attempt=2))
    assert found.points[0].attempts == (1, 2)
    lines = [b.text for b in comparison_blocks(Comparison(3.0, [found], [], [])) if isinstance(b, Paragraph)]
    assert "The attempt that counts is not the same: 1k c2 (1 | 2)." in lines


def test_repeats_that_differ_among_themselves_are_named(tmp_path: Path) -> None:
    a, again, b = (
        made(tmp_path / "a", FACTS),
        made(tmp_path / "r", FACTS, flush=False),
        made(tmp_path / "b", FACTS),
    )
    (found,) = compare_runs([str(a.path), str(again.path)], [str(b.path)], (RATE,)).pairs
    assert any(text.startswith("cache_flush (") for text in found.uneven)
    assert found.points[0].repeats == (2, 1)


def test_arms_that_only_one_side_has_are_named(tmp_path: Path) -> None:
    for name, arms in (("a", ("x", "y")), ("b", ("x", "z"))):
        run = SyntheticRun(tmp_path / name)
        run.manifest([planned(f"{arm}/1k/c2") for arm in arms])
        merge(run.done())
    compared = compare_runs([str(tmp_path / "a")], [str(tmp_path / "b")], (RATE,))
    assert (compared.unmatched_a, compared.unmatched_b) == (["y"], ["z"])
    assert [p.arm_a for p in compared.pairs] == ["x"]


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("ttft_ms_p95", "TTFT P95"),
        ("tpot_ms_mean", "TPOT mean"),
        ("e2e_ms_max", "E2E max"),
        ("chunk_gap_ms_p99", "chunk gap P99"),
        ("ttft_ms_p95_steady", "TTFT P95 steady"),
        ("output_tokens_per_s_steady", "Output TPS steady"),
        ("preemptions", "Preempted"),
    ],
)
def test_metrics_have_short_labels(metric: str, words: str) -> None:
    assert label(metric) == words


def test_values_are_written_as_in_the_report() -> None:
    assert shown("ttft_ms_p95", 5360.0) == "5.36 s"
    assert shown("tpot_ms_p95", 50.3) == "50.3 ms"
    assert shown("output_tokens_per_s", 6747.91) == "6,748"
    assert shown("preemptions", 12) == "12"
    assert shown("preemptions", 1.5) == "1.5"
    assert shown("failure_share", None) == "—"


def test_o_k1_a_change_from_zero_has_words_and_no_number() -> None:
    from raybench.analysis.difference import difference

    assert change(difference("preemptions", 0, 12)) == "n/a (from 0)"
    assert change(difference("preemptions", 0, 0)) == "+0.0 %"
    assert change(difference("ttft_ms_p95", 10, 12)) == "+20.0 %"
    assert change(difference("tpot_ms_p95", None, 12)) == "—"


def test_markdown_keeps_bars_and_stars_out_of_its_tables() -> None:
    table = Table(("A|B", "n"), [Row(("x*", "1"))], right=frozenset({1}))
    assert answer([Heading("H", level=2), Paragraph("bad", "bad"), table]) == (
        "## H\n\n**bad**\n\n| A\\|B | n |\n| --- | ---: |\n| x\\* | 1 |\n"
    )


def test_the_json_of_a_comparison_is_strict(tmp_path: Path) -> None:
    from raybench.records.strict_json import to_json
    from raybench.report.compare import comparison_json

    a, b = made(tmp_path / "a", FACTS), made(tmp_path / "b", FACTS)
    compared = compare_runs([str(a.path)], [str(b.path)], (RATE, "tpot_ms_p95"))
    told = json.loads(to_json(comparison_json(compared)))
    assert told["pairs"][0]["points"][0]["differences"][0]["verdict"] == "no clear difference"


def test_the_outcome_of_a_retest_is_sent_to_no_command_that_refuses_it(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a", FACTS), made(tmp_path / "b", FACTS)
    told = compare_retest(
        str(a.path), str(b.path), ["1k/c2"], (RATE,), floor_percent=3.0, drift_limit_percent=3.0, final=None
    )
    final = write_final(told, tmp_path / "final")
    reproduce = (
        write_report(read_source(final), final.path).markdown.read_text(encoding="utf-8").split("## Reproduce")[1]
    )
    assert "raybench merge" not in reproduce and "from points where" in reproduce
    for refused in (merge, read_agreements):
        with pytest.raises(RunDirectoryError, match=r"not measured here \(retest\)"):
            refused(final)
