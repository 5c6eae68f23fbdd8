"""Lines of SGLang's log in the shapes of all versions (case O-P5), and whole logs of real servers."""

import gzip
from collections import Counter

import pytest
from engine_captures import CAPTURES

from raybench.engines import ENGINES
from raybench.engines.contract import LogLine
from raybench.engines.sglang_log import read_log_line

OLD = (
    "Prefill batch. #new-seq: 1, #new-token: 1000, #cached-token: 0, token usage: 0.01, #running-req: 0,"
    " #queue-req: 0, "
)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            f"[2026-01-01 00:00:01 DP0 TP0] {OLD}",
            LogLine("prefill", 0, 0, "TP0", 1, 1000, 0),
        ),
        (
            "[2026-01-01 00:00:01 DP1 TP0] Prefill batch. #new-seq: 1, #new-token: 2000, #cached-token: 500,"
            " cache hit rate: 11.11%, token usage: 0.02, #running-req: 0, #queue-req: 0, ",
            LogLine("prefill", 1, 0, "TP0", 1, 2000, 500, pytest.approx(0.1111)),
        ),
        (
            "[2026-01-01 00:00:01.125 DP0 TP0] Prefill batch, #new-seq: 2, #new-token: 3000, #cached-token: 0,"
            " full token usage: 0.10, mamba usage: 0.20, #pending-token: 7000, cuda graph: True,"
            " input throughput (token/s): 9000.0",
            LogLine("prefill", 0, 0, "TP0", 2, 3000, 0),
        ),
        (
            "[2026-01-01 00:00:01 PP0 ATTN_CP1 TP1 EP1] Prefill batch [12], #new-seq: 1, #new-token: 4000,"
            " #cached-token: 0, token usage: 0.1",
            LogLine("prefill", None, 0, "ATTN_CP1 EP1 TP1", 1, 4000, 0),
        ),
        (
            "[2026-01-01 00:00:01 PP3] KV cache pool is full. Retract requests. #retracted_reqs: 2,"
            " #new_tokens_gained: 300, #new_token_ratio: 0.0010 -> 0.6222",
            LogLine("retraction", None, 3, "", 2),
        ),
        ("[2026-01-01 00:00:01] Cache flushed successfully!", LogLine("flush")),
        (
            "[2026-01-01 00:00:01 DP1] Cache not flushed because there are pending requests. #queue-req: 1,"
            " #running-req: 0",
            LogLine("flush_refused", 1),
        ),
        (
            f'{{"log":"[2026-01-01 00:00:01] {OLD}\\n","stream":"stderr"}}',
            LogLine("prefill", None, 0, "", 1, 1000, 0),
        ),
    ],
    ids=["0.5.3", "own hit rate", "hybrid model", "context ranks", "retraction", "flush", "refused", "docker's"],
)
def test_o_p5_a_line_is_read_by_its_names(line: str, told: LogLine) -> None:
    assert read_log_line(line) == told


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[2026-01-01 00:00:01] Decode batch, #running-req: 1, #token: 9, token usage: 0.00, #queue-req: 0",
        '[2026-01-01 00:00:01] INFO:     127.0.0.1:5 - "POST /flush_cache HTTP/1.1" 200 OK',
        "[2026-01-01 00:00:01] Prefill batch, #new-seq: 1, #new-tok",
        "Prefill batch, #new-seq: 1, #new-token: 4000, #cached-token: 0, torn off its head",
    ],
)
def test_o_p5_other_lines_and_torn_ones_tell_nothing(line: str) -> None:
    assert read_log_line(line) is None


@pytest.mark.parametrize(
    ("setup", "kinds", "groups"),
    [
        ("sglang-0.5.23-cpu/main", {"prefill": 81, "flush": 2, "flush_refused": 2}, {None}),
        ("sglang-0.5.23-cpu/dp2", {"prefill": 13, "flush": 2}, {0, 1}),
        ("sglang-0.5.23-cpu/retract", {"prefill": 11, "retraction": 2}, {None}),
        ("sglang-0.5.9-cpu/main", {"prefill": 31, "flush": 2, "flush_refused": 3}, {None}),
        ("sglang-0.5.9-cpu/retract", {"prefill": 14, "retraction": 6}, {None}),
        ("sglang-0.5.17-gpu/hicache-storage", {"prefill": 5, "flush": 2}, {None}),
    ],
)
def test_real_logs_are_read_in_full(setup: str, kinds: dict[str, int], groups: set[int | None]) -> None:
    text = gzip.decompress((CAPTURES / setup / "server.log.gz").read_bytes()).decode()
    told = [line for line in map(read_log_line, text.splitlines()) if line is not None]
    assert Counter(line.kind for line in told) == kinds
    assert {line.dp_group for line in told} == groups
    assert text.count("Prefill batch") == kinds["prefill"]


def test_no_other_engine_s_log_tells_of_hits() -> None:
    line = f"[2026-01-01 00:00:01] {OLD}"
    assert {name for name, engine in ENGINES.items() if engine.read_log_line(line) is not None} == {"sglang"}
