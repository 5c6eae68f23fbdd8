"""What a report is made from: merged tables, manifests and facts of one run directory or of several.

Arms of several runs stand side by side as arms of one do; an arm name that more than one run has is told
apart by its run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raybench.analysis.agreement import Agreement, read_agreements
from raybench.analysis.merge import MERGE_JSON
from raybench.analysis.points import read_points
from raybench.errors import ConfigError, ConfigProblem, RunDirectoryError
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory, safe_name
from raybench.records.strict_json import read_json
from raybench.report.points import Point, workload_label


@dataclass(frozen=True)
class Run:
    """One run directory. status: how it ended; None when its journal does not say.

    service: what the keeper of the service in use told last. probes: of launch parameters, before the run.
    """

    directory: RunDirectory
    manifest: Mapping[str, Any]
    status: str | None = None
    warnings: tuple[str, ...] = ()
    service: Mapping[str, Any] = field(default_factory=dict)
    probes: tuple[Mapping[str, Any], ...] = ()

    @property
    def run_id(self) -> str:
        return str(self.manifest.get("run_id") or self.directory.path.name)

    @property
    def imported(self) -> Mapping[str, Any]:
        """Where the numbers of an imported run come from; empty for one that raybench measured."""
        told: Mapping[str, Any] = self.manifest.get("imported") or {}
        return told

    @property
    def measured_here(self) -> bool:
        """Whether there are parts and records: an imported table has none, nor has the outcome of a retest."""
        return self.manifest.get("provenance") is None

    @property
    def not_streamed(self) -> list[str]:
        """Workloads whose answers came whole."""
        workloads = self.manifest.get("scenario", {}).get("workloads") or []
        return [workload["name"] for workload in workloads if workload.get("stream") is False]

    @property
    def guards(self) -> Mapping[str, Any]:
        guards: Mapping[str, Any] = self.manifest.get("scenario", {}).get("guards") or {}
        return guards


@dataclass(frozen=True)
class ArmFacts:
    """What is known of an arm beside its points.

    facts: what its engine said of itself. gpus: devices by host. limits: what it can hold, as journalled
    when it was last ready. settings: the arm as the scenario gives it. processes: those that were started for
    it, inventory: what it is made of, gate: what its quality gate found.
    """

    run: Run
    facts: Mapping[str, Any] = field(default_factory=dict)
    gpus: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    processes: Sequence[Mapping[str, Any]] = ()
    inventory: Mapping[str, Any] = field(default_factory=dict)
    gate: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """One or several runs, read. Arms keep the order of the runs and of their plans.

    A point has, beside its columns of points.parquet, `run` (the index of its run), `index` (its own in
    `points`) and `name` (its id with the arm as this report calls it); `arm` is that, too. Of repeats that
    `repeats.pool_repeats` made one row of, `index` is None. An agreement names its point as this report does.
    """

    runs: tuple[Run, ...]
    points: list[Point]
    by_arm: Mapping[str, ArmFacts]
    searches: Sequence[Mapping[str, Any]] = ()
    artifacts: Sequence[Mapping[str, Any]] = ()
    agreements: Sequence[Agreement] = ()

    @property
    def arms(self) -> list[str]:
        return list(self.by_arm)

    @property
    def workloads(self) -> dict[str, list[Point]]:
        """Points by name and shape of their workload, in the order of the plan."""
        groups: dict[str, list[Point]] = {}
        for point in self.points:
            groups.setdefault(workload_label(point), []).append(point)
        return groups

    @property
    def title(self) -> str:
        return ", ".join(run.run_id for run in self.runs)


#: By the path of a run directory, the arms of it to tell; a run that is not in it is told whole.
Arms = Mapping[Path, Collection[str]]


def run_and_arm(spec: str) -> tuple[Path, str | None]:
    """`RUN:ARM` -> (run directory, arm); the arm is None for `RUN`, also where a directory's name has a colon."""
    path = Path(spec)
    if path.is_dir() or ":" not in spec:
        return path, None
    run, _, arm = spec.rpartition(":")
    return Path(run), arm


def read_source(*directories: RunDirectory, only: Arms | None = None) -> Source:
    """Everything that a report tells, of all arms or of some.

    Raises RunDirectoryError when something is missing or broken, ConfigError when a run is named twice or has
    no such arm.
    """
    rows = [points_of_arms(directory, (only or {}).get(directory.path, ())) for directory in directories]
    _refuse_one_run_twice(directories)
    taken = Counter(arm for own in rows for arm in arms_of(own))
    runs: list[Run] = []
    points: list[Point] = []
    by_arm: dict[str, ArmFacts] = {}
    found: list[Mapping[str, Any]] = []
    artifacts: list[Mapping[str, Any]] = []
    agreements: list[Agreement] = []
    for index, (directory, own) in enumerate(zip(directories, rows, strict=True)):
        run, arms = _read_run(directory, arms_of(own))
        runs.append(run)
        names = {arm: arm if taken[arm] == 1 else f"{arm} @ {run.run_id}" for arm in arms}
        by_arm |= {names[arm]: facts for arm, facts in arms.items()}
        told = [
            point | {"run": index, "index": k} | _names(point, names) for k, point in enumerate(own, len(points))
        ]
        points += told
        found += _entries(directory.searches_json, names)
        artifacts += _entries(directory.artifacts_json, names)
        agreements += _agreements(directory, {point["point_id"]: point["name"] for point in told})
    return Source(tuple(runs), points, by_arm, found, artifacts, agreements)


def points_of_arms(directory: RunDirectory, arms: Collection[str]) -> list[Point]:
    """The rows of these arms, or of all where none is named. Raises ConfigError for an arm that there is not."""
    points = read_points(directory)
    known = arms_of(points)
    for arm in arms:
        if arm not in known:
            problem = ConfigProblem("the run has no such arm", value=arm, allowed=", ".join(known))
            raise ConfigError(str(directory.path), problem)
    return [point for point in points if not arms or point["arm"] in arms]


def _refuse_one_run_twice(directories: Sequence[RunDirectory]) -> None:
    """A copy of a run is that run: it has nothing to stand beside."""
    seen: dict[str, RunDirectory] = {}
    for directory in directories:
        run_id = str(directory.read_manifest().get("run_id") or directory.path.name)
        if run_id in seen:
            both = f"{seen[run_id].path}, {directory.path}"
            problem = ConfigProblem("this run is named twice", value=both, way_out="name each run once")
            raise ConfigError(run_id, problem)
        seen[run_id] = directory


def arms_of(points: Iterable[Point]) -> list[str]:
    return list(dict.fromkeys(point["arm"] for point in points))


def _read_run(directory: RunDirectory, arms: Sequence[str]) -> tuple[Run, dict[str, ArmFacts]]:
    manifest = directory.read_manifest()
    lines: list[Mapping[str, Any]] = [*read_journal(directory.journal)] if directory.journal.is_file() else []
    ended = [line for line in lines if line["event"] == "run_ended"]
    limits = {line["arm"]: line.get("limits") or {} for line in lines if line["event"] == "arm_ready"}
    run = Run(
        directory=directory,
        manifest=manifest,
        status=str(ended[-1]["status"]) if ended else None,
        warnings=tuple(json_object(directory.path / MERGE_JSON).get("warnings") or ()),
        service=json_object(directory.service_json),
        probes=tuple(json_object(path) for path in sorted(directory.probes.glob("*.json"))),
    )
    settings = manifest.get("scenario", {}).get("arms") or {}
    return run, {arm: _arm_facts(run, arm, limits.get(arm, {}), settings.get(arm) or {}) for arm in arms}


def _arm_facts(run: Run, arm: str, limits: Mapping[str, Any], settings: Mapping[str, Any]) -> ArmFacts:
    folder = run.directory.arms / safe_name(arm)
    return ArmFacts(
        run=run,
        facts=json_object(folder / "facts.json"),
        gpus=json_object(folder / "gpus.json"),
        limits=limits,
        settings=settings,
        processes=json_list(folder / "process.json"),
        inventory=json_object(folder / "inventory.json"),
        gate=json_object(folder / "gate.json"),
    )


def _names(entry: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """The arm of a point, search or comparison as this report calls it, and the point's name with it."""
    arm = entry["arm"]
    if entry.get("point_id") is None:  # a search may have found no point
        return {"arm": names[arm]}
    return {"arm": names[arm], "name": names[arm] + entry["point_id"].removeprefix(arm)}


def _entries(path: Path, names: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """Those of searches.json or artifacts.json whose arm is told, with its name here; none without a file."""
    for entry in json_list(path):
        if entry["arm"] in names:
            yield {**entry, **_names(entry, names)}


def json_list(path: Path) -> list[Mapping[str, Any]]:
    """A JSON list of objects of a run; empty where there is no file. Raises RunDirectoryError."""
    if not path.is_file():
        return []
    value = read_json(path)
    if not isinstance(value, list):
        raise RunDirectoryError(f"{path}: not a list")
    return value


def _agreements(directory: RunDirectory, names: Mapping[str, str]) -> Iterator[Agreement]:
    """Of the points that have a name here; none of a run without records, as an imported one is."""
    if directory.requests_parquet.is_file():
        for one in read_agreements(directory):
            if one.point_id in names:
                yield replace(one, point_id=names[one.point_id])


def json_object(path: Path) -> Mapping[str, Any]:
    """A JSON object of a run; empty where there is no file. Raises RunDirectoryError for something else."""
    if not path.is_file():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise RunDirectoryError(f"{path}: not an object")
    return value
