"""The engine's books beside the records: what is equal, what lies between two clocks, what is flagged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from request_rows import failed, request, table

from raybench.analysis.agreement import Agreement, CountLine, LatencyLine, PairedLine, agreement
from raybench.analysis.history import Attempt
from raybench.analysis.metrics import LATENCIES
from raybench.report.agreement import agreement_answer, agreement_section
from raybench.report.document import Bullets, Heading, Paragraph, Table
from raybench.report.text import Text
from raybench.report.text_en import ENGLISH
from raybench.report.text_zh import CHINESE

POINT = "arm/load/c1"


def requests(rows: list[dict[str, object]]) -> pa.Table:
    """As in requests.parquet: with the derived latencies."""
    made = table(rows)
    for name, metric in LATENCIES.items():
        made = made.append_column(name, metric(made))
    return made


def answer(ticket: int, *, later_s: float = 0.002, **changes: Any) -> dict[str, object]:
    """First token after 0.4 s and ten tokens by 1.3 s on the engine's clock; we see all `later_s` later."""
    row = request(
        ticket, 0.0, 1.3 + later_s, first_s=0.4 + later_s, last_s=1.3 + later_s, output_tokens=10, input_tokens=100
    )
    told = {"output_tokens_asked": 10, "input_tokens_asked": 100, "cached_tokens": 3}
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
    assert found.queue_p50_ms == pytest.approx(50.0)
    # A distribution has a line for its mean and one for each of two percentiles.
    told, _, drawn = agreement_section([found], ENGLISH)
    assert told == Paragraph("10 comparisons: 4 equal, 6 agree, 0 explained, 0 flagged.")
    assert isinstance(drawn, Table)
    assert len(drawn.rows) == 10 + 2 * 3


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


def test_a_percentile_outside_the_engines_bucket_is_flagged_though_the_means_agree() -> None:
    attempt = books(4)
    attempt.latencies_after["tpot"]["buckets"] = [(0.15, 0), (0.3, 4)]
    line = line_of(agreement(POINT, requests([answer(k) for k in range(4)]), attempt, None), LatencyLine, "tpot")
    assert (line.judgement, line.why) == ("flagged", "P50 lies 50.0 ms outside the engine's bucket")
    late = line_of(agreement(POINT, requests([answer(k) for k in range(4)]), attempt, 60.0), LatencyLine, "tpot")
    assert late.judgement == "explained"


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
    assert (nothing.lines, nothing.queue_p50_ms) == ((), None)
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
