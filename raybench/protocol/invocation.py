"""How one invocation of a run begins and ends: what earlier ones left in the journal, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from raybench.analysis.searches import read_search
from raybench.errors import EXIT_OK
from raybench.scenario.levels import Level
from raybench.scenario.schema import Scenario


@dataclass(frozen=True)
class Outcome:
    """How a run ended. status: complete | stopped | interrupted."""

    status: Literal["complete", "stopped", "interrupted"]
    accepted: int
    void: int
    skipped: int
    missing: int
    reason: str | None = None
    exit_code: int = EXIT_OK


@dataclass
class History:
    """What earlier invocations of this run already did, from its journal."""

    committed: dict[str, str] = field(default_factory=dict)  # point_id -> verdict
    attempts: dict[str, int] = field(default_factory=dict)
    serial: int = 0
    searched: set[tuple[str, str]] = field(default_factory=set)  # (arm, workload) of searches with a result

    @classmethod
    def of(cls, events: list[dict[str, object]]) -> History:
        history = cls()
        for event in events:
            point_id = str(event.get("point_id"))
            if event["event"] == "attempt_started":
                history.attempts[point_id] = int(str(event["attempt"]))
                history.serial = max(history.serial, int(str(event["serial"])))
            elif event["event"] == "point_committed":
                history.committed[point_id] = str(event["verdict"])
            elif event["event"] == "search_ended":
                name = (str(event["arm"]), str(event["workload"]))
                if read_search(events, *name).settled:
                    history.searched.add(name)
        return history

    def probed(self, scenario: Scenario) -> dict[tuple[str, str], list[Level]]:
        """By (arm, workload), the levels that searches have committed points at."""
        searching = {workload.name for workload in scenario.workloads if workload.search is not None}
        levels: dict[tuple[str, str], list[Level]] = {}
        for point_id in self.committed:
            arm, workload, level = point_id.split("/")
            if workload in searching:
                levels.setdefault((arm, workload), []).append(Level.of_name(level))
        return levels

    def settled(self, point_id: str) -> bool:
        """Accepted and skipped points stay; void ones are measured again on resume."""
        return self.committed.get(point_id) in ("accepted", "skipped")
