"""What a metric is called, and which of the forms of `numbers` its values have. Pure."""

from __future__ import annotations

from raybench.analysis.difference import Difference
from raybench.report import numbers

_LABELS = {
    "input_tokens_per_s": "Input TPS",
    "output_tokens_per_s": "Output TPS",
    "decode_tokens_per_s": "Decode TPS",
    "requests_per_s": "Requests/s",
    "input_tokens_per_s_steady": "Input TPS steady",
    "output_tokens_per_s_steady": "Output TPS steady",
    "preemptions": "Preempted",
    "requests_failed": "Failed",
    "failure_share": "Failure share",
    "failed_output_tokens": "Failed tokens",
}
_TOGETHER = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def label(metric: str) -> str:
    """`TTFT P95` of `ttft_ms_p95`, `Output TPS` of `output_tokens_per_s`."""
    if metric in _LABELS:
        return _LABELS[metric]
    name, _, rest = metric.partition("_ms_")
    part, *window = rest.split("_")
    words = [_TOGETHER.get(name, name.replace("_", " ")), part.upper() if part.startswith("p") else part, *window]
    return " ".join(words)


def shown(metric: str, value: float | None) -> str:
    """A value with its unit, where the label does not say it."""
    if metric.startswith(("tpot_ms", "chunk_gap_ms")):
        return numbers.per_token(value)
    if "_ms_" in metric:
        return numbers.latency(value)
    if metric in ("preemptions", "requests_failed", "failed_output_tokens"):
        return numbers.count(value)
    return numbers.percent(value) if metric == "failure_share" else numbers.rate(value)


def change(one: Difference) -> str:
    """`+9.1 %`; `n/a (from 0)` where there is no percentage of what was zero."""
    return "n/a (from 0)" if one.from_zero else numbers.change(one.percent, decimals=1)
