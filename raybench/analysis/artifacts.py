"""What artifacts.json holds: arms that were sent the same prompts, side by side. Made by the merge; pure.

One entry a point whose workload is a prompt set: the whole, each prompt, and what is known of the arm's process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis import engine_timings as timings
from raybench.analysis import metrics
from raybench.analysis.stats import mean

Entry = dict[str, Any]


def has_prompts(requests: pa.Table) -> bool:
    """Whether an attempt sent a prompt set."""
    return bool(requests["prompt"].null_count < requests.num_rows)


def artifact_entry(row: Mapping[str, Any], requests: pa.Table, arm: Mapping[str, Any]) -> Entry:
    """row: of points.parquet. requests: the records of its final attempt. arm: from `arm_facts`."""
    load = metrics.of_load(requests)
    names = list(dict.fromkeys(load.sort_by("ticket")["prompt"].to_pylist()))
    return {
        "point_id": row["point_id"],
        "arm": row["arm"],
        "workload": row["workload"],
        "concurrency": row["concurrency"],
        "verdict": row["verdict"],
        **arm,
        **told(load),
        "prompts": [{"prompt": name, **told(load.filter(pc.equal(load["prompt"], name)))} for name in names],
    }


def told(requests: pa.Table) -> Entry:
    """Of these requests: how many, their tokens, the engine's seconds and rates, the client's beside them."""
    ok = requests.filter(metrics.succeeded(requests))
    return {
        "requests": requests.num_rows,
        "requests_ok": ok.num_rows,
        "input_tokens": metrics.input_tokens(ok),
        "output_tokens": metrics.output_tokens(ok),
        "prefill_s": timings.total_s(ok, ok["engine_prefill_s"]),
        "decode_s": timings.total_s(ok, ok["engine_decode_s"]),
        "request_s": timings.total_s(ok, timings.engine_request_s(ok)),
        "first_token_s": timings.total_s(ok, timings.engine_first_token_s(ok)),
        "prefill_tokens_per_s": timings.prefill_rate(ok),
        "decode_tokens_per_s": timings.decode_rate(ok),
        "request_tokens_per_s": timings.request_rate(ok),
        "acceptance_rate": timings.acceptance_rate(ok),
        "tokens_per_round": timings.tokens_per_round(ok),
        "truncated": timings.truncated_answers(ok),
        "empty": timings.empty_answers(ok),
        "client_e2e_s": timings.total_s(ok, pc.divide(metrics.e2e_ms(ok), 1000.0)),
        "client_first_token_s": timings.total_s(ok, pc.divide(metrics.ttft_ms(ok), 1000.0)),
        "client_decode_tokens_per_s": metrics.decode_tokens_per_s(ok),
        "e2e_over_engine_ms": mean(metrics.sample(timings.e2e_over_engine_ms(ok))),
        "ttft_over_engine_ms": mean(metrics.sample(timings.ttft_over_engine_ms(ok))),
    }


#: What is added up over arms.
_TOTALS = (
    "input_tokens",
    "output_tokens",
    "load_s",
    "request_s",
    "process_s",
    "decode_s",
    "truncated",
    "empty",
    "requests_ok",
)


def together(entries: Sequence[Mapping[str, Any]]) -> Entry:
    """All arms as one: sums, and rates from sums as in `told`. What no sum makes is not known."""
    columns = {name: [entry[name] for entry in entries] for name in _TOTALS}
    total = {name: None if None in values else sum(values) for name, values in columns.items()}
    output, decode_s = total["output_tokens"], total["decode_s"]
    return {
        **total,
        "decode_tokens_per_s": metrics.rate_per_s(
            None if output is None else output - total["requests_ok"], decode_s
        ),
        "request_tokens_per_s": metrics.rate_per_s(output, total["request_s"]),
        "acceptance_rate": None,
        "tokens_per_round": None,
    }


def arm_facts(facts: Mapping[str, Any], processes: Sequence[Mapping[str, Any]], gate: Mapping[str, Any]) -> Entry:
    """Of an arm: its context, how its server started and ended (the last that came up), its quality gate.

    facts, processes, gate: what facts.json, process.json and gate.json hold; empty where there is none.
    """
    ready = [process for process in processes if process.get("load_s") is not None]
    last: Mapping[str, Any] = ready[-1] if ready else {}
    return {
        "context_tokens": facts.get("context_tokens"),
        "parameters": last.get("parameters") or {},
        "load_s": last.get("load_s"),
        "process_s": last.get("process_s"),
        "slack_mib": last.get("slack_mib"),
        "gate": gate.get("summary"),
        "gate_ok": gate.get("ok"),
    }
