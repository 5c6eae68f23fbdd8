"""Searches as the journal tells them, and what they found: the entries of searches.json. Pure.

The coordinator asks here which probes a search has (also after a resume), the merge makes the result again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from raybench.analysis.goodput import Goodput
from raybench.analysis.points import id_parts
from raybench.scenario.levels import Level
from raybench.scenario.search import (
    Judged,
    Probe,
    Result,
    Search,
    decide,
    interval,
    judge,
    notes,
)

Line = Mapping[str, Any]
Entry = dict[str, Any]


@dataclass(frozen=True)
class SearchStory:
    """One search so far. probes: the verdicts of its points by id, in order of their commits.

    bounds: the fields of `search_started`; None before. A void point is measured again by a resumed run, so one
    that was committed before the last start is no probe.
    """

    bounds: Line | None = None
    probes: Mapping[str, str] = field(default_factory=dict)
    outdated: tuple[str, ...] = ()
    ended: Line | None = None

    @property
    def settled(self) -> bool:
        """Whether a resumed run has nothing to do for it: it came to an end that void points do not explain."""
        return self.ended is not None and self.ended["status"] != "void_probes"


def read_search(lines: Iterable[Line], arm: str, workload: str) -> SearchStory:
    """The story of the search of one workload on one arm."""
    story, prefix = SearchStory(), f"{arm}/{workload}/"
    for line in lines:
        if line["event"] == "point_committed" and line["point_id"].startswith(prefix):
            probes = {name: verdict for name, verdict in story.probes.items() if name != line["point_id"]}
            outdated = tuple(name for name in story.outdated if name != line["point_id"])
            # A probe that is committed behind the end was struck afterwards: the search is open again.
            probes[line["point_id"]] = line["verdict"]
            story = replace(story, probes=probes, outdated=outdated, ended=None)
        elif (line.get("arm"), line.get("workload")) == (arm, workload):
            story = _told(story, line)
    return story


def _told(story: SearchStory, line: Line) -> SearchStory:
    if line["event"] == "search_ended":
        return replace(story, ended=line)
    if line["event"] != "search_started":
        return story
    void = tuple(name for name, verdict in story.probes.items() if verdict == "void")
    kept = {name: verdict for name, verdict in story.probes.items() if verdict != "void"}
    return SearchStory(line, kept, (*story.outdated, *void))


def level_of(point_id: str) -> float:
    """The number at the end of a point's id."""
    return Level.of_name(id_parts(point_id)[2]).value


Values = Callable[[str], Mapping[str, Any]]


def probes_of(search: Search, story: SearchStory, values: Values) -> list[Probe]:
    """values: the metrics of an accepted point."""
    return [
        Probe(level_of(point_id), _picked(search, values(point_id)) if verdict == "accepted" else None)
        for point_id, verdict in story.probes.items()
        if verdict != "skipped"
    ]


def _picked(search: Search, row: Mapping[str, Any]) -> dict[str, float | None]:
    return {metric: row[metric] for metric in search.metrics}


def result_of(search: Search, story: SearchStory, probes: Sequence[Probe]) -> float | Result:
    """The next level or the result. Before its start nothing is known of what the target can hold."""
    if story.bounds is not None and story.bounds["skip_reason"] is not None:
        return Result("skipped", None, None, None, (story.bounds["skip_reason"],))
    held = search if story.bounds is None else replace(search, maximum=story.bounds["maximum"])
    return decide(held, probes)


def searches_of(manifest: Mapping[str, Any]) -> dict[str, Search]:
    """The searches of the scenario, by workload."""
    workloads = manifest.get("scenario", {}).get("workloads", [])
    return {one["name"]: Search.of_block(one["search"]) for one in workloads if one.get("search")}


def search_entries(
    manifest: Mapping[str, Any],
    lines: Sequence[Line],
    rows: Mapping[str, Mapping[str, Any]],
    goodputs: Mapping[str, Goodput],
) -> list[Entry]:
    """What searches.json holds: one entry an arm and search, in the order of the plan.

    lines: the journal. rows: by point, of points.parquet. goodputs: of the accepted points of searches for an SLO.
    """
    arms = {one["name"]: one["arms"] for one in manifest["scenario"]["workloads"]}
    return [
        _entry(arm, name, search, read_search(lines, arm, name), rows.__getitem__, goodputs)
        for arm in manifest["scenario"]["arms"]
        for name, search in searches_of(manifest).items()
        if not arms[name] or arm in arms[name]
    ]


def _entry(
    arm: str,
    workload: str,
    search: Search,
    story: SearchStory,
    values: Values,
    goodputs: Mapping[str, Goodput],
) -> Entry:
    """Question, result, and every probe with its reason."""
    probes = probes_of(search, story, values)
    result = result_of(search, story, probes)
    judged = judge(search, probes)
    if not isinstance(result, Result):
        passes, fails = interval(judged)
        result = Result("unfinished", None, passes, fails, notes(search, judged))
    bounds = story.bounds or {}
    point_ids = [point_id for point_id, verdict in story.probes.items() if verdict != "skipped"]
    found = next((name for name in point_ids if level_of(name) == result.level), "")
    return {
        "arm": arm,
        "workload": workload,
        **asdict(search),
        "maximum_held": bounds.get("maximum"),
        "bounded_by": bounds.get("bounded_by"),
        **asdict(result),
        "point_id": found or None,
        "goodput": _as_dict(goodputs.get(found)),
        "probes": [
            *(_probe_entry(point_id, "void", Judged(level_of(point_id), None)) for point_id in story.outdated),
            *(
                _probe_entry(point_id, story.probes[point_id], one, goodputs.get(point_id))
                for point_id, one in zip(point_ids, judged, strict=True)
            ),
        ],
    }


def _probe_entry(point_id: str, verdict: str, judged: Judged, goodput: Goodput | None = None) -> Entry:
    return {"point_id": point_id, "verdict": verdict, **asdict(judged), "goodput": _as_dict(goodput)}


def _as_dict(value: Goodput | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
