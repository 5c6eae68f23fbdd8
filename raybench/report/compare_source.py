"""Run directories -> the sides of a comparison: points by arm, and the conditions they were measured under.

A side is named as `RUN` (all arms of a run) or `RUN:ARM`. Needs no Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raybench.analysis.comparison import COLD_HIT_RATE_MAX, Side, hit_rate
from raybench.analysis.conditions import Condition, differing, flat, plain
from raybench.analysis.merge import MERGE_JSON
from raybench.analysis.points import has_numbers
from raybench.errors import ConfigError, ConfigProblem
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory, safe_name
from raybench.report.points import Point
from raybench.report.source import arms_of, json_object, points_of_arms, run_and_arm

#: Parts of a scenario that shape what is measured; where its processes ran does not.
_SCENARIO_PARTS = ("guards", "load", "monitors")


@dataclass(frozen=True)
class ArmOfRun:
    """One arm as one run measured it.

    conditions: name -> value, only what is known. of_workloads: the same of each workload's own settings.
    """

    run: str
    arm: str
    points: tuple[Point, ...]
    conditions: Mapping[str, str]
    of_workloads: Mapping[str, Mapping[str, str]]


def read_side(spec: str) -> list[ArmOfRun]:
    """The arms of `RUN` or the one of `RUN:ARM`, in the order of the plan.

    Raises RunDirectoryError for what is no merged run, ConfigError for an arm that it does not have.
    """
    path, arm = run_and_arm(spec)
    run = RunDirectory(path)
    points = points_of_arms(run, () if arm is None else (arm,))
    return [_arm_of_run(run, name, points) for name in arms_of(points)]


def _arm_of_run(run: RunDirectory, arm: str, points: Sequence[Point]) -> ArmOfRun:
    own = tuple(point for point in points if point["arm"] == arm)
    manifest = run.read_manifest()
    conditions = dict(_of_run(run, manifest)) | dict(_of_scenario(manifest, arm)) | dict(_of_engine(run, arm))
    conditions |= dict(_of_points(own))
    workloads = (manifest.get("scenario") or {}).get("workloads") or []
    settings = {workload["name"]: dict(_of_workload(workload)) for workload in workloads}
    return ArmOfRun(str(run.path), arm, own, conditions, settings)


def _of_workload(workload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    told = {name: value for name, value in workload.items() if name not in ("name", "concurrency", "arms")}
    yield from flat(told, f"workload {workload['name']}")


def differing_conditions(a: ArmOfRun, b: ArmOfRun) -> list[Condition]:
    """What differs between two arms; of workloads only those that both measured."""
    common = [name for name in a.of_workloads if name in b.of_workloads]
    return differing(_with_workloads(a, common), _with_workloads(b, common))


def _with_workloads(one: ArmOfRun, workloads: Sequence[str]) -> dict[str, str]:
    conditions = dict(one.conditions)
    for workload in workloads:
        conditions |= one.of_workloads[workload]
    return conditions


def _of_run(run: RunDirectory, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    imported = manifest.get("imported")
    yield "provenance", "measured by raybench" if imported is None else f"imported: {imported['source']}"
    if imported is not None:
        yield from flat(imported["conditions"])
        return
    if "raybench_version" in manifest:
        yield "raybench_version", manifest["raybench_version"]
    merged = json_object(run.path / MERGE_JSON)
    yield from ((name, merged[name]) for name in ("percentile_method", "merged_by_version") if name in merged)
    corpus = manifest.get("corpus") or {}
    if corpus.get("sha256"):
        yield "corpus", f"{corpus.get('name', '')} sha256 {corpus['sha256'][:12]}".strip()
    lines = read_journal(run.journal) if run.journal.is_file() else []
    fleets = [line for line in lines if line["event"] == "fleet_ready"]
    if fleets:
        clients, workers = fleets[-1].get("clients"), fleets[-1].get("workers")
        yield "client_hosts", str(len(clients) if isinstance(clients, list) else clients)
        yield "load_workers", str(len(workers) if isinstance(workers, list) else workers)


def _of_scenario(manifest: Mapping[str, Any], arm: str) -> Iterator[tuple[str, str]]:
    scenario = manifest.get("scenario")
    if not isinstance(scenario, Mapping):
        return
    guards = scenario.get("guards") or {}
    if "flush" in guards:
        yield "cache_flush", plain(guards["flush"])
    for part in _SCENARIO_PARTS:
        yield from flat(scenario.get(part) or {}, part)
    yield from flat((scenario.get("arms") or {}).get(arm) or {}, "arm")


def _of_engine(run: RunDirectory, arm: str) -> Iterator[tuple[str, str]]:
    folder = run.arms / safe_name(arm)
    facts = json_object(folder / "facts.json")
    yield from flat({name: value for name, value in facts.items() if name != "raw"})
    yield from flat(facts.get("raw") or {})
    devices = [
        f"{device.get('name') or 'GPU'}, driver {device.get('driver_version') or 'unknown'}"
        for host in json_object(folder / "gpus.json").values()
        for device in (host.get("devices") or [] if isinstance(host, Mapping) else [])
    ]
    if devices:
        yield "gpus", "; ".join(f"{devices.count(kind)} x {kind}" for kind in dict.fromkeys(devices))


def _of_points(points: Sequence[Point]) -> Iterator[tuple[str, str]]:
    rates = [rate for point in points if has_numbers(point) and (rate := hit_rate(point)) is not None]
    if rates:
        highest = max(rates)
        yield "cache_state", "cold" if highest <= COLD_HIT_RATE_MAX else f"not cold (hit rate up to {highest:.4f})"


@dataclass(frozen=True)
class Pair:
    """Two arms that are held against each other, each with its runs (the first, then its repeats)."""

    a: tuple[ArmOfRun, ...]
    b: tuple[ArmOfRun, ...]

    @property
    def sides(self) -> tuple[Side, Side]:
        first, second = self.a[0].arm, self.b[0].arm
        same = first == second
        names = ("A", "B") if same else (first, second)
        return (
            Side(names[0], tuple(one.points for one in self.a)),
            Side(names[1], tuple(one.points for one in self.b)),
        )


def pair_arms(a: Sequence[str], b: Sequence[str]) -> tuple[list[Pair], list[str], list[str]]:
    """Pairs of arms of the sides named by `a` and `b` (each: a run, then repeats of it), and the arms of
    each side that have no counterpart.

    One arm on each side makes a pair whatever their names are; several meet by name.
    Raises ConfigError when nothing meets.
    """
    runs_a, runs_b = [read_side(spec) for spec in a], [read_side(spec) for spec in b]
    if len(runs_a[0]) == len(runs_b[0]) == 1:
        return [Pair(_repeats(runs_a, runs_a[0][0].arm, a), _repeats(runs_b, runs_b[0][0].arm, b))], [], []
    names_a, names_b = [one.arm for one in runs_a[0]], [one.arm for one in runs_b[0]]
    common = [arm for arm in names_a if arm in names_b]
    if not common:
        raise ConfigError(
            "options",
            ConfigProblem(
                f"no arm is on both sides: {', '.join(names_a)} | {', '.join(names_b)}",
                way_out="name one of each, as RUN:ARM",
            ),
        )
    pairs = [Pair(_repeats(runs_a, arm, a), _repeats(runs_b, arm, b)) for arm in common]
    return pairs, [arm for arm in names_a if arm not in common], [arm for arm in names_b if arm not in common]


def _repeats(runs: Sequence[Sequence[ArmOfRun]], arm: str, specs: Sequence[str]) -> tuple[ArmOfRun, ...]:
    found = []
    for spec, arms in zip(specs, runs, strict=True):
        own = [one for one in arms if one.arm == arm]
        if not own:
            has = ", ".join(one.arm for one in arms)
            raise ConfigError(spec, ConfigProblem("a repeat without the arm", value=arm, allowed=has))
        found += own
    return tuple(found)
