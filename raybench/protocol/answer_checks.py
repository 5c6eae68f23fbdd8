"""The answers of one attempt: did they come, whole, streamed, as long as asked, for what was sent? Pure.

All of it by the records of the clients and the engine's own counts and times in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.engine_timings import EARLY_MS, e2e_over_engine_ms, empty_answers, truncated_answers
from raybench.protocol.evidence import Evidence, ok_rows
from raybench.protocol.verdict import Finding
from raybench.scenario.plan import Point
from raybench.scenario.schema import Guards

#: Answers of so many tokens cannot honestly come in one piece: the first token is always sent at once.
ONE_PIECE_TOKENS = 16
#: An engine whose own TTFT is a smaller share of the whole answer than this did not send it in one piece.
ONE_PIECE_SHARE = 0.8


def check_outcomes(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """Enough requests succeeded; failures by class (case O-T3)."""
    rows = evidence.requests
    if rows.num_rows == 0:
        yield Finding("no_requests", "void", "no request has a record")
        return
    failed = rows.num_rows - ok_rows(rows).num_rows
    classes = dict(Counter(value for value in rows["error_class"].to_pylist() if value is not None))
    share = 1 - failed / rows.num_rows
    if failed:
        text = ", ".join(f"{name}: {count}" for name, count in sorted(classes.items()))
        below = share < guards.success_rate_min
        yield Finding(
            "requests_failed",
            "void" if below else "warning",
            f"{failed} of {rows.num_rows} requests failed ({text}); success limit {guards.success_rate_min:g}",
            {"classes": classes, "success_rate": share},
        )
    retried = int(pc.sum(pc.greater(rows["tries"], 1)).as_py() or 0)
    if retried:
        yield Finding(
            "stale_connections",
            "note",
            f"{retried} requests were sent again on a fresh connection",
            {"retried": retried},
        )


def check_lengths(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """Prompt and answer are as long as asked, by the server's own count. Clipping is silent there."""
    ok = ok_rows(evidence.requests)
    estimated = int(pc.sum(pc.not_equal(ok["tokens_source"], "server")).as_py() or 0)
    if estimated:
        yield Finding(
            "tokens_estimated",
            "void" if guards.strict else "warning",
            f"lengths not verified: {estimated} answers came without a token count (chunks were counted)",
            {"estimated": estimated},
        )
    sides = []
    if evidence.ignore_eos:
        sides.append(("output", "output_length_differs"))
    if evidence.prompt_is_ids:
        sides.append(("input", "input_length_differs"))
    for side, code in sides:
        counted, asked = ok[f"{side}_tokens"], ok[f"{side}_tokens_asked"]
        mask = pc.and_(pc.equal(ok["tokens_source"], "server"), pc.not_equal(counted, asked))
        differing = ok.filter(pc.fill_null(mask, False))
        if differing.num_rows:
            first = differing.slice(0, 1).to_pylist()[0]
            yield Finding(
                code,
                "void",
                f"{differing.num_rows} of {ok.num_rows} requests: {side} tokens as counted by the server differ"
                f" from those asked (ticket {first['ticket']}: {first[f'{side}_tokens']}"
                f" for {first[f'{side}_tokens_asked']})",
                {"count": differing.num_rows},
            )
    reasons = Counter(str(reason) for reason in ok["finish_reason"].to_pylist())
    if reasons.keys() - {"length", "None"}:
        text = ", ".join(f"{reason}: {count}" for reason, count in sorted(reasons.items()))
        yield Finding("finish_reasons", "note", f"answers ended by {text}", {"reasons": dict(reasons)})


def check_empty(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """An answer of no token is no success, whatever its status; it counts against the success limit."""
    ok = ok_rows(evidence.requests)
    empty = int(pc.sum(pc.equal(ok["output_tokens"], 0)).as_py() or 0)
    if not empty:
        return
    share = (ok.num_rows - empty) / evidence.requests.num_rows
    yield Finding(
        "empty_answers",
        "void" if share < guards.success_rate_min else "warning",
        f"{empty} of {ok.num_rows} answers hold no token; success limit {guards.success_rate_min:g}",
        {"empty": empty, "success_rate": share},
    )


def check_streaming(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """TTFT is the first token's and not the whole answer's: nothing on the way holds the stream back.

    Told by the engine's own TTFT: a server that is faster than one read of the socket is no liar.
    """
    if not evidence.streamed:
        return
    rows = ok_rows(evidence.requests)
    rows = rows.filter(pc.fill_null(pc.greater_equal(rows["output_tokens"], ONE_PIECE_TOKENS), False))
    spread = pc.subtract(rows["last_token_ns"], rows["first_token_ns"])
    longest = pc.max(spread).as_py()
    if longest is None or longest > 0 or spread.null_count:
        return
    told = rows.filter(pc.is_valid(rows["engine_ttft_s"]))
    message = f"no TTFT: each of {rows.num_rows} answers came in one piece"
    if told.num_rows == 0:
        yield Finding("answers_in_one_piece", "warning", f"{message}; something may hold the stream back")
        return
    whole_s = _median(pc.divide(pc.subtract(told["end_ns"], told["sent_ns"]), 1e9))
    engine_s = _median(told["engine_ttft_s"])
    if engine_s < ONE_PIECE_SHARE * whole_s:
        yield Finding(
            "answers_in_one_piece",
            "void" if guards.strict else "warning",
            f"{message}, after {whole_s * 1e3:.0f} ms, while the engine had its first token after"
            f" {engine_s * 1e3:.0f} ms: something on the way holds the stream back",
            {"engine_ttft_s": engine_s, "whole_s": whole_s},
        )


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
    ok = ok_rows(requests)
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


def _median(values: pa.ChunkedArray) -> float:
    return float(pc.quantile(values, 0.5)[0].as_py())
