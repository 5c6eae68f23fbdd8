"""The two books side by side, for the report and for `raybench reconcile`: tables and one sentence. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from raybench.analysis.agreement import Agreement, Bounds, CountLine, LatencyLine, PairedLine
from raybench.report import numbers
from raybench.report.tables import Row, Table
from raybench.report.text import Text


def verdict_line(agreements: Sequence[Agreement], text: Text) -> str:
    """How many comparisons there were and how they came out."""
    counts = Counter(line.judgement for one in agreements for line in one.lines)
    if not counts:
        return text.agreement.nothing
    return text.agreement.verdict.format(
        total=counts.total(), **{name: counts[name] for name in ("equal", "agrees", "explained", "flagged")}
    )


def flags(agreements: Sequence[Agreement], text: Text) -> list[str]:
    """What was explained or flagged, one line each."""
    words = text.agreement
    return [
        f"{one.point_id}, {words.names[line.name]}: {words.judgements[line.judgement]}, {line.why}"
        for one in agreements
        for line in one.lines
        if line.why
    ]


def agreement_table(agreements: Sequence[Agreement], text: Text) -> Table:
    """One line a comparison: what the engine says, what the records say, client minus engine."""
    rows = [Row(cells) for one in agreements for cells in _cells(one, text)]
    return Table(text.agreement.columns, rows, right=frozenset({2, 3, 4}))


def _cells(one: Agreement, text: Text) -> list[tuple[str, ...]]:
    cells: list[tuple[str, ...]] = []
    for line in one.lines:
        name, judgement = text.agreement.names[line.name], text.agreement.judgements[line.judgement]
        match line:
            case CountLine():
                told = (name, f"{line.engine:,.0f}", f"{line.client:,.0f}", f"{line.client - line.engine:+,.0f}")
            case LatencyLine():
                told = (
                    text.agreement.mean.format(name=name),
                    numbers.fixed(line.engine_mean_ms, 2),
                    numbers.fixed(line.client_mean_ms, 2),
                    f"{line.difference_ms:+,.2f}",
                )
            case PairedLine():
                told = (
                    text.agreement.paired.format(name=name),
                    numbers.UNKNOWN,
                    numbers.UNKNOWN,
                    f"{line.p50_ms:+,.2f} / {line.p99_ms:+,.2f}",
                )
        cells.append((one.point_id, *told, judgement))
        if isinstance(line, LatencyLine):
            cells += _percentiles(one.point_id, name, line, judgement, text)
    return cells


def _percentiles(point_id: str, name: str, line: LatencyLine, judgement: str, text: Text) -> list[tuple[str, ...]]:
    """The client's percentile beside the bucket of the engine's own."""
    pairs = ((50, line.client_p50_ms, line.engine_p50_ms), (99, line.client_p99_ms, line.engine_p99_ms))
    return [
        (point_id, f"{name} P{percent}", _bucket(bounds), numbers.fixed(value, 2), numbers.UNKNOWN, judgement)
        for percent, value, bounds in pairs
        if value is not None and bounds is not None
    ]


def _bucket(bounds_ms: Bounds) -> str:
    above, up_to = bounds_ms
    return f"> {above:g}" if up_to is None else f"{above:g} .. {up_to:g}"
