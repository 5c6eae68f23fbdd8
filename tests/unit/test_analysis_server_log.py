"""Sums over log lines: data-parallel groups add up, twins of a group do not (case O-P5)."""

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.analysis.server_log import LogSpan, groups_by_flush, log_rows, prefill_log
from raybench.engines.contract import LogLine
from raybench.engines.sglang_log import read_log_line
from raybench.errors import RunDirectoryError
from raybench.records.clock import ClockAnchor
from raybench.records.rundir import RunDirectory
from raybench.records.schema import SERVER_LOG
from raybench.records.stream import ArrowEncoder, part_metadata

O_P5 = [
    "[2026-01-01 00:00:01 DP0 TP0] Prefill batch. #new-seq: 1, #new-token: 1000, #cached-token: 0, usage: 0.01,",
    "[2026-01-01 00:00:01 DP1 TP0] Prefill batch. #new-seq: 1, #new-token: 2000, #cached-token: 500, "
    "cache hit rate: 11.11%, token usage: 0.02,",
    "[2026-01-01 00:00:02 DP0 TP0] Prefill batch, #new-seq: 2, #new-token: 3000, #cached-token: 0, "
    "full token usage: 0.10, mamba usage: 0.20, #pending-token: 7000, cuda graph: True, input throughput: 9000.0",
    "[2026-01-01 00:00:02 PP0 ATTN_CP0 TP0 EP0] Prefill batch, #new-seq: 1, #new-token: 4000, #cached-token: 0,",
    "[2026-01-01 00:00:02 PP0 ATTN_CP1 TP1 EP1] Prefill batch, #new-seq: 1, #new-token: 4000, #cached-token: 0,",
    "[2026-01-01 00:00:02 DP0 TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0.00, #queue-req: 0",
    '[2026-01-01 00:00:02] INFO:     127.0.0.1:5 - "POST /generate HTTP/1.1" 200 OK',
]


def row(told: LogLine, position: int = 0) -> dict[str, object]:
    return {"position": position} | asdict(told)


def table(lines: list[str]) -> pa.Table:
    told = [read_log_line(line) for line in lines]
    return pa.Table.from_pylist([row(one) for one in told if one is not None], schema=SERVER_LOG)


def prefill(tags: str, new: int, cached: int = 0, rest: str = "") -> str:
    batch = f"#new-seq: 1, #new-token: {new}, #cached-token: {cached},{rest}"
    return f"[2026-01-01 00:00:01{tags}] Prefill batch, {batch}"


def test_o_p5_groups_are_added_and_twins_are_not() -> None:
    log = prefill_log(table(O_P5))
    assert (log.new_tokens, log.cached_tokens) == (10_000, 500)
    assert log.hit_rate == pytest.approx(0.0476, abs=5e-5)
    assert log.groups == {None, 0, 1}


def test_o_p5_no_prefill_line_is_unknown_and_not_zero() -> None:
    log = prefill_log(table(["[2026-01-01 00:00:01] Cache flushed successfully!"]))
    assert (log.new_tokens, log.cached_tokens, log.hit_rate, log.input_tokens) == (None, None, None, None)


def test_o_p5_a_line_that_denies_its_own_hits_is_counted() -> None:
    lines = [prefill("", 10, 90, " cache hit rate: 0.00%,"), prefill("", 10, 90, " cache hit rate: 45.00%,")]
    log = prefill_log(table([*lines, prefill("", 10, 0, " cache hit rate: 0.00%,")]))
    assert log.contradictions == 1


def test_o_p5_of_four_pipeline_stages_one_counts() -> None:
    log = prefill_log(table([prefill(f" PP{stage} TP0", 100, 7) for _ in range(3) for stage in (2, 0, 1, 3)]))
    assert (log.new_tokens, log.cached_tokens) == (300, 21)


def test_o_p5_a_group_whose_first_rank_is_not_zero_counts() -> None:
    """With data-parallel attention the ranks of the second group begin at TP4."""
    log = prefill_log(table([prefill(" DP0 TP0", 100), prefill(" DP1 TP4", 200), prefill(" DP1 TP5", 200)]))
    assert log.new_tokens == 300


def test_retractions_are_summed() -> None:
    retract = "[2026-01-01 00:00:01{}] KV cache pool is full. Retract requests. #retracted_reqs: {}, #x: 1"
    lines = [retract.format(" PP0", 2), retract.format(" PP1", 2), retract.format(" PP0", 1)]
    assert prefill_log(table(lines)).retractions == 3


def test_the_last_word_of_each_group_on_a_flush_counts() -> None:
    done = "[2026-01-01 00:00:01{}] Cache flushed successfully!"
    refused = "[2026-01-01 00:00:01{}] Cache not flushed because there are pending requests. #queue-req: 1"
    lines = [refused.format(" DP0"), done.format(" DP0"), done.format(" DP1"), refused.format(" DP2")]
    assert groups_by_flush(table(lines)) == ({0, 1}, {2})


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4096), st.integers(0, 4096)), min_size=1),
    st.integers(1, 4),
)
def test_twins_never_change_the_sums(batches: list[tuple[int, int, int]], ranks: int) -> None:
    one = [prefill(f" DP{group} TP0", new, cached) for group, new, cached in batches]
    all_of_them = [
        prefill(f" DP{group} TP{rank}", new, cached)
        for group, new, cached in batches
        for rank in reversed(range(ranks))
    ]
    assert prefill_log(table(one)) == prefill_log(table(all_of_them))


def test_o_p5_only_lines_between_the_two_positions_count(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    path = run.next_server_log_part("arm")
    path.parent.mkdir(parents=True)
    told = [read_log_line(prefill("", tokens)) for tokens in (1, 20, 300, 4000)]
    rows = [
        row(one, position) for one, position in zip(told, (100, 200, 300, 400), strict=True) if one is not None
    ]
    encoder = ArrowEncoder(SERVER_LOG, part_metadata("server_log", ClockAnchor("h", None, 0, 0), arm="arm"))
    path.write_bytes(encoder.encode(rows))  # not closed: the arm is still being measured
    span = LogSpan(run.relative(path), 100, 300)
    assert prefill_log(log_rows(run, span)).new_tokens == 320


def test_a_part_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="server_log"):
        log_rows(RunDirectory(tmp_path), LogSpan("parts/server_log/arm.arrows", 0, 1))
