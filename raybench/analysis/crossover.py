"""Where one arm overtakes another as the concurrency rises: an interval between measured levels. Pure.

A measurement at C=1 and one at C=8 with different leaders say that the lead changed hands somewhere in
(1, 8]; they do not say where. No point inside is made up by drawing a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from raybench.analysis.difference import advantage, leader


@dataclass(frozen=True)
class Crossover:
    """`to_arm` overtakes `from_arm` in `metric` above concurrency `above`, and is ahead at `at`.

    tied: measured levels between the two without a clear difference.
    advantage_before, advantage_after: how many times the arm ahead is better at `above` and at `at`.
    """

    workload: str
    metric: str
    from_arm: str
    to_arm: str
    above: int
    at: int
    tied: tuple[int, ...]
    advantage_before: float | None
    advantage_after: float | None


#: By concurrency, one arm's value of a metric, or the noise floor in percent.
Series = Mapping[int, float]


def crossovers(
    workload: str,
    metric: str,
    arms: tuple[str, str],
    series: tuple[Series, Series],
    floors_percent: Series,
) -> list[Crossover]:
    """Every change of the lead, in order of the levels. Empty where one arm stays ahead, or neither is.

    floors_percent: of each level that both arms have.
    """
    a, b = series
    levels = sorted(a.keys() & b.keys())
    ahead = {level: leader(metric, a[level], b[level], floors_percent[level]) for level in levels}
    clear = [level for level, who in ahead.items() if who]
    found = []
    for above, at in pairwise(clear):
        if ahead[above] == ahead[at]:
            continue
        b_takes_over = ahead[at] > 0
        found.append(
            Crossover(
                workload=workload,
                metric=metric,
                from_arm=arms[0] if b_takes_over else arms[1],
                to_arm=arms[1] if b_takes_over else arms[0],
                above=above,
                at=at,
                tied=tuple(level for level in ahead if above < level < at),
                advantage_before=advantage(a[above], b[above]),
                advantage_after=advantage(a[at], b[at]),
            )
        )
    return found
