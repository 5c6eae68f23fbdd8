"""What a report is made from: the merged tables, the manifest and the facts of one run directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from raybench.analysis.merge import MERGE_JSON
from raybench.errors import RunDirectoryError
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory, read_json, safe_name

Point = dict[str, Any]

#: Columns of points.parquet that hold JSON, each with what stands for "nothing".
_JSON_COLUMNS: dict[str, Any] = {
    "findings": [],
    "attempt_history": [],
    "windows": {},
    "hit_rates": {},
    "errors_by_class": {},
    "gpus": [],
}


@dataclass(frozen=True)
class Source:
    """One run, read. Arms keep the order of the plan."""

    manifest: Mapping[str, Any]
    points: list[Point]
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gpus: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    processes: Mapping[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    inventories: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    service: Mapping[str, Any] = field(default_factory=dict)
    searches: list[Mapping[str, Any]] = field(default_factory=list)
    artifacts: list[Mapping[str, Any]] = field(default_factory=list)
    gates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    probes: list[Mapping[str, Any]] = field(default_factory=list)
    status: str | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(point["arm"] for point in self.points))

    @property
    def workloads(self) -> dict[str, list[Point]]:
        """Points by workload, in the order of the plan."""
        groups: dict[str, list[Point]] = {}
        for point in self.points:
            groups.setdefault(point["workload"], []).append(point)
        return groups

    @property
    def guards(self) -> Mapping[str, Any]:
        guards: Mapping[str, Any] = self.manifest.get("scenario", {}).get("guards") or {}
        return guards


def points_rows(run: RunDirectory) -> list[Point]:
    """The rows of points.parquet in the order of the plan, JSON columns decoded.

    Raises RunDirectoryError when the run was not merged.
    """
    if not run.points_parquet.is_file():
        raise RunDirectoryError(
            f"{run.path}: has no {run.points_parquet.name}; make it with: raybench merge {run.path}"
        )
    rows: list[Point] = pq.read_table(run.points_parquet, memory_map=False).to_pylist()
    return [_decoded(row) for row in rows]


def _decoded(row: Point) -> Point:
    decoded = {
        name: json.loads(row[name]) if row.get(name) is not None else empty
        for name, empty in _JSON_COLUMNS.items()
    }
    return row | decoded


def read_source(run: RunDirectory) -> Source:
    """Everything that a report tells. Raises RunDirectoryError when something is missing or broken."""
    manifest = run.read_manifest()
    points = points_rows(run)
    arms = dict.fromkeys(point["arm"] for point in points)
    lines = read_journal(run.journal) if run.journal.is_file() else []
    ended = [line for line in lines if line["event"] == "run_ended"]
    merged = _object(run.path / MERGE_JSON)
    return Source(
        manifest=manifest,
        points=points,
        facts={arm: _object(run.arms / safe_name(arm) / "facts.json") for arm in arms},
        gpus={arm: _object(run.arms / safe_name(arm) / "gpus.json") for arm in arms},
        limits=_limits(lines),
        processes={arm: _list(run.arms / safe_name(arm) / "process.json") for arm in arms},
        inventories={arm: _object(run.arms / safe_name(arm) / "inventory.json") for arm in arms},
        service=_object(run.service_json),
        searches=_list(run.searches_json),
        artifacts=_list(run.artifacts_json),
        probes=[_object(path) for path in sorted(run.probes.glob("*.json"))],
        gates={arm: gate for arm in arms if (gate := _object(run.arms / safe_name(arm) / "gate.json"))},
        status=str(ended[-1]["status"]) if ended else None,
        warnings=list(merged.get("warnings") or []),
    )


def _limits(lines: list[dict[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """By arm, what its engine can hold, as journalled when it was last ready."""
    return {line["arm"]: line.get("limits") or {} for line in lines if line["event"] == "arm_ready"}


def _list(path: Path) -> list[Mapping[str, Any]]:
    """A JSON list; empty where there is no file."""
    if not path.is_file():
        return []
    value = read_json(path)
    if not isinstance(value, list):
        raise RunDirectoryError(f"{path}: not a list")
    return value


def _object(path: Path) -> Mapping[str, Any]:
    """A JSON object; empty where there is no file."""
    if not path.is_file():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise RunDirectoryError(f"{path}: not an object")
    return value
