"""The client's stamps against a server's own, by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raybench.analysis.stamp_error import stamp_errors

MS = 1_000_000


def row(rid: str, reads_ms: list[float] | None, counts: list[int | None] | None = None) -> dict[str, object]:
    if reads_ms is None:
        return {"rid": rid, "chunk_ns": None, "chunk_tokens": None}
    return {
        "rid": rid,
        "chunk_ns": [int(at * MS) for at in reads_ms],
        "chunk_tokens": counts or [1] * len(reads_ms),
    }


def wrote(*at_ms: float) -> list[int]:
    return [int(at * MS) for at in at_ms]


def test_errors_are_the_clients_stamps_minus_the_servers() -> None:
    found = stamp_errors([row("a", [101, 203, 301])], {"a": wrote(100, 200, 300)})
    assert (found.ttft_ms_p50, found.ttft_ms_p99, found.stamp_ms_p99) == (1, 1, 3)
    assert found.gap_ms_p99 == 2  # 102 and 98 for two gaps of 100
    assert found.tokens_per_s == 10
    assert found.window_ns == (101 * MS, 301 * MS)
    assert found.unmatched == 0


def test_tokens_that_were_read_together_have_one_stamp() -> None:
    found = stamp_errors([row("a", [205, 300], [2, None])], {"a": wrote(100, 200, 300)})
    assert (found.ttft_ms_p50, found.stamp_ms_p99, found.gap_ms_p99) == (105, 105, 100)


def test_the_window_is_while_all_streams_were_under_way_and_rates_add_up() -> None:
    rows = [row("a", [0, 100, 200]), row("b", [150, 200, 250])]
    found = stamp_errors(rows, {"a": wrote(0, 100, 200), "b": wrote(150, 200, 250)})
    assert found.window_ns == (150 * MS, 200 * MS)
    assert found.tokens_per_s == 10 + 20
    apart = [row("a", [0, 1]), row("b", [5, 6])]
    assert stamp_errors(apart, {"a": wrote(0, 1), "b": wrote(5, 6)}).window_ns is None


def test_streams_that_the_two_sides_count_differently_give_no_errors() -> None:
    rows = [row("a", [1, 2]), row("b", None), row("c", [1]), row("d", [7])]
    found = stamp_errors(rows, {"a": wrote(1), "b": wrote(1), "d": wrote(6)})
    assert (found.unmatched, found.ttft_ms_p50, found.gap_ms_p99) == (3, 1, None)
    assert stamp_errors(rows[:1], {}).stamp_ms_p99 is None


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20).map(sorted), st.integers(0, 10**9))
def test_a_client_that_is_late_by_the_same_time_everywhere_has_true_gaps(writes: list[int], late: int) -> None:
    reads = {"rid": "a", "chunk_ns": [at + late for at in writes], "chunk_tokens": [1] * len(writes)}
    found = stamp_errors([reads], {"a": writes})
    assert found.ttft_ms_p50 == found.stamp_ms_p99 == late / MS
    assert not found.gap_ms_p99
