"""What searches found, and their probes with the reasons: sentences and a table. Pure.

Read from the entries of searches.json (`analysis.searches`); Markdown and terminal draw them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from raybench.report import numbers
from raybench.report.document import Row, Table
from raybench.report.text import Text
from raybench.scenario.levels import Level
from raybench.scenario.search import Search

Entry = Mapping[str, Any]


def title(entry: Entry, text: Text) -> str:
    """`chat on arm: the highest level with ttft_ms_p95 <= 2.00 s`."""
    return text.searches.title.format(
        workload=entry["workload"], arm=entry["arm"], question=question(_search(entry), text)
    )


def question(search: Search, text: Text) -> str:
    """What is searched, in words."""
    if search.slo is not None:
        limits = ", ".join(f"{metric} <= {limit:,g}" for metric, limit in search.slo.items())
        return text.searches.slo.format(limits=limits)
    return text.searches.knee.format(gain=f"{search.gain_min:.0%}")


def answer(entry: Entry, text: Text) -> list[str]:
    """The result, its goodput where there is one, and what a reader must know of the data."""
    words = text.searches
    kind = words.slo_answers if entry["slo"] is not None else words.knee_answers
    passes, fails = (_label(entry, entry[side]) for side in ("passes", "fails"))
    lines = [kind[entry["status"]].format(passes=passes, fails=fails)]
    if entry["goodput"] is not None:
        lines.append(_goodput_line(entry["goodput"], text))
    if entry["bounded_by"] is not None:
        lines.append(words.bounded.format(level=_label(entry, entry["maximum_held"]), reason=entry["bounded_by"]))
    return [*lines, *entry["notes"]]


def _goodput_line(found: Mapping[str, Any], text: Text) -> str:
    low, high = found["requests_per_s_low"], found["requests_per_s_high"]
    span = text.searches.no_interval if low is None else text.searches.interval
    return text.searches.goodput.format(
        good=found["good"],
        n=found["n"],
        rate=numbers.rate(found["requests_per_s"]),
        interval=span.format(low=numbers.rate(low), high=numbers.rate(high)),
        tokens=numbers.rate(found["output_tokens_per_s"]),
    )


def probe_table(entry: Entry, text: Text) -> Table:
    """Every probe in the order of measurement, with its side of the threshold and why; goodput under an SLO."""
    words = text.searches
    has_slo = entry["slo"] is not None
    sides = words.slo_sides if has_slo else words.knee_sides
    rows = []
    for probe in entry["probes"]:
        cells = (
            _label(entry, probe["level"]),
            text.verdicts[probe["verdict"]],
            sides[probe["passes"]],
            _why(probe["checks"], probe["passes"], text),
        )
        good = numbers.rate((probe["goodput"] or {}).get("requests_per_s"))
        rows.append(Row((*cells, good) if has_slo else cells))
    columns = (*words.columns, words.goodput_column) if has_slo else words.columns
    return Table(columns, rows, right=frozenset({4}) if has_slo else frozenset())


def _why(checks: Sequence[Mapping[str, Any]], passes: bool | None, text: Text) -> str:
    """The checks that fail, or all of them where none does."""
    failing = [check for check in checks if check["holds"] is False]
    told = failing if passes is False else checks
    return ", ".join(_check(check, text) for check in told) or numbers.UNKNOWN


def _check(check: Mapping[str, Any], text: Text) -> str:
    metric, value, limit = check["metric"], check["value"], check["limit"]
    if value is None:
        return text.searches.not_known.format(metric=metric)
    sign = "<=" if value <= limit else ">"
    return f"{metric} {numbers.beside(value, limit)} {sign} {limit:,g}"


def _search(entry: Entry) -> Search:
    return Search(**{one.name: entry[one.name] for one in fields(Search)})


def _label(entry: Entry, value: float | None) -> str:
    level: Level | None = None if value is None else _search(entry).level(value)
    return numbers.UNKNOWN if level is None else level.label
