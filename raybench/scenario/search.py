"""A search over levels: which level is measured next, and what was found. Pure, and without pydantic.

Next level and result are functions of the probes so far and of nothing else, so that a resumed run goes on
where it was and a merge on a laptop comes to the same result. Levels grow twofold from the minimum until one
fails, then the interval between the highest level that passes and the lowest that fails is halved geometrically.
Used by the plan (how many probes at most), the coordinator (what is next) and the merge (the result).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from raybench.scenario.levels import Level

#: The metric of a knee.
THROUGHPUT = "output_tokens_per_s"
#: Where between two levels a void one is gone around, as shares of their ratio's logarithm; the middle first.
_WAYS_ROUND = (0.5, 0.375, 0.625, 0.25, 0.75)
#: Digits of a rate that a search makes up.
_RATE_DIGITS = 3

Status = Literal[
    "found", "below_minimum", "above_maximum", "probes_used_up", "void_probes", "skipped", "unfinished"
]


@dataclass(frozen=True)
class Search:
    """The question: the highest level within an SLO (metric -> limit), or the level that saturates (gain_min).

    Levels are numbers of the kind that `over` names, from minimum to maximum. Exactly one of slo and gain_min is
    given.
    """

    over: str
    slo: Mapping[str, float] | None
    gain_min: float | None
    minimum: float
    maximum: float
    resolution: float
    probes_max: int

    @classmethod
    def of_block(cls, block: Mapping[str, Any]) -> Search:
        """From the values of `scenario.search_block.SearchBlock`, as the manifest has them."""
        plain = {name: block[name] for name in ("over", "slo", "minimum", "maximum", "resolution", "probes_max")}
        return cls(**plain, gain_min=None if block["knee"] is None else block["knee"]["gain_min"])

    def level(self, value: float) -> Level:
        """The level that a number of this search stands for."""
        return Level(rate_per_s=value) if self.over == "rate_per_s" else Level(concurrency=int(value))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The point metrics that decide."""
        return (THROUGHPUT,) if self.slo is None else tuple(self.slo)

    def resolved(self, low: float, high: float) -> bool:
        """Whether nothing worth measuring lies between the two."""
        return (high - low) / low <= self.resolution or not list(self.between(low, high))

    def above(self, low: float | None) -> Iterator[float]:
        """What to try above `low` while nothing has failed: twice the level, then ways round a void one."""
        if low is None:
            yield self.minimum
            low = self.minimum
        target = min(2 * low, self.maximum)
        if target > low:
            yield target
            yield from self.between(low, target)

    def between(self, low: float, high: float) -> Iterator[float]:
        """Levels strictly between, the geometric middle first."""
        seen = set()
        for share in _WAYS_ROUND:
            level = low * (high / low) ** share
            if self.over == "rate_per_s":
                level = float(f"{level:.{_RATE_DIGITS}g}")
            else:
                level = min(max(float(round(level)), low + 1), high - 1)
            if low < level < high and level not in seen:
                seen.add(level)
                yield level


@dataclass(frozen=True)
class Probe:
    """One measured level. values: the metrics that the search asks for; None = the point has no valid number."""

    level: float
    values: Mapping[str, float | None] | None


@dataclass(frozen=True)
class Check:
    """One metric of a probe against its limit. holds: None = the value is not known."""

    metric: str
    value: float | None
    limit: float
    holds: bool | None


@dataclass(frozen=True)
class Judged:
    """A probe on one side of the threshold or the other; passes None = it says nothing.

    Under an SLO a level passes when every metric is within its limit. For a knee it passes as long as it is
    not saturated.
    """

    level: float
    passes: bool | None
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a search has come to.

    level: the answer; under an SLO the highest passing level, for a knee the lowest saturated one. None where
    there is none. passes, fails: the interval that holds the threshold; None = no such level was seen.
    """

    status: Status
    level: float | None
    passes: float | None
    fails: float | None
    notes: tuple[str, ...] = ()


def request_limits(search: Search) -> dict[str, float]:
    """What one request has to meet to count as good: the SLO's latencies, each with its widest limit."""
    limits: dict[str, float] = {}
    for metric, limit in (search.slo or {}).items():
        if metric != "failure_share":
            latency = metric.rpartition("_")[0]
            limits[latency] = max(limit, limits.get(latency, limit))
    return limits


def judge(search: Search, probes: Sequence[Probe]) -> list[Judged]:
    """Each probe in its place of `probes`."""
    if search.slo is not None:
        return [_within(search.slo, probe) for probe in probes]
    return _gaining(search, probes)


def _within(slo: Mapping[str, float], probe: Probe) -> Judged:
    if probe.values is None:
        return Judged(probe.level, None)
    values = probe.values
    checks = tuple(_check(metric, values[metric], limit) for metric, limit in slo.items())
    return Judged(probe.level, _all(checks), checks)


def _check(metric: str, value: float | None, limit: float) -> Check:
    return Check(metric, value, limit, None if value is None else value <= limit)


def _all(checks: Sequence[Check]) -> bool | None:
    """One check that fails settles it; one that is not known leaves it open."""
    if any(check.holds is False for check in checks):
        return False
    return None if any(check.holds is None for check in checks) else True


def _gaining(search: Search, probes: Sequence[Probe]) -> list[Judged]:
    """A level is saturated when the highest measured throughput exceeds its own by at most gain_min.

    None is before one of them is confirmed, so that one slow probe does not look like the end of growth.
    """
    assert search.gain_min is not None
    rates = {probe.level: _throughput(probe) for probe in probes}
    known = {level: rate for level, rate in rates.items() if rate is not None}
    limit = max(known.values(), default=0.0) / (1 + search.gain_min)
    flat = _confirmed(search, known, [level for level, rate in known.items() if rate >= limit])
    judged = []
    for probe in probes:
        rate = rates[probe.level]
        gains = None if rate is None else not flat or rate < limit
        checks = () if probe.values is None else (Check(THROUGHPUT, rate, limit, gains),)
        judged.append(Judged(probe.level, gains, checks))
    return judged


def _confirmed(search: Search, rates: Mapping[float, float], saturated: Sequence[float]) -> bool:
    """Whether growth was looked for two doublings above a saturated level, or up to the maximum.

    A step to the maximum may be short: it is held to its share of a doubling.
    """
    assert search.gain_min is not None
    top = max(rates, default=0.0)
    if any(top >= 4 * level for level in saturated):
        return True
    gain = 1 + search.gain_min
    steps = [level for level in saturated if level < top] if top == search.maximum else []
    return any(rates[top] < rates[level] * math.pow(gain, math.log2(top / level)) for level in steps)


def _throughput(probe: Probe) -> float | None:
    return None if probe.values is None else probe.values[THROUGHPUT]


def decide(search: Search, probes: Sequence[Probe]) -> float | Result:
    """The next level to measure, or the result."""
    judged = judge(search, probes)
    known = {one.level: one.passes for one in judged}
    passes, fails = interval(judged)
    status: Status | None = None
    if fails is not None and passes is not None and search.resolved(passes, fails):
        status = "found"
    elif known.get(search.minimum) is False:
        status = "below_minimum"
    elif fails is None and known.get(search.maximum):
        status = "above_maximum"
    elif len(known) >= search.probes_max:
        status = "probes_used_up"
    else:
        untried = (level for level in _candidates(search, passes, fails) if level not in known)
        if (following := next(untried, None)) is not None:
            return following
        status = "void_probes"
    return Result(status, passes if search.slo is not None else fails, passes, fails, notes(search, judged))


def interval(judged: Sequence[Judged]) -> tuple[float | None, float | None]:
    """(highest passing level, lowest failing level). A level that passes above a failing one does not count."""
    fails = min((one.level for one in judged if one.passes is False), default=None)
    below = (one.level for one in judged if one.passes and (fails is None or one.level < fails))
    return max(below, default=None), fails


def _candidates(search: Search, passes: float | None, fails: float | None) -> Iterator[float]:
    if fails is None:
        return search.above(passes)
    return iter((search.minimum,)) if passes is None else search.between(passes, fails)


def notes(search: Search, judged: Sequence[Judged]) -> tuple[str, ...]:
    """What a reader must know of the data behind the answer: noise, and levels without a number."""
    _, fails = interval(judged)
    found = []
    beyond = [one.level for one in judged if one.passes and fails is not None and one.level > fails]
    if beyond and search.slo is not None:
        found.append(
            f"not monotone: {_listed(beyond)} within the SLO although {fails:g} is not; the answer stays below"
            f" {fails:g}"
        )
    elif beyond:
        found.append(
            f"not monotone: {_listed(beyond)} with less throughput than the lower level {fails:g}; the lowest"
            " saturated level counts"
        )
    silent = [one.level for one in judged if one.passes is None]
    if silent:
        found.append(f"no valid number at {_listed(silent)}: counts neither as passing nor as failing")
    return tuple(found)


def _listed(levels: Sequence[float]) -> str:
    return ", ".join(f"{level:g}" for level in sorted(levels))


def most_levels(search: Search) -> list[float]:
    """The levels of the longest search that neither a void probe nor noise disturbs; for limits of the plan.

    Growth to the maximum, then as many halvings of one doubling as the resolution asks, each counted as if at
    the maximum. At most `probes_max`, the highest ones.
    """
    levels = [search.minimum]
    while levels[-1] < search.maximum:
        levels.append(next(iter(search.above(levels[-1]))))
    if len(levels) > 1:
        halvings = math.ceil(math.log2(max(math.log(2) / math.log1p(search.resolution), 1.0))) + 1
        if search.over == "concurrency":
            widest = int(max(high - low for low, high in pairwise(levels)))
            # One more than halving by count takes, since the geometric middle lies below the half.
            halvings = min(halvings, (widest - 1).bit_length() + 1 if widest > 1 else 0)
        levels += [search.maximum] * halvings
    return levels[-search.probes_max :]
