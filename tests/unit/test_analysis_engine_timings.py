"""Engine timings of records, the request log that is joined to them, and what artifacts.json says of both."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raybench.analysis import artifacts
from raybench.analysis import engine_timings as timings
from raybench.analysis.artifacts import arm_facts, artifact_entry, has_prompts
from raybench.analysis.engine_log import join_log
from raybench.engines.request_log import LoggedRequest, read_request_log
from raybench.protocol.answer_checks import check_answers, check_engine_times, check_prompt_lengths
from raybench.records.schema import REQUESTS
from raybench.report.artifacts import comparisons, gate_table
from raybench.report.document import Heading, Table
from raybench.report.section_text import ArtifactText
from raybench.report.text import ENGLISH
from raybench.report.text_zh import CHINESE
from raybench.scenario.plan import Point

SEED = Path(__file__).parents[1] / "golden" / "seed2"
MS = 1_000_000
S = 1000 * MS
AT = 1_790_000_000 * S


def row(ticket: int, **fields: Any) -> dict[str, Any]:
    """A successful answer of 101 tokens: 0.5 s of prefill of 1000 tokens, 2 s of decode, 20 ms on the way."""
    return {
        "phase": "load",
        "ticket": ticket,
        "prompt": "s1",
        "outcome": "ok",
        "tokens_source": "server",
        "finish_reason": "stop",
        "no_answer_text": False,
        "input_tokens": 1000,
        "cached_tokens": 0,
        "output_tokens": 101,
        "sent_ns": 0,
        "end_ns": 2520 * MS,
        "engine_prefill_s": 0.5,
        "engine_decode_s": 2.0,
        **fields,
    }


def table(*rows: dict[str, Any]) -> pa.Table:
    stamps = [("sent_unix_ns", pa.int64()), ("end_unix_ns", pa.int64())]
    filled = [{**one, "sent_unix_ns": AT, "end_unix_ns": AT + one["ticket"] * S} for one in rows]
    return pa.Table.from_pylist(filled, schema=pa.schema([*REQUESTS, *stamps]))


def test_rates_are_of_computed_tokens_and_leave_the_first_token_to_the_prefill() -> None:
    one = table(row(0, cached_tokens=400))
    assert timings.engine_prefill_tokens_per_s(one).to_pylist() == [1200.0]
    assert timings.engine_decode_tokens_per_s(one).to_pylist() == [50.0]
    assert timings.request_rate(one) == 101 / 2.5
    assert timings.e2e_over_engine_ms(one).to_pylist() == [pytest.approx(20.0)]


def test_rates_of_several_requests_are_sums_over_sums() -> None:
    both = table(row(0), row(1, output_tokens=11, engine_decode_s=1.0))
    assert timings.decode_rate(both) == pytest.approx(110 / 3)


def test_what_the_engine_does_not_tell_is_unknown_and_failures_do_not_count() -> None:
    silent = table(row(0, engine_prefill_s=None, engine_decode_s=None))
    assert timings.decode_rate(silent) is timings.prefill_rate(silent) is timings.acceptance_rate(silent) is None
    assert timings.engine_decode_tokens_per_s(silent).to_pylist() == [None]
    assert timings.total_s(silent, silent["engine_decode_s"]) is None
    failed = table(row(0), row(1, outcome="engine_error", engine_decode_s=100.0))
    assert timings.decode_rate(failed) == 50.0


def test_one_token_has_no_decode_rate() -> None:
    assert timings.engine_decode_tokens_per_s(table(row(0, output_tokens=1))).to_pylist() == [None]


def test_acceptance_and_tokens_a_round_are_the_seeds() -> None:
    one = table(row(0, draft_tokens=300, accepted_tokens=211, verify_rounds=100))
    assert timings.acceptance_rate(one) == pytest.approx(0.7033, abs=1e-4)
    assert timings.tokens_per_round(one) == pytest.approx(3.11)


@pytest.mark.parametrize("reason", ["length", "output_limit", "context_capacity"])
def test_an_answer_that_used_up_its_budget_is_truncated(reason: str) -> None:
    rows = table(row(0, finish_reason=reason, no_answer_text=True), row(1))
    assert (timings.truncated_answers(rows), timings.empty_answers(rows)) == (1, 1)
    (found,) = check_answers(rows, ignore_eos=False)
    assert (found.code, found.severity) == ("answers_truncated", "warning")
    assert "1 of 2 answers were cut off" in found.message
    assert not list(check_answers(rows, ignore_eos=True))


def test_an_answer_of_which_nobody_knows_whether_it_has_text_is_not_called_empty() -> None:
    assert timings.empty_answers(table(row(0, no_answer_text=None), row(1, no_answer_text=True))) == 1


def test_the_clients_own_seconds_are_summed_beside_the_engines() -> None:
    told = artifacts.told(table(row(0, first_token_ns=600 * MS), row(1, first_token_ns=900 * MS)))
    assert told["request_s"] == 5.0
    assert told["client_e2e_s"] == pytest.approx(5.04)
    assert told["client_first_token_s"] == pytest.approx(1.5)


def test_a_client_that_is_done_before_its_engine_is_told_of() -> None:
    assert not list(check_engine_times(table(row(0), row(1, end_ns=2496 * MS))))
    (found,) = check_engine_times(table(row(0, end_ns=2484 * MS)))
    assert found.code == "client_before_engine"
    assert "16.0 ms" in found.message


def test_a_prompt_longer_than_planned_is_told_of() -> None:
    point = Point("a/w/c1", "a", "w", 1, 1, 999, 10, None, None, None, prompt_set=True)
    (found,) = check_prompt_lengths(table(row(0)), point)
    assert "1,000 tokens" in found.message
    assert not list(check_prompt_lengths(table(row(0)), replace(point, input_tokens=1000)))


# -- the request log -------------------------------------------------------------------------------


def line(request_id: int, *, at_ms: int = 0, event: str = "request_done", tokens: int = 101) -> bytes:
    return json.dumps(
        {
            "artifact_type": "ninfer_serve_request_log",
            "schema_version": 21,
            "event": event,
            "timestamp_unix_ms": AT // MS + at_ms,
            "server_instance_id": "i",
            "request": {"request_id": request_id},
            "result": {
                "finish_reason": "output_limit",
                "prompt_tokens": 1000,
                "completion_tokens": tokens,
                "prefix_cache_hit_tokens": 0,
            },
            "timings_seconds": {"prepare": 0.1, "vision": 0.0, "prefill": 0.4, "decode": 2.0, "total": 2.5},
            "speculative": {"rounds": 50, "drafted_tokens": 150, "accepted_tokens": 50},
        }
    ).encode()


def logged(*lines: bytes) -> list[LoggedRequest]:
    return list(read_request_log(lines))


def silent(ticket: int, **fields: Any) -> dict[str, Any]:
    return row(ticket, engine_prefill_s=None, engine_decode_s=None, cached_tokens=None, **fields)


LOAD = (AT, AT + 10 * S)


def test_the_log_is_read_line_by_line_each_request_once() -> None:
    (one,) = logged(b"", b"{torn", b'{"event": "request_done"}', line(1, event="request_start"), line(1), line(1))
    assert (one.request_id, one.prefill_s, one.ttft_s, one.total_s) == ("1", 0.4, 0.5, 2.5)
    assert (one.verify_rounds, one.cached_tokens) == (50, 0)
    (one,) = logged(line(1).replace(b'"prepare"', b'"ttft": 0.7, "prepare"'))
    assert (one.prefill_s, one.ttft_s) == (0.4, 0.7)


def test_lines_are_joined_by_the_answers_id_whatever_their_order() -> None:
    rows = table(silent(0, response_id="chatcmpl-8", output_tokens=11), silent(1, response_id="chatcmpl-7"))
    joined, problem = join_log(rows, logged(line(7), line(8, tokens=11)), LOAD)
    assert problem is None
    assert joined["engine_decode_s"].to_pylist() == [2.0, 2.0]
    assert joined["cached_tokens"].to_pylist() == [0, 0]
    assert joined.schema.equals(rows.schema)


def test_without_ids_they_are_joined_by_their_ends_if_every_count_agrees() -> None:
    rows = table(silent(0, output_tokens=11), silent(1))
    joined, problem = join_log(rows, logged(line(5, at_ms=900), line(4, at_ms=1, tokens=11)), LOAD)
    assert problem is None
    assert joined["verify_rounds"].to_pylist() == [50, 50]


@pytest.mark.parametrize(
    "lines",
    [(line(4),), (line(4), line(5, tokens=12)), (line(4), line(5), line(6))],
    ids=["too few", "another length", "foreign traffic"],
)
def test_a_join_that_would_be_a_guess_is_none_and_says_so(lines: tuple[bytes, ...]) -> None:
    rows = table(silent(0), silent(1))
    joined, problem = join_log(rows, logged(*lines), LOAD)
    assert problem is not None
    assert joined["engine_decode_s"].to_pylist() == [None, None]


def test_lines_of_another_time_are_left_out() -> None:
    rows = table(silent(0))
    joined, problem = join_log(rows, logged(line(1, at_ms=-60_000), line(2)), LOAD)
    assert (problem, joined["engine_decode_s"].to_pylist()) == (None, [2.0])


def test_what_the_answer_told_itself_stays() -> None:
    joined, _ = join_log(table(row(0)), logged(line(1)), LOAD)
    assert joined["engine_prefill_s"].to_pylist() == [0.5]
    assert joined["engine_e2e_s"].to_pylist() == [2.5]


# -- the comparison --------------------------------------------------------------------------------


def seed(name: str) -> list[dict[str, str]]:
    with (SEED / name).open(newline="") as file:
        return list(csv.DictReader(file))


def seed_entries() -> list[dict[str, Any]]:
    """The second seed's main experiment as entries of artifacts.json: its totals, its decode rates by prompt."""
    entries = []
    for told in seed("ninfer_overview.csv")[:3]:
        letter = told["model"][0]
        tokens, decode = int(told["completion_tokens"]), float(told["decode_tps"])
        rates = {
            scenario["scenario"]: (
                float(scenario[letter]),
                int(scenario["prompt_tokens"]),
                int(scenario["max_tokens"]),
            )
            for scenario in seed("ninfer_decode_by_scenario.csv")
        }
        requests = table(
            *(
                row(
                    ticket,
                    prompt=name,
                    input_tokens=prompt,
                    output_tokens=budget,
                    engine_decode_s=(budget - 1) / rate,
                    engine_prefill_s=prompt / 957.0,
                    finish_reason="length" if ticket else "stop",
                )
                for ticket, (name, (rate, prompt, budget)) in enumerate(rates.items())
            )
        )
        assert has_prompts(requests)
        point = {"point_id": f"{letter}/coding/c1", "arm": letter, "workload": "coding", "concurrency": 1}
        process = {"load_s": float(told["load_s"]), "process_s": float(told["process_s"]), "slack_mib": 156.0}
        arm = arm_facts({"context_tokens": 196608}, [{"load_s": None}, process], {"summary": "7/7", "ok": True})
        entry = artifact_entry({**point, "verdict": "accepted"}, requests, arm)
        assert entry["decode_tokens_per_s"] == pytest.approx(decode, rel=0.02)
        whole = {"output_tokens": tokens, "request_s": float(told["request_s"]), "decode_s": (tokens - 5) / decode}
        counts = {"truncated": int(told["truncated"]), "empty": int(told["empty_answers"])}
        rate = tokens / whole["request_s"]
        entry["name"] = entry["point_id"]  # as a report of one run calls it
        entries.append({**entry, **whole, **counts, "decode_tokens_per_s": decode, "request_tokens_per_s": rate})
    return entries


def cells(title: str, text: ArtifactText = ENGLISH.artifacts) -> list[tuple[str, ...]]:
    blocks = list(comparisons(seed_entries(), {"A/coding/c1": 200 * 1024 * 1024}, text))
    (place,) = (k for k, block in enumerate(blocks) if isinstance(block, Heading) and block.text.startswith(title))
    table = next(block for block in blocks[place:] if isinstance(block, Table))
    return [line.cells for line in table.rows]


def test_the_overview_of_the_second_seed_comes_out_as_published() -> None:
    published = seed("ninfer_overview.csv")
    for line_cells, told in zip(cells("Overview"), published, strict=True):
        wanted = (f"{int(told['completion_tokens']):,}", f"{int(told['total_tokens']):,}")
        assert line_cells[2:4] == wanted
        seconds = [float(line_cells[column]) for column in (4, 5, 6)]
        names = ("load_s", "request_s", "process_s")
        assert seconds == [pytest.approx(float(told[name]), abs=0.11) for name in names]
        assert float(line_cells[7].split()[0]) == pytest.approx(float(told["decode_tps"]), abs=0.02)
        assert float(line_cells[8].split()[0]) == pytest.approx(float(told["e2e_tps"]), abs=0.05)
        assert line_cells[11] == f"{told['truncated']}/{told['empty_answers']}"
        assert line_cells[7].endswith("‡")


def test_the_fastest_by_prompt_have_the_published_leads_and_none_is_clear() -> None:
    leads = ["C +1.9 %", "A +1.4 %", "A +2.7 %", "A +1.7 %", "C +1.6 %"]
    assert [line_cells[-1] for line_cells in cells("Decode")] == [
        f"no clear difference ({lead})" for lead in leads
    ]
    rates = [line_cells[1] for line_cells in cells("Decode")]
    assert rates[:2] == ["112.20", "118.88 ‡"]


def test_memory_and_the_use_of_the_context_are_told() -> None:
    first = cells("Memory")[0]
    assert first[:6] == ("A", "196,608", "200 MiB", "156.0 MiB", "5/5", "2")
    assert first[6] == "50,616 (25.7%)"


def test_arms_of_the_same_context_stand_against_the_first() -> None:
    rows = {line_cells[0]: line_cells[1:] for line_cells in cells("Same context (196,608 tokens)")}
    assert rows["decode tok/s"] == ("112.77", "107.48", "−4.7 %", "112.43", "−0.3 %")
    assert rows["slack after start (MiB)"][2] == "+0.0 %"


def test_the_tables_are_there_in_chinese_too() -> None:
    assert cells("总览", CHINESE.artifacts)[3][0] == "合计"


def test_void_points_are_not_compared() -> None:
    void = [{**entry, "verdict": "void"} for entry in seed_entries()]
    assert not list(comparisons(void, {}, ENGLISH.artifacts))


def test_a_gate_that_was_not_passed_is_loud() -> None:
    checks = [
        {"name": "json", "passed": True, "detail": "x"},
        {"name": "stop", "passed": False, "detail": "went on"},
    ]
    gate = {"ok": False, "summary": "1/2: stop failed", "needed": 2, "checks": checks}
    (line_row,) = gate_table({"arm": gate}, ENGLISH.artifacts).rows
    assert line_row.cells[1].startswith("1/2: stop failed")
    assert (line_row.tone, line_row.strong) == ("bad", {1})
    assert line_row.cells[3] == "stop: went on"
