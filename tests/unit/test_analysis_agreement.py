"""The engine's books beside the records: what is equal, what lies between two clocks, what is flagged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from request_rows import failed, ns, request, table
from synthetic_run import SyntheticRun

from raybench.analysis.agreement import (
    Agreement,
    CountLine,
    LatencyLine,
    PairedLine,
    Wait,
    agreement,
    read_agreements,
)
from raybench.analysis.history import Attempt
from raybench.analysis.lateness import BETWEEN_MS
from raybench.analysis.metrics import LATENCIES
from raybench.report.agreement import agreement_answer, agreement_section
from raybench.report.document import Bullets, Heading, Paragraph, Table
from raybench.report.text import ENGLISH, Text
from raybench.report.text_zh import CHINESE

POINT = "arm/load/c1"


def requests(rows: list[dict[str, object]]) -> pa.Table:
    """As in requests.parquet: with the derived latencies."""
    made = table(rows)
    for name, metric in LATENCIES.items():
        made = made.append_column(name, metric(made))
    return made


def answer(ticket: int, *, later_s: float = 0.002, head_s: float = 0.001, **changes: Any) -> dict[str, object]:
    """First token after 0.4 s and ten tokens by 1.3 s on the engine's clock; we see all `later_s` later.

    head_s: from the sending to the head of the answer.
    """
    row = request(
        ticket, 0.0, 1.3 + later_s, first_s=0.4 + later_s, last_s=1.3 + later_s, output_tokens=10, input_tokens=100
    )
    told = {"output_tokens_asked": 10, "input_tokens_asked": 100, "cached_tokens": 3, "headers_ns": ns(head_s)}
    return row | told | {"engine_ttft_s": 0.4, "engine_e2e_s": 1.3, "engine_queue_s": 0.05} | changes


def histogram(n: int, sum_s: float, *bounds: tuple[float, float]) -> dict[str, object]:
    return {"count": n, "sum_s": sum_s, "buckets": list(bounds)}


def books(n: int, **counters: float) -> Attempt:
    """The engine's own account of `n` requests as `answer` makes them, on top of an earlier one."""
    moved = {"requests": n, "input_tokens": 100 * n, "output_tokens": 10 * n, "cached_tokens": 3 * n} | counters
    return Attempt(
        1,
        counters_before=dict.fromkeys(moved, 5.0),
        counters_after={name: 5.0 + value for name, value in moved.items()},
        latencies_before={"ttft": histogram(1, 9.0, (0.2, 0), (0.6, 0))},
        latencies_after={
            "ttft": histogram(1 + n, 9.0 + 0.4 * n, (0.2, 0), (0.6, n)),
            "e2e": histogram(n, 1.3 * n, (1.0, 0), (2.0, n)),
            "tpot": histogram(n, 0.1 * n, (0.05, 0), (0.2, n)),
            "itl": histogram(9 * n, 0.9 * n),
        },
    )


def line_of(found: Agreement, kind: type, name: str) -> Any:
    [line] = [line for line in found.lines if isinstance(line, kind) and line.name == name]
    return line


def test_books_that_agree_are_said_to_and_by_how_much() -> None:
    found = agreement(POINT, requests([answer(k) for k in range(4)]), books(4), 1.0)
    assert {line.judgement for line in found.counts} == {"equal"}
    assert [line.name for line in found.counts] == ["requests", "input_tokens", "output_tokens", "cached_tokens"]
    assert {line.judgement for line in (*found.latencies, *found.paired)} == {"agrees"}
    assert [line.name for line in found.latencies] == ["ttft", "e2e", "tpot", "itl"]
    assert line_of(found, LatencyLine, "ttft").difference_ms == pytest.approx(2.0)
    assert line_of(found, LatencyLine, "itl").difference_ms == pytest.approx(0.0, abs=1e-6)
    assert line_of(found, PairedLine, "e2e").p99_ms == pytest.approx(2.0)
    assert found.waits == (Wait("head", 1.0, 1.0), Wait("queue", 50.0, 50.0))
    # A distribution has a line for its mean and one for each of two percentiles, as has what one side alone sees.
    told, _, drawn = agreement_section([found], ENGLISH)
    assert told == Paragraph("10 comparisons: 4 equal, 6 agree, 0 explained, 0 flagged.")
    assert isinstance(drawn, Table)
    assert len(drawn.rows) == 10 + 2 * 3 + 2 * 2


@pytest.mark.parametrize("name", ["requests", "input_tokens", "output_tokens", "cached_tokens"])
@pytest.mark.parametrize("off", [-1, 1])
def test_one_token_more_or_less_is_flagged(name: str, off: int) -> None:
    attempt = books(4)
    attempt = books(4, **{name: attempt.counters_after[name] - 5.0 + off})
    found = agreement(POINT, requests([answer(k) for k in range(4)]), attempt, None)
    line = line_of(found, CountLine, name)
    assert (line.judgement, line.why) == ("flagged", f"1 {'more' if off > 0 else 'less'} than the records")
    assert found.flagged == [line]


def test_what_failed_explains_more_on_the_engines_side_up_to_what_was_asked() -> None:
    cut = failed(4, 0.0, 1.0, "disconnected", "disconnected") | {
        "input_tokens_asked": 100,
        "output_tokens_asked": 10,
    }
    rows = requests([*(answer(k) for k in range(4)), cut])
    some = agreement(POINT, rows, books(4, requests=5, input_tokens=500, output_tokens=47, cached_tokens=12), None)
    assert [line.judgement for line in some.counts] == ["explained"] * 3 + ["equal"]
    beyond = agreement(POINT, rows, books(4, output_tokens=51), None)
    assert line_of(beyond, CountLine, "output_tokens").judgement == "flagged"


def test_an_answer_seen_before_the_engine_had_it_is_flagged() -> None:
    rows = [*(answer(k) for k in range(3)), answer(3, later_s=-0.01)]
    found = agreement(POINT, requests(rows), books(4), None)
    line = line_of(found, PairedLine, "ttft")
    assert (line.judgement, line.min_ms) == ("flagged", pytest.approx(-10.0))
    assert "sooner than the engine" in line.why
    stalled = agreement(POINT, requests(rows), books(4), 12.0)
    assert line_of(stalled, PairedLine, "ttft").judgement == "explained"


def test_a_late_client_is_flagged_unless_its_own_loop_says_how_late_it_was() -> None:
    rows = requests([answer(k, later_s=0.15) for k in range(4)])
    unexplained = agreement(POINT, rows, books(4), 3.0)
    assert {line.judgement for line in (*unexplained.paired, line_of(unexplained, LatencyLine, "ttft"))} == {
        "flagged"
    }
    explained = agreement(POINT, rows, books(4), 200.0)
    assert {line.judgement for line in explained.paired} == {"explained"}


def test_what_waited_for_the_head_of_the_answer_is_explained_by_it() -> None:
    """SGLang on an H200: its HTTP process took requests up one by one, and its clock began with each head."""
    rows = requests([answer(k, later_s=0.152, head_s=0.15) for k in range(4)])
    found = agreement(POINT, rows, books(4), 3.0)
    late = [*found.paired, *(line for line in found.latencies if line.name in ("ttft", "e2e"))]
    assert [line.judgement for line in late] == ["explained"] * 4
    told = "152.0 ms later than the engine, 150.0 ms passed before the head of the answer"
    assert {line.why for line in late} == {told}
    both = line_of(agreement(POINT, rows, books(4), 200.0), PairedLine, "ttft")
    assert (both.judgement, both.why) == ("explained", f"{told}; the client read up to 200 ms late")


def test_a_percentile_beyond_its_bucket_is_explained_by_the_head_too() -> None:
    """The mean agrees, the highest of the engine's own lies one bucket lower."""
    rows = requests([answer(k) for k in range(99)] + [answer(k, later_s=0.152, head_s=0.15) for k in (99, 100)])
    attempt = books(101)
    attempt.latencies_after["e2e"]["buckets"] = [(1.0, 0), (1.31, 101)]
    line = line_of(agreement(POINT, rows, attempt, None), LatencyLine, "e2e")
    assert (line.judgement, line.difference_ms < BETWEEN_MS) == ("explained", True)
    silent = rows.set_column(rows.schema.get_field_index("headers_ns"), "headers_ns", pa.nulls(101, pa.int64()))
    line = line_of(agreement(POINT, silent, attempt, None), LatencyLine, "e2e")
    assert (line.judgement, line.why) == ("flagged", "P99 lies 142.0 ms outside the engine's bucket")


@pytest.mark.parametrize("head_s", [0.001, 0.05])
def test_what_came_late_behind_the_head_is_flagged(head_s: float) -> None:
    found = agreement(POINT, requests([answer(k, later_s=0.15, head_s=head_s) for k in range(4)]), books(4), None)
    assert {line.judgement for line in found.paired} == {"flagged"}
    assert line_of(found, LatencyLine, "ttft").judgement == "flagged"


def test_a_head_that_comes_with_the_first_token_explains_nothing() -> None:
    """Its engine's clock began long before: what lies between the two is the engine's own work."""
    rows = [answer(k, later_s=0.04, head_s=0.055, engine_ttft_s=0.015) for k in range(4)]
    for row in rows:
        row["first_token_ns"] = row["headers_ns"]
    attempt = books(4)
    attempt.latencies_after["ttft"] = histogram(5, 9.0 + 4 * 0.015, (0.2, 4), (0.6, 4))
    found = agreement(POINT, requests(rows), attempt, None)
    assert line_of(found, PairedLine, "ttft").judgement == "flagged"
    assert line_of(found, LatencyLine, "ttft").judgement == "flagged"


def test_heads_that_are_not_known_of_all_requests_explain_nothing() -> None:
    rows = requests([answer(k, later_s=0.15, head_s=0.15) for k in range(3)] + [answer(3, headers_ns=None)])
    found = agreement(POINT, rows, books(4), None)
    assert line_of(found, PairedLine, "ttft").judgement == "flagged"
    assert line_of(found, LatencyLine, "ttft").judgement == "flagged"


def test_a_head_excuses_no_answer_that_was_seen_too_soon() -> None:
    rows = [answer(k, later_s=0.15, head_s=0.15) for k in range(199)] + [answer(199, later_s=-0.01)]
    line = line_of(agreement(POINT, requests(rows), books(200), None), PairedLine, "ttft")
    assert line.judgement == "flagged"
    assert "sooner than the engine" in line.why


@given(st.integers(0, 400), st.integers(0, 400))
def test_only_what_lies_behind_the_head_can_be_flagged(before_ms: int, after_ms: int) -> None:
    limit_ms = int(BETWEEN_MS)
    assume(limit_ms not in (after_ms, before_ms + after_ms))
    late_s, head_s = (before_ms + after_ms) / 1000, before_ms / 1000
    rows = requests([answer(k, later_s=late_s, head_s=head_s) for k in range(3)])
    found = agreement(POINT, rows, books(3), None)
    expected = "explained" if after_ms < limit_ms else "flagged"
    if before_ms + after_ms < limit_ms:
        expected = "agrees"
    assert line_of(found, PairedLine, "ttft").judgement == expected
    assert line_of(found, LatencyLine, "ttft").judgement == expected


@pytest.mark.parametrize(("in_load_ms", "judged"), [(1.0, "flagged"), (200.0, "explained")])
def test_how_late_a_client_was_before_its_load_explains_nothing(
    tmp_path: Path, in_load_ms: float, judged: str
) -> None:
    made = SyntheticRun(tmp_path / "run")
    made.manifest([{"point_id": POINT}])
    made.event(1, "attempt_started", point_id=POINT, attempt=1)
    made.event(9, "point_committed", point_id=POINT, attempt=1, verdict="accepted")
    rows = requests([answer(k, later_s=0.15) for k in range(4)])
    sent_unix_ns = 1_000_000
    rows = rows.append_column("sent_unix_ns", pa.array([sent_unix_ns + k for k in range(4)], pa.int64()))
    pq.write_table(rows.append_column("final", pa.array([True] * 4)), made.run.requests_parquet)
    lags = {sent_unix_ns - 1: 300.0, sent_unix_ns + 500: in_load_ms}
    health = [
        {"point_id": POINT, "attempt": 1, "aligned_unix_ns": at, "loop_lag_ms_max": lag}
        for at, lag in lags.items()
    ]
    pq.write_table(pa.Table.from_pylist(health), made.run.worker_parquet)
    [found] = read_agreements(made.run)
    assert line_of(found, PairedLine, "ttft").judgement == judged


def test_a_percentile_outside_the_engines_bucket_is_flagged_though_the_means_agree() -> None:
    attempt = books(4)
    attempt.latencies_after["tpot"]["buckets"] = [(0.15, 0), (0.3, 4)]
    line = line_of(agreement(POINT, requests([answer(k) for k in range(4)]), attempt, None), LatencyLine, "tpot")
    assert (line.judgement, line.why) == ("flagged", "P50 lies 50.0 ms outside the engine's bucket")
    late = line_of(agreement(POINT, requests([answer(k) for k in range(4)]), attempt, 60.0), LatencyLine, "tpot")
    assert late.judgement == "explained"


def test_the_p99_stands_beside_the_bucket_of_the_engines_p99_and_not_of_its_maximum() -> None:
    attempt = books(200)
    attempt.latencies_after["e2e"]["buckets"] = [(1.0, 0), (1.31, 198), (5.0, 200)]
    line = line_of(agreement(POINT, requests([answer(k) for k in range(200)]), attempt, None), LatencyLine, "e2e")
    assert (line.judgement, line.engine_p99_ms) == ("agrees", (1000.0, 1310.0))


def test_tokens_that_the_server_did_not_count_are_held_against_no_counter() -> None:
    rows = requests([answer(0), answer(1, tokens_source="estimated", output_tokens=3)])
    found = agreement(POINT, rows, books(2), None)
    assert [line.name for line in found.counts] == ["requests", "input_tokens", "cached_tokens"]
    assert "itl" not in [line.name for line in found.latencies]


def test_as_many_observations_as_records() -> None:
    found = agreement(POINT, requests([answer(k) for k in range(4)]), books(5), None)
    line = line_of(found, LatencyLine, "ttft")
    assert (line.judgement, line.why) == ("flagged", "5 observations, 4 records")


def test_unknown_is_compared_with_nothing() -> None:
    rows = requests([answer(0), answer(1, cached_tokens=None, engine_ttft_s=None, engine_e2e_s=None)])
    found = agreement(POINT, rows, Attempt(1), None)
    assert (found.counts, found.latencies) == ((), ())
    assert [line.n for line in found.paired] == [1, 1]
    silent = requests([answer(0, engine_ttft_s=None, engine_e2e_s=None, engine_queue_s=None)])
    nothing = agreement(POINT, silent, Attempt(1), None)
    assert (nothing.lines, [wait.name for wait in nothing.waits]) == ((), ["head"])
    assert list(agreement_section([nothing], ENGLISH)) == []
    assert [*agreement_answer([nothing], ENGLISH)][-1] == Paragraph(ENGLISH.agreement.nothing)
    told = books(2)
    cached = [line.name for line in agreement(POINT, rows, told, None).counts]
    assert "cached_tokens" not in cached


@given(st.integers(1, 30), st.floats(0, 0.015))
def test_equal_books_are_never_flagged(n: int, later_s: float) -> None:
    rows = requests([answer(k, later_s=later_s) for k in range(n)])
    assert agreement(POINT, rows, books(n), None).flagged == []


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_a_report_and_a_command_say_what_was_flagged_and_why(text: Text) -> None:
    found = agreement(POINT, requests([answer(k) for k in range(4)]), books(4, output_tokens=41), None)
    told, _, drawn, remarks = agreement_section([found], text)
    assert isinstance(told, Paragraph)
    assert told.warns
    assert isinstance(drawn, Table)
    [flagged] = [row for row in drawn.rows if row.tone == "bad"]
    words = text.agreement
    assert flagged.cells == (POINT, words.names["output_tokens"], "41", "40", "−1", words.judgements["flagged"])
    assert isinstance(remarks, Bullets)
    [remark] = [item.text for item in remarks.items]
    assert remark.endswith(": 1 more than the records")
    heading, table, *rest, verdict = agreement_answer([found], text)
    assert heading == Heading(POINT)
    assert isinstance(table, Table)
    assert [row.cells for row in table.rows] == [row.cells[1:] for row in drawn.rows]
    assert (Paragraph(remark) in rest, verdict) == (True, told)
