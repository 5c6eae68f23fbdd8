"""How metrics and their differences are written: short labels, units, percentages. Pure."""

from __future__ import annotations

from raybench.analysis.difference import DIRECTIONS, Difference
from raybench.errors import ConfigError, ConfigProblem
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
    if value is None:
        return numbers.UNKNOWN
    if metric.startswith(("tpot_ms", "chunk_gap_ms")):
        return numbers.per_token(value)
    if "_ms_" in metric:
        return numbers.latency(value)
    if metric in ("preemptions", "requests_failed", "failed_output_tokens"):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return numbers.percent(value) if metric == "failure_share" else numbers.rate(value)


def change(one: Difference) -> str:
    """`+9.1 %`; `n/a (from 0)` where there is no percentage of what was zero."""
    if one.from_zero:
        return "n/a (from 0)"
    return numbers.UNKNOWN if one.percent is None else f"{one.percent:+.1f} %"


def times(value: float | None) -> str:
    """`2.97x`, `0.34x`, `12.4x`."""
    if value is None:
        return numbers.UNKNOWN
    return f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"


def known_metrics(names: list[str]) -> tuple[str, ...]:
    """The names of `--metric`, each once. Raises ConfigError for one that has no better and worse."""
    wrong = [name for name in names if name not in DIRECTIONS]
    if wrong:
        allowed = ", ".join(DIRECTIONS)
        raise ConfigError(
            "--metric", [ConfigProblem("has no better and worse", value=name, allowed=allowed) for name in wrong]
        )
    return tuple(dict.fromkeys(names))
