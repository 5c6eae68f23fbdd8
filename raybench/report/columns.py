"""How other people's tables name what raybench calls by one name: spellings and units of columns. Pure.

Used by the importer. docs/COMPARE.md has the table for users.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from raybench.analysis.points import POINTS
from raybench.analysis.stats import SUMMARY_PARTS
from raybench.scenario.values import parse_tokens

#: Columns of points.parquet that a table may fill, beside the summaries of latencies.
_PLAIN = (
    "arm",
    "workload",
    "concurrency",
    "input_tokens",
    "output_tokens",
    "requests",
    "requests_ok",
    "wall_s",
    "requests_per_s",
    "input_tokens_total",
    "output_tokens_total",
    "input_tokens_per_s",
    "output_tokens_per_s",
    "decode_tokens_per_s",
    "accept_length",
    "preemptions",
    "cached_tokens",
    "prefix_hit_rate",
    "gpu_memory_peak_bytes",
    "gpu_headroom_min_bytes",
)
_LATENCIES = ("ttft", "tpot", "e2e")
_PARTS = tuple(part for part in SUMMARY_PARTS if part != "n")

#: Other spellings of the same, without a change of unit.
SPELLINGS = {
    "input_len": "input_tokens",
    "output_len": "output_tokens",
    "nreq": "requests",
    "ok": "requests_ok",
    "input_tps": "input_tokens_per_s",
    "output_tps": "output_tokens_per_s",
    "decode_tps": "decode_tokens_per_s",
    "retractions": "preemptions",
    "accept_len": "accept_length",
}

_LATENCY = re.compile(
    rf"(?P<metric>{'|'.join(_LATENCIES)})"
    rf"(?:_(?P<part>{'|'.join(_PARTS)})_(?P<unit>ms|s)|_(?P<unit_first>ms|s)_(?P<part_last>{'|'.join(_PARTS)}))"
)
_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
_NAME = re.compile(r"[^\s/~%][^/~%]{0,63}")


@dataclass(frozen=True)
class Column:
    """A column of points.parquet and what its values have to be multiplied by to be in its unit."""

    name: str
    times: float = 1.0

    @property
    def allowed(self) -> str:
        if self.is_text:
            return "a name without `/`, at most 64 characters"
        return "a whole number from 0" if self.is_whole else "a number from 0, as 12.5"

    @property
    def is_text(self) -> bool:
        return bool(pa.types.is_string(POINTS.field(self.name).type))

    @property
    def is_whole(self) -> bool:
        return bool(pa.types.is_integer(POINTS.field(self.name).type))

    def value(self, text: str) -> str | int | float | None:
        """The value that a cell stands for; None for an empty cell. Raises ValueError for a wrong one."""
        text = text.strip()
        if not text:
            return None
        if self.is_text:
            if not _NAME.fullmatch(text):
                raise ValueError(text)
            return text
        if self.name in ("input_tokens", "output_tokens"):
            text = str(parse_tokens(text))
        if not (_WHOLE if self.is_whole else _NUMBER).fullmatch(text):
            raise ValueError(text)
        return int(text) if self.is_whole else float(text) * self.times


def column_of(name: str) -> Column | None:
    """What a table's column means: `ttft_p95_s` is `ttft_ms_p95` after x 1000. None where nobody can say."""
    name = SPELLINGS.get(name, name)
    if name in _PLAIN:
        return Column(name)
    match = _LATENCY.fullmatch(name)
    if match is None:
        return None
    part, unit = match["part"] or match["part_last"], match["unit"] or match["unit_first"]
    return Column(f"{match['metric']}_ms_{part}", 1000.0 if unit == "s" else 1.0)


def known_columns() -> Iterator[str]:
    """The names that `column_of` knows, for errors and documentation; one stands for a family."""
    yield from _PLAIN
    yield from (f"{metric}_<{'|'.join(_PARTS)}>_<s|ms>" for metric in _LATENCIES)
