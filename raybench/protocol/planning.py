"""The plan of a run as far as it is known: it grows with what engines say of their limits, and with searches.

Runs in the coordinator. The manifest holds its points from the first change on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from raybench.engines.contract import Facts
from raybench.protocol.invocation import Earlier
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import write_json
from raybench.scenario.levels import Level
from raybench.scenario.plan import PlannedSearch, Point, make_plan
from raybench.scenario.schema import Limits, Scenario


class RunPlan:
    """Points and searches of all arms. probed: by (arm, workload), levels that searches have come to before."""

    def __init__(
        self, scenario: Scenario, probed: Mapping[tuple[str, str], Sequence[Level]], run: RunDirectory
    ) -> None:
        self._scenario = scenario
        self._run = run
        self._limits: dict[str, Limits] = {}
        self._probed = {names: list(levels) for names, levels in probed.items()}
        self._plan = make_plan(scenario, self._limits, self._probed)

    def __len__(self) -> int:
        return len(self._plan.points)

    def points_of(self, arm: str, workload: str | None = None) -> list[Point]:
        """Those known so far, in order; of all the arm's workloads without one."""
        own = (point for point in self._plan.points if point.arm == arm)
        return [point for point in own if workload in (None, point.workload)]

    def searches_of(self, arm: str) -> dict[str, PlannedSearch]:
        """By workload."""
        return {search.workload: search for search in self._plan.searches if search.arm == arm}

    def is_settled(self, arm: str, earlier: Earlier) -> bool:
        """Whether a resumed run has nothing to do on this arm."""
        searches = self.searches_of(arm)
        listed = (point for point in self.points_of(arm) if point.workload not in searches)
        return all(earlier.settled(point.point_id) for point in listed) and all(
            (arm, workload) in earlier.searched for workload in searches
        )

    def know(self, arm: str, limits: Limits) -> None:
        """Plan the arm once more with all that is known of its limits."""
        self._limits[arm] = limits
        self._make()

    def add_probe(self, planned: PlannedSearch, level: Level) -> Point:
        """The point of a search at a level, new or known."""
        levels = self._probed.setdefault((planned.arm, planned.workload), [])
        if level not in levels:
            levels.append(level)
            self._make()
        return next(p for p in self.points_of(planned.arm, planned.workload) if p.level == level)

    def _make(self) -> None:
        self._plan = make_plan(self._scenario, self._limits, self._probed)
        points = [asdict(point) for point in self._plan.points]
        write_json(self._run.manifest, {**self._run.read_manifest(), "points": points})


def limits_of(facts: Facts) -> Limits:
    """What the engine says it can hold. A number below 1 is its way to say "none" or "automatic"."""
    told = {
        "max_running_requests": facts.max_running_requests,
        "kv_pool_tokens": facts.kv_pool_tokens,
        "context_tokens": facts.context_tokens,
        "max_input_tokens": facts.max_input_tokens,
        "page_tokens": facts.page_tokens,
    }
    return Limits(**{name: value for name, value in told.items() if value is not None and value >= 1})
