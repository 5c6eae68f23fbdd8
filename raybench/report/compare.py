"""`raybench compare`: B against A, as one result that terminal, Markdown and JSON show. Needs no Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from raybench.analysis.comparison import PointComparison, compare, crossovers_of
from raybench.analysis.conditions import Condition
from raybench.analysis.crossover import Crossover
from raybench.analysis.difference import NOISE_FLOOR_PERCENT, Difference, Verdict
from raybench.analysis.stats import PERCENTILE_METHOD
from raybench.report import numbers
from raybench.report.compare_source import ArmOfRun, Pair, differing_conditions, pair_arms
from raybench.report.document import Heading, Paragraph, Row, Table, Told, Tone
from raybench.report.metric_words import change, label, shown

#: From this many values on the 95th percentile is not simply the largest of them.
P95_BELOW_MAXIMUM = 20

_TONES: Mapping[Verdict, Tone] = {Verdict.BETTER: "good", Verdict.WORSE: "bad"}


@dataclass(frozen=True)
class PairComparison:
    """One arm of B against one of A. runs: the run directories of each side, repeats behind the first.

    names: what the two are called in sentences. uneven: conditions in which the repeats of one side differ among
    themselves.
    """

    arm_a: str
    arm_b: str
    names: tuple[str, str]
    runs_a: tuple[str, ...]
    runs_b: tuple[str, ...]
    conditions: list[Condition]
    uneven: list[str]
    points: list[PointComparison]
    crossovers: list[Crossover]

    def count(self, verdict: Verdict) -> int:
        return sum(one.verdict is verdict for point in self.points for one in point.differences)

    @property
    def compared(self) -> list[PointComparison]:
        return [point for point in self.points if point.not_compared is None]


@dataclass(frozen=True)
class Comparison:
    """All pairs. unmatched_a, unmatched_b: arms of one side only."""

    floor_percent: float
    pairs: list[PairComparison]
    unmatched_a: list[str]
    unmatched_b: list[str]

    @property
    def regressed(self) -> bool:
        return any(point.regressed for pair in self.pairs for point in pair.points)


def compare_runs(
    a: Sequence[str],
    b: Sequence[str],
    metrics: Sequence[str],
    floor_percent: float = NOISE_FLOOR_PERCENT,
    *,
    ignore_cache_state: bool = False,
) -> Comparison:
    """a, b: each a run directory (`RUN` or `RUN:ARM`), then repeats of it.

    Raises RunDirectoryError and ConfigError for what cannot be read or does not meet.
    """
    pairs, only_a, only_b = pair_arms(a, b)
    compared = [_compared(pair, metrics, floor_percent, ignore_cache_state) for pair in pairs]
    return Comparison(floor_percent, compared, only_a, only_b)


def _compared(
    pair: Pair, metrics: Sequence[str], floor_percent: float, ignore_cache_state: bool
) -> PairComparison:
    a, b = pair.sides
    points = compare(a, b, metrics, floor_percent, ignore_cache_state=ignore_cache_state)
    return PairComparison(
        arm_a=pair.a[0].arm,
        arm_b=pair.b[0].arm,
        names=(a.name, b.name),
        runs_a=tuple(one.run for one in pair.a),
        runs_b=tuple(one.run for one in pair.b),
        conditions=differing_conditions(pair.a[0], pair.b[0]),
        uneven=[*_uneven(pair.a), *_uneven(pair.b)],
        points=points,
        crossovers=crossovers_of(points, (a.name, b.name), metrics),
    )


def _uneven(repeats: Sequence[ArmOfRun]) -> list[str]:
    return [
        f"{condition.name} ({repeats[0].run}: {condition.a}, {other.run}: {condition.b})"
        for other in repeats[1:]
        for condition in differing_conditions(repeats[0], other)
        if condition.known
    ]


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """The comparison for programs, full precision: `verdict` is what is said of B."""
    return {
        "noise_floor_percent": comparison.floor_percent,
        "percentile_method": PERCENTILE_METHOD,
        "regressed": comparison.regressed,
        "unmatched_arms": {"a": comparison.unmatched_a, "b": comparison.unmatched_b},
        "pairs": [
            {
                "a": {"arm": pair.arm_a, "runs": pair.runs_a},
                "b": {"arm": pair.arm_b, "runs": pair.runs_b},
                "conditions": [asdict(condition) for condition in pair.conditions],
                "uneven_repeats": pair.uneven,
                "points": [asdict(point) for point in pair.points],
                "crossovers": [asdict(crossover) for crossover in pair.crossovers],
            }
            for pair in comparison.pairs
        ],
    }


# -- for people ------------------------------------------------------------------------------------


def comparison_blocks(comparison: Comparison) -> Iterator[Told]:
    """What differs first, then the numbers (case O-K2)."""
    for pair in comparison.pairs:
        yield from _pair(pair, comparison)
    for side, arms in (("A", comparison.unmatched_a), ("B", comparison.unmatched_b)):
        if arms:
            yield Paragraph(f"Only in {side}: {', '.join(arms)}.")


def _pair(pair: PairComparison, comparison: Comparison) -> Iterator[Told]:
    yield Heading(f"B {pair.arm_b} against A {pair.arm_a}", level=2)
    yield Paragraph(f"A: {_side(pair.runs_a, pair.arm_a)}")
    yield Paragraph(f"B: {_side(pair.runs_b, pair.arm_b)}")
    yield from condition_blocks(pair.conditions)
    yield from _attempts(pair.compared)
    if pair.uneven:
        yield Paragraph(f"The repeats of a side differ among themselves: {'; '.join(pair.uneven)}.", "bad")
    yield Paragraph(_floor_line(comparison.floor_percent))
    yield from point_tables(pair.compared)
    yield from _nothing(pair.compared)
    yield from not_compared(pair.points)
    yield from _crossovers(pair)
    yield Paragraph(_counts(pair), "bad" if any(point.regressed for point in pair.points) else "")
    if any(_is_small(point) for point in pair.compared):
        yield Paragraph(
            f"n: values of TTFT. With n < {P95_BELOW_MAXIMUM} the P95 is the maximum (marked *).", "dim"
        )


def _attempts(points: Sequence[PointComparison]) -> Iterator[Told]:
    """Points that one side measured at its first attempt and the other at a later one, on other text."""
    told = [
        f"{point.workload} {point.level} ({point.attempts[0]} | {point.attempts[1]})"
        for point in points
        if None not in point.attempts and point.attempts[0] != point.attempts[1]
    ]
    if told:
        yield Paragraph(f"The attempt that counts is not the same: {', '.join(told)}.")


def _floor_line(floor_percent: float) -> str:
    return (
        f"Noise floor {floor_percent:g} % for single runs; three repeats of a side or more bring their own spread."
        " Below the floor, or where 95 % intervals overlap, there is no clear difference."
    )


def _side(runs: Sequence[str], arm: str) -> str:
    repeats = f" and {len(runs) - 1} repeats: {', '.join(runs[1:])}" if len(runs) > 1 else ""
    return f"{arm} of {runs[0]}{repeats}"


def condition_blocks(conditions: Sequence[Condition]) -> Iterator[Told]:
    """A table of what differs or is told by one side only, then the names that neither side tells."""
    told = [one for one in conditions if one.a is not None or one.b is not None]
    silent = [one.name for one in conditions if one.a is None and one.b is None]
    if told:
        yield Paragraph("Conditions that differ:")
        yield Table(("Condition", "A", "B"), [Row((c.name, c.a or "unknown", c.b or "unknown")) for c in told])
    else:
        yield Paragraph("No condition is known to differ.")
    if silent:
        yield Paragraph(f"Unknown on both sides: {', '.join(silent)}.")


def point_tables(points: Sequence[PointComparison]) -> Iterator[Told]:
    """One table a workload; one for all where each of them has a single level."""
    workloads = dict.fromkeys(point.workload for point in points)
    if len(workloads) > 1 and len(workloads) == len(points):
        yield _table(points, "Workload", [f"{point.workload} {point.level}" for point in points])
        return
    for workload in workloads:
        own = [point for point in points if point.workload == workload]
        yield Heading(workload)
        yield _table(own, "C", [point.level.removeprefix("c") for point in own])


def _table(points: Sequence[PointComparison], first: str, names: Sequence[str]) -> Table:
    repeated = any(max(point.repeats) > 1 for point in points)
    columns = (first, "Metric", "A", "B", "Change", "B/A", "floor" if repeated else "n", "Verdict")
    rows = []
    for point, name in zip(points, names, strict=True):
        for index, one in enumerate(one for one in point.differences if not _is_nothing(one)):
            cells = (
                name if index == 0 else "",
                label(one.metric),
                _value(point, one, 0),
                _value(point, one, 1),
                change(one),
                numbers.times(one.b / one.a if one.a and one.b is not None else None, decimals=2),
                f"{numbers.fixed(one.floor_percent, 1)} %" if repeated else _n(point) if index == 0 else "",
                one.verdict.value + (" (overlap)" if one.overlap else ""),
            )
            rows.append(Row(cells, tone=_TONES.get(one.verdict, "")))
    return Table(columns, rows, right=frozenset({2, 3, 4, 5, 6}))


def _is_nothing(one: Difference) -> bool:
    """Nothing happened on either side: no preemptions here and none there need no row."""
    return one.a == 0 and one.b == 0


def _value(point: PointComparison, one: Difference, side: int) -> str:
    text = shown(one.metric, (one.a, one.b)[side])
    n = point.samples[side]
    is_maximum = "_p95" in one.metric and n is not None and n < P95_BELOW_MAXIMUM and point.repeats[side] == 1
    return f"{text}*" if is_maximum and text != numbers.UNKNOWN else text


def _n(point: PointComparison) -> str:
    told = [numbers.count(n) for n in point.samples]
    return told[0] if told[0] == told[1] else "/".join(told)


def _is_small(point: PointComparison) -> bool:
    return any(n is not None and n < P95_BELOW_MAXIMUM for n in point.samples)


def not_compared(points: Sequence[PointComparison]) -> Iterator[Told]:
    """One line a reason, with the points that it keeps out."""
    reasons: dict[str, list[str]] = {}
    for point in points:
        if point.not_compared is not None:
            reason = point.not_compared.value + (f" ({point.detail})" if point.detail else "")
            reasons.setdefault(reason, []).append(f"{point.workload} {point.level}")
    for reason, names in reasons.items():
        yield Paragraph(f"Not compared, {reason}: {', '.join(names)}.", "warn")


def _nothing(points: Sequence[PointComparison]) -> Iterator[Told]:
    none = dict.fromkeys(one.metric for point in points for one in point.differences if _is_nothing(one))
    for metric in none:
        told = [one for point in points for one in point.differences if one.metric == metric]
        where = "every point" if all(map(_is_nothing, told)) else "the points without a row of it"
        yield Paragraph(f"{label(metric)}: 0 on both sides at {where}.", "dim")


def _crossovers(pair: PairComparison) -> Iterator[Told]:
    """Where the lead changes hands, and who keeps it over several levels; equal stories in one line."""
    stories: dict[str, list[str]] = {}
    for one in pair.crossovers:
        stories.setdefault(_crossed(one), []).append(label(one.metric))
    crossed = {(one.workload, one.metric) for one in pair.crossovers}
    for workload in dict.fromkeys(point.workload for point in pair.compared):
        points = [point for point in pair.compared if point.workload == workload]
        for metric in dict.fromkeys(one.metric for point in points for one in point.differences):
            story = _kept(workload, metric, points, pair.names)
            if (workload, metric) not in crossed and story is not None:
                stories.setdefault(story, []).append(label(metric))
    if stories:
        yield Heading("Crossovers")
    for story, metrics in stories.items():
        yield Paragraph(f"{story}: {', '.join(metrics)}")


def _crossed(one: Crossover) -> str:
    tied = f" (no clear difference at C={', '.join(map(str, one.tied))})" if one.tied else ""
    return (
        f"{one.workload}: {one.from_arm} ahead up to C={one.above}, {one.to_arm} from C={one.at}{tied},"
        f" crossover in ({one.above}, {one.at}]"
    )


def _kept(workload: str, metric: str, points: Sequence[PointComparison], names: tuple[str, str]) -> str | None:
    """No crossover: said only where several levels were compared and one side is ahead at each clear one."""
    differences = [one for point in points for one in point.differences if one.metric == metric]
    clear = {one.verdict for one in differences} & {Verdict.BETTER, Verdict.WORSE}
    if len(differences) < 2 or len(clear) != 1:
        return None
    ahead = names[1] if clear == {Verdict.BETTER} else names[0]
    ties = sum(one.verdict is Verdict.NO_CLEAR_DIFFERENCE for one in differences)
    but = f" but for {ties} of {len(differences)} without a clear difference" if ties else ""
    return f"{workload}: no crossover, {ahead} ahead at every level{but}"


def _counts(pair: PairComparison) -> str:
    told = ", ".join(f"{pair.count(verdict)} {verdict.value}" for verdict in Verdict if pair.count(verdict))
    left = len(pair.points) - len(pair.compared)
    return f"B against A: {told or 'nothing compared'}; {len(pair.compared)} points compared, {left} not."
