"""How one invocation of a run begins and ends: what earlier ones left in the journal, and what it comes to.

Runs in the coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from raybench.analysis.searches import read_search
from raybench.errors import EXIT_NOT_ALL_VALID, EXIT_OK, EXIT_SERVICE, EXIT_TARGET
from raybench.protocol.progress import Progress
from raybench.records.journal import Journal
from raybench.scenario.levels import Level
from raybench.scenario.plan import Point
from raybench.scenario.schema import Scenario

Status = Literal["complete", "stopped", "interrupted"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. reason: of a stop."""

    status: Status
    accepted: int
    void: int
    skipped: int
    missing: int
    reason: str | None = None
    exit_code: int = EXIT_OK


@dataclass
class Earlier:
    """What earlier invocations of this run already did, from its journal."""

    committed: dict[str, str] = field(default_factory=dict)  # point_id -> verdict
    attempts: dict[str, int] = field(default_factory=dict)
    serial: int = 0
    searched: set[tuple[str, str]] = field(default_factory=set)  # (arm, workload) of searches with a result

    @classmethod
    def of(cls, events: Sequence[Mapping[str, Any]]) -> Earlier:
        earlier = cls()
        for event in events:
            if event["event"] == "attempt_started":
                earlier.attempts[event["point_id"]] = event["attempt"]
                earlier.serial = max(earlier.serial, event["serial"])
            elif event["event"] == "point_committed":
                earlier.committed[event["point_id"]] = event["verdict"]
            elif event["event"] == "search_ended":
                names = event["arm"], event["workload"]
                if read_search(events, *names).settled:
                    earlier.searched.add(names)
        return earlier

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


class Verdicts:
    """Of the points that are done with. Each is in the journal before it counts."""

    def __init__(self, earlier: Earlier, journal: Journal, progress: Progress) -> None:
        self._earlier = earlier
        self._journal = journal
        self._progress = progress
        self._by_point: dict[str, str] = {}
        #: The engine failed a step of some point, or an arm could not be started, reached or ended.
        self.target_failed = False

    def __contains__(self, point: Point) -> bool:
        return point.point_id in self._by_point

    def commit(self, point: Point, attempt: int | None, verdict: str, reasons: list[str]) -> None:
        self._journal.append(
            "point_committed", point_id=point.point_id, attempt=attempt, verdict=verdict, reasons=reasons
        )
        self._settle(point, verdict)

    def keep(self, point: Point) -> None:
        """What an earlier invocation committed stays."""
        self._settle(point, self._earlier.committed[point.point_id])

    def _settle(self, point: Point, verdict: str) -> None:
        self._by_point[point.point_id] = verdict
        self._progress.point_done(point, verdict)

    def outcome(self, status: Status, reason: str | None, points: int, *, service_is_back: bool) -> Outcome:
        """points: all that the run has. service_is_back: also where none was taken down."""
        verdicts = list(self._by_point.values())
        counts = {name: verdicts.count(name) for name in ("accepted", "void", "skipped")}
        missing = points - len(verdicts)
        all_valid = status == "complete" and not counts["void"] and not missing
        code = EXIT_TARGET if self.target_failed else EXIT_OK if all_valid else EXIT_NOT_ALL_VALID
        if not service_is_back:
            code = EXIT_SERVICE
        return Outcome(status, **counts, missing=missing, reason=reason, exit_code=code)
