"""Probes of a scenario's arms in the report of its run: the newest of each arm and parameter, copied into the run.

The driver takes them over when a run begins, so that the run directory alone tells everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raybench.records.rundir import RunDirectory, read_json, safe_name, write_json
from raybench.report import numbers
from raybench.report.document import Row, Table
from raybench.report.trials import result

#: What `raybench probe` leaves in its folder, beside the runs.
PROBE_JSON = "probe.json"


def adopt_probes(run: RunDirectory, scenario_name: str, arms: Sequence[str]) -> None:
    """Copy the newest finished probe of each arm and parameter that lies beside the run."""
    for path in sorted(run.path.parent.glob(f"probe-{scenario_name}-*/{PROBE_JSON}"), key=_age):
        told = read_json(path)
        if isinstance(told, dict) and told.get("arm") in arms:
            run.probes.mkdir(exist_ok=True)
            name = f"{safe_name(told['arm'])}-{safe_name(told['parameter'])}.json"
            write_json(run.probes / name, {**told, "folder": path.parent.name})


def probe_table(probe: Mapping[str, Any]) -> Table:
    """As in the field reports: each value, and what was short or spare."""
    rows = [Row((numbers.count(trial["value"]), result(trial))) for trial in probe["trials"]]
    return Table((probe["parameter"], probe["arm"]), rows, right=frozenset({0}))


def _age(path: Path) -> float:
    return path.stat().st_mtime
