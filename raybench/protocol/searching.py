"""One search as the coordinator carries it out: which level comes next, and what the journal says of it.

The probes are read from the journal and from the parts on disk, so that a resumed run decides on what is
kept, as the merge does. Runs in the coordinator.
"""

from __future__ import annotations

from dataclasses import asdict

from raybench.analysis.goodput import Goodput, goodput
from raybench.analysis.parts import AttemptParts
from raybench.analysis.point_metrics import Row, point_metrics
from raybench.analysis.searches import SearchStory, level_of, probes_of, read_search, result_of
from raybench.protocol.evidence import history_of
from raybench.records.journal import Journal, read_journal
from raybench.records.rundir import RunDirectory
from raybench.scenario.plan import PlannedSearch, Point
from raybench.scenario.search import Result, interval, judge, request_limits


class LevelSearch:
    """Decides over the points of one workload on one arm; others measure them."""

    def __init__(self, planned: PlannedSearch, run: RunDirectory, journal: Journal) -> None:
        self._planned = planned
        self._search = planned.search
        self._run = run
        self._journal = journal
        self._rows: dict[str, Row] = {}
        self._goodputs: dict[str, Goodput] = {}

    def start(self) -> None:
        """Void probes of an earlier invocation are open again from here on."""
        planned = self._planned
        self._journal.append(
            "search_started",
            **self._names(),
            **asdict(planned.search),
            bounded_by=planned.bounded_by,
            skip_reason=planned.lowest.skip_reason,
        )

    def following(self) -> float | Result:
        """The level to measure now, or the result."""
        story = self._story()
        return result_of(self._search, story, probes_of(self._search, story, self._values))

    def told(self) -> str:
        """Where the search stands, for people: `probe 5 of ~9: 8 passes, 16 fails`."""
        story = self._story()
        passes, fails = interval(judge(self._search, probes_of(self._search, story, self._values)))
        words = ("passes", "fails") if self._search.slo is not None else ("grows", "saturated")
        known = [f"{level:g} {word}" for level, word in zip((passes, fails), words, strict=True) if level]
        number = len(story.probes) + 1
        start = f"probe {number} of ~{max(self._planned.probes, number)}"
        return f"{start}: {', '.join(known)}" if known else start

    def probed(self, point: Point) -> None:
        """Say on which side of the threshold a committed point lies, as far as is known by now."""
        story = self._story()
        probes = probes_of(self._search, story, self._values)
        judged = next(one for one in judge(self._search, probes) if one.level == level_of(point.point_id))
        verdict = story.probes[point.point_id]
        self._journal.append(
            "search_probe", **self._names(), point_id=point.point_id, verdict=verdict, **asdict(judged)
        )

    def end(self, result: Result) -> None:
        level = None if result.level is None else self._search.level(result.level).name
        found = self._goodputs.get(f"{self._planned.arm}/{self._planned.workload}/{level}")
        self._journal.append(
            "search_ended", **self._names(), **asdict(result), goodput=None if found is None else asdict(found)
        )

    def _names(self) -> dict[str, str]:
        return {"arm": self._planned.arm, "workload": self._planned.workload}

    def _story(self) -> SearchStory:
        return read_search(read_journal(self._run.journal), self._planned.arm, self._planned.workload)

    def _values(self, point_id: str) -> Row:
        """The metrics of an accepted point from the parts of its final attempt, as the merge has them."""
        if point_id not in self._rows:
            history = history_of(self._run)
            attempt = history.point(point_id).final_attempt
            assert attempt is not None, "an accepted point has an attempt that counts"
            requests = AttemptParts(self._run, point_id, attempt, history).requests().table
            self._rows[point_id] = point_metrics(requests, self._search.level(level_of(point_id)).concurrency)
            if self._search.slo is not None:
                self._goodputs[point_id] = goodput(requests, request_limits(self._search))
        return self._rows[point_id]
