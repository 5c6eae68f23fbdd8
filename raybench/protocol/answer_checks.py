"""Checks of prompts that are not cut from a corpus, and of answers that the model may end itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.engine_timings import EARLY_MS, e2e_over_engine_ms, empty_answers, truncated_answers
from raybench.analysis.metrics import succeeded
from raybench.protocol.finding import Finding
from raybench.scenario.plan import Point


def check_prompt_lengths(requests: pa.Table, point: Point) -> Iterator[Finding]:
    """The workload's input length is what a prompt set was planned by: none of its prompts may be longer."""
    if not point.prompt_set or not requests.num_rows:
        return
    longest = pc.max(requests["input_tokens"]).as_py()
    if longest is not None and longest > point.input_tokens:
        yield Finding(
            "prompt_longer_than_planned",
            "warning",
            f"a prompt has {longest:,} tokens by the server's count, the workload's input_tokens say"
            f" {point.input_tokens:,}: limits and skips were planned with less",
            {"longest": longest, "planned": point.input_tokens},
        )


def check_engine_times(requests: pa.Table) -> Iterator[Finding]:
    """Nobody can have an answer before its engine has made it."""
    over = e2e_over_engine_ms(requests)
    early = int(pc.sum(pc.less(over, -EARLY_MS), min_count=0).as_py())
    if early:
        least = -float(pc.min(over).as_py())
        yield Finding(
            "client_before_engine",
            "warning",
            f"{early} requests took less time here than the engine says of them, by up to {least:.1f} ms: stamps"
            " were taken late on one side",
            {"requests": early, "ms": least},
        )


def check_answers(requests: pa.Table, *, ignore_eos: bool) -> Iterator[Finding]:
    """Answers that were cut off by their budget, and those in which nothing but reasoning came."""
    if ignore_eos:
        return
    ok = requests.filter(succeeded(requests))
    truncated, empty = truncated_answers(ok), empty_answers(ok)
    if not truncated and not empty:
        return
    parts = [f"{truncated} of {ok.num_rows} answers were cut off by their budget"] if truncated else []
    if empty:
        parts.append(f"{empty} of {ok.num_rows} have no answer text (all of it was reasoning)")
    yield Finding(
        "answers_truncated" if truncated else "answers_empty",
        "warning",
        f"{'; '.join(parts)}: token counts are those of the budget, not of whole answers",
        {"truncated": truncated, "empty": empty, "answers": ok.num_rows},
    )
