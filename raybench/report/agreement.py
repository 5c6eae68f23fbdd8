"""The engine's books beside the records, for the report and for `raybench reconcile`. Pure: blocks out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from raybench.analysis.agreement import Agreement, CountLine, LatencyLine, PairedLine, Wait
from raybench.analysis.lateness import Bounds, Judgement
from raybench.report import numbers
from raybench.report.document import Block, Heading, Paragraph, Row, Table, Told, Tone, bullets
from raybench.report.text import Text

_TONES: Mapping[Judgement, Tone] = {"equal": "", "agrees": "", "explained": "warn", "flagged": "bad"}


def agreement_section(agreements: Sequence[Agreement], text: Text) -> Iterator[Block]:
    """All points in one table. Nothing for engines that say nothing of themselves."""
    rows = [row for one in agreements for row in _rows(one, text, (one.point_id,))]
    if not rows:
        return
    yield _verdict(agreements, text)
    yield Paragraph(text.agreement.note)
    yield Table(text.agreement.columns, rows, right=frozenset({2, 3, 4}))
    if remarks := _remarks(agreements, text):
        yield bullets(*remarks)


def agreement_answer(agreements: Sequence[Agreement], text: Text) -> Iterator[Told]:
    """A table a point, what is not plain agreement, then how it came out."""
    for one in agreements:
        if rows := _rows(one, text):
            yield Heading(one.point_id)
            yield Table(text.agreement.columns[1:], rows, right=frozenset({1, 2, 3}))
    yield from map(Paragraph, _remarks(agreements, text))
    yield Paragraph(text.agreement.note, "dim")
    yield _verdict(agreements, text)


def _verdict(agreements: Sequence[Agreement], text: Text) -> Paragraph:
    """How many comparisons there were and how they came out."""
    counts = Counter(line.judgement for one in agreements for line in one.lines)
    if not counts:
        return Paragraph(text.agreement.nothing)
    told = {judgement: counts[judgement] for judgement in _TONES}
    verdict = text.agreement.verdict.format(total=counts.total(), **told)
    return Paragraph(verdict, "bad" if counts["flagged"] else "")


def _remarks(agreements: Sequence[Agreement], text: Text) -> list[str]:
    """What was explained or flagged, one line each."""
    return [
        f"{one.point_id}, {_name(line, text)}: {text.agreement.judgements[line.judgement]}: {line.why}"
        for one in agreements
        for line in one.lines
        if line.why
    ]


def _name(line: CountLine | LatencyLine | PairedLine, text: Text) -> str:
    name = text.agreement.names[line.name]
    return text.agreement.paired.format(name=name) if isinstance(line, PairedLine) else name


def _rows(one: Agreement, text: Text, before: tuple[str, ...] = ()) -> list[Row]:
    """One a comparison: what the engine says, what the records say, client minus engine. before: leading cells.

    Behind them what one side alone sees; nothing where there is no comparison.
    """
    rows = [
        Row((*before, *told, text.agreement.judgements[line.judgement]), tone=_TONES[line.judgement])
        for line in one.lines
        for told in _cells(line, text)
    ]
    if rows:
        rows += [Row((*before, *told)) for wait in one.waits for told in _wait(wait, text)]
    return rows


def _wait(wait: Wait, text: Text) -> Iterator[tuple[str, ...]]:
    for percent, value in ((50, wait.p50_ms), (99, wait.p99_ms)):
        told = numbers.fixed(value, 2)
        sides = {"head": (numbers.UNKNOWN, told), "queue": (told, numbers.UNKNOWN)}[wait.name]
        yield f"{text.agreement.names[wait.name]} P{percent}", *sides, numbers.UNKNOWN, numbers.UNKNOWN


def _cells(line: CountLine | LatencyLine | PairedLine, text: Text) -> Iterator[tuple[str, ...]]:
    name = _name(line, text)
    match line:
        case CountLine():
            difference = numbers.signed(line.client - line.engine, 0)
            yield name, numbers.count(line.engine), numbers.count(line.client), difference
        case LatencyLine():
            means = (numbers.fixed(value, 2) for value in (line.engine_mean_ms, line.client_mean_ms))
            yield text.agreement.mean.format(name=name), *means, numbers.signed(line.difference_ms, 2)
            yield from _percentiles(name, line)
        case PairedLine():
            told = " / ".join(numbers.signed(value, 2) for value in (line.p50_ms, line.p99_ms))
            yield name, numbers.UNKNOWN, numbers.UNKNOWN, told


def _percentiles(name: str, line: LatencyLine) -> Iterator[tuple[str, ...]]:
    """The bucket of the engine's percentile beside the client's own."""
    pairs = ((50, line.client_p50_ms, line.engine_p50_ms), (99, line.client_p99_ms, line.engine_p99_ms))
    for percent, value, bounds in pairs:
        if value is not None and bounds is not None:
            yield f"{name} P{percent}", _bucket(bounds), numbers.fixed(value, 2), numbers.UNKNOWN


def _bucket(bounds_ms: Bounds) -> str:
    above, up_to = bounds_ms
    return f"> {above:g}" if up_to is None else f"{above:g} .. {up_to:g}"
