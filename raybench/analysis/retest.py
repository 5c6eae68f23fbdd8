"""A run that repeats some points of an earlier one: before and after, and whether the environment held. Pure.

Anchors are points that were repeated although nothing was changed for them. What they moved by is drift: of
the machine, the network, the neighbours. When an anchor drifted further than the limit, a difference of any
other point may be drift as well, and nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from raybench.analysis.comparison import PointComparison, Side, compare
from raybench.analysis.difference import NOISE_FLOOR_PERCENT, Difference, Verdict
from raybench.analysis.points import has_numbers

#: An anchor that moved further than this says that the environment drifted.
DRIFT_LIMIT_PERCENT = 3.0

#: An anchor's drift is that of its throughputs. Its P95s are told beside, but of few requests they are single
#: values, and no measure of a machine.
DRIFT_METRICS = ("output_tokens_per_s", "input_tokens_per_s")


class Final(StrEnum):
    """Whose value of a point counts."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class Drift:
    """What an anchor moved by in one metric. percent: (after - before) / before x 100.

    exceeds: further than the limit, against the smaller of the two values, so that drift up and down count alike.
    """

    workload: str
    level: str
    metric: str
    before: float
    after: float
    percent: float
    exceeds: bool


@dataclass(frozen=True)
class RetestPoint:
    """One repeated point. final: whose value counts; the other stays in the result."""

    comparison: PointComparison
    is_anchor: bool
    final: Final


@dataclass(frozen=True)
class Retest:
    """points: those of both runs. unrepeated, added: (workload, level) of those of one run only.

    unknown_anchors: anchors without a valid value on both sides; they tell nothing, so nothing is claimed.
    """

    points: list[RetestPoint]
    drifts: list[Drift]
    unknown_anchors: list[tuple[str, str]]
    unrepeated: list[tuple[str, str]]
    added: list[tuple[str, str]]
    drift_limit_percent: float

    @property
    def drifted(self) -> bool:
        return any(drift.exceeds for drift in self.drifts)

    @property
    def may_claim(self) -> bool:
        """Whether differences of other points may be read as differences."""
        return not self.drifted and not self.unknown_anchors


def retest(
    before: Side,
    after: Side,
    anchors: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    *,
    floor_percent: float = NOISE_FLOOR_PERCENT,
    drift_limit_percent: float = DRIFT_LIMIT_PERCENT,
    final: Final | None = None,
) -> Retest:
    """before, after: one arm. anchors: (workload, level), each measured in both.

    final: whose values count; by default the later ones where a claim may be made, else the earlier ones.
    A later value that is not valid never counts.
    """
    compared = compare(before, after, list(dict.fromkeys([*metrics, *DRIFT_METRICS])), floor_percent)
    both = set(before.keys) & set(after.keys)
    repeated = [point for point in compared if (point.workload, point.level) in both]
    by_key = {(point.workload, point.level): point for point in repeated}
    drifts = [drift for key in anchors if key in by_key for drift in _drifts(by_key[key], drift_limit_percent)]
    seen = {(drift.workload, drift.level) for drift in drifts}
    unknown = [key for key in anchors if key not in seen]
    unrepeated = [key for key in before.keys if key not in both]
    added = [key for key in after.keys if key not in both]
    told = Retest([], drifts, unknown, unrepeated, added, drift_limit_percent)
    chosen = final or (Final.AFTER if told.may_claim else Final.BEFORE)
    points = [
        RetestPoint(
            comparison=replace(point, differences=_claims(point, metrics, told.may_claim)),
            is_anchor=(point.workload, point.level) in anchors,
            final=_final(point, before, after, chosen),
        )
        for point in repeated
    ]
    return replace(told, points=points)


def _drifts(point: PointComparison, limit_percent: float) -> list[Drift]:
    found = []
    for one in point.differences:
        if one.metric in DRIFT_METRICS and one.a and one.b and one.percent is not None:
            moved = abs(one.b - one.a) / min(abs(one.a), abs(one.b)) * 100
            found.append(
                Drift(point.workload, point.level, one.metric, one.a, one.b, one.percent, moved > limit_percent)
            )
    return found


def _claims(point: PointComparison, metrics: Sequence[str], may_claim: bool) -> tuple[Difference, ...]:
    """The asked metrics' differences; without better and worse where nothing may be claimed."""
    asked = [one for one in point.differences if one.metric in metrics]
    if may_claim:
        return tuple(asked)
    clear = (Verdict.BETTER, Verdict.WORSE)
    return tuple(replace(one, verdict=Verdict.NO_CLAIM) if one.verdict in clear else one for one in asked)


def _final(point: PointComparison, before: Side, after: Side, chosen: Final) -> Final:
    key = (point.workload, point.level)
    later, earlier = (any(map(has_numbers, side.points(key))) for side in (after, before))
    if later != earlier:
        return Final.AFTER if later else Final.BEFORE
    return chosen
