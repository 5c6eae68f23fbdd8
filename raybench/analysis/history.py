"""What the journal tells of each point: its attempts, their load times and windows, its verdict.

Pure: journal lines in, frozen stories out. The events are those that the room `protocol` writes of a point; lines
of other events are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from raybench.analysis.alignment import ClockReading

Line = Mapping[str, Any]
#: Measured offsets by clock: a worker's or another's.
Clocks = Mapping[str, Sequence[ClockReading]]


@dataclass(frozen=True)
class Attempt:
    """One try of a point. Stamps are of the coordinator's wall clock; None = did not come so far.

    preemptions: the engine's counter after the load minus before it. failed_step: (step, error).
    """

    attempt: int
    started_unix_ns: int | None = None
    load_started_unix_ns: int | None = None
    load_ended_unix_ns: int | None = None
    windows: Mapping[str, Any] = field(default_factory=dict)
    counters_before: Mapping[str, float | None] = field(default_factory=dict)
    counters_after: Mapping[str, float | None] = field(default_factory=dict)
    latencies_before: Mapping[str, Any] = field(default_factory=dict)
    latencies_after: Mapping[str, Any] = field(default_factory=dict)
    preemptions: int | None = None
    failed_step: tuple[str, str] | None = None
    verdict: str | None = None
    findings: tuple[Mapping[str, Any], ...] = ()
    hit_rates: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def load_unix_ns(self) -> tuple[int, int] | None:
        """Start and end of its load; None where it did not begin or did not end."""
        if self.load_started_unix_ns is None or self.load_ended_unix_ns is None:
            return None
        return self.load_started_unix_ns, self.load_ended_unix_ns


@dataclass(frozen=True)
class PointHistory:
    """All attempts of a point, and how it was committed; `verdict` None = never committed."""

    attempts: Mapping[int, Attempt] = field(default_factory=dict)
    verdict: str | None = None
    final_attempt: int | None = None
    reasons: tuple[str, ...] = ()

    @property
    def final(self) -> Attempt | None:
        return None if self.final_attempt is None else self.attempts.get(self.final_attempt)


@dataclass(frozen=True)
class History:
    """A run as its journal tells it.

    clocks: by (point_id, attempt); both are None for what was measured outside of attempts.
    """

    points: Mapping[str, PointHistory]
    arms_ready_unix_ns: Mapping[str, tuple[int, ...]]
    clocks: Mapping[tuple[str | None, int | None], Clocks]

    def point(self, point_id: str) -> PointHistory:
        return self.points.get(point_id, PointHistory())

    def load_times(self) -> list[tuple[int, int, str, int]]:
        """(start, end, point_id, attempt) of each attempt whose load began and ended, in order."""
        return sorted(
            (*attempt.load_unix_ns, point_id, number)
            for point_id, point in self.points.items()
            for number, attempt in point.attempts.items()
            if attempt.load_unix_ns is not None
        )

    def ready_before(self, arm: str, unix_ns: int) -> int | None:
        """When the arm was last made ready before a moment; a resumed run makes it ready again."""
        return max((at for at in self.arms_ready_unix_ns.get(arm, ()) if at <= unix_ns), default=None)

    def attempt_clocks(self, point_id: str, attempt: int) -> Clocks:
        """What was measured over one attempt."""
        return self.clocks.get((point_id, attempt), {})

    def all_clocks(self) -> Clocks:
        """What was measured at any time."""
        found: dict[str, list[ClockReading]] = {}
        for clocks in self.clocks.values():
            for name, readings in clocks.items():
                found.setdefault(name, []).extend(readings)
        return found


def read_history(lines: Iterable[Line]) -> History:
    """The stories of a journal. A point committed again (after a resume) is told by its last commit."""
    points: dict[str, PointHistory] = {}
    ready: dict[str, list[int]] = {}
    clocks: dict[tuple[str | None, int | None], dict[str, list[ClockReading]]] = {}
    for line in lines:
        event, point_id = line["event"], line.get("point_id")
        if event == "arm_ready":
            ready.setdefault(line["arm"], []).append(line["unix_ns"])
        elif event == "clock":
            measured = (line["offset_ns"], line["uncertainty_ns"], line.get("wall_ahead_ns", 0))
            of_attempt = clocks.setdefault((point_id, line.get("attempt")), {})
            of_clock = of_attempt.setdefault(line.get("worker") or line["clock"], [])
            of_clock.append(ClockReading(line["unix_ns"], *measured))
        elif isinstance(point_id, str):
            points[point_id] = _told(points.get(point_id, PointHistory()), line)
    return History(
        points=points,
        arms_ready_unix_ns={arm: tuple(times) for arm, times in ready.items()},
        clocks=clocks,
    )


def _told(point: PointHistory, line: Line) -> PointHistory:
    if line["event"] == "point_committed":
        reasons = tuple(line.get("reasons") or ())
        return replace(point, verdict=line["verdict"], final_attempt=line.get("attempt"), reasons=reasons)
    if line.get("attempt") is None:
        return point
    number = int(line["attempt"])
    attempt = point.attempts.get(number, Attempt(number))
    return replace(point, attempts={**point.attempts, number: _attempt_told(attempt, line)})


def _attempt_told(attempt: Attempt, line: Line) -> Attempt:
    match line["event"]:
        case "attempt_started":
            return replace(attempt, started_unix_ns=line["unix_ns"], windows=line.get("windows") or {})
        case "load_started":
            return replace(attempt, load_started_unix_ns=line["unix_ns"])
        case "load_ended":
            return replace(attempt, load_ended_unix_ns=line["unix_ns"])
        case "step":
            return _step_told(attempt, line)
        case "verdict":
            return replace(
                attempt,
                verdict=line["verdict"],
                findings=tuple(line.get("findings") or ()),
                hit_rates=line.get("hit_rates") or {},
            )
        case _:
            return attempt


def _step_told(attempt: Attempt, line: Line) -> Attempt:
    if line["status"] == "failed":
        return replace(attempt, failed_step=(line["step"], line.get("error") or ""))
    counters = line.get("counters") or {}
    match line["step"]:
        case "counters_before":
            return replace(attempt, counters_before=counters, latencies_before=line.get("latencies") or {})
        case "counters_after":
            attempt = replace(attempt, counters_after=counters, latencies_after=line.get("latencies") or {})
            before, after = attempt.counters_before.get("preemptions"), counters.get("preemptions")
            if before is None or after is None or after < before:
                return attempt
            return replace(attempt, preemptions=round(after - before))
        case _:
            return attempt
