"""What probes of launch parameters found: the table of the command, the table of a report, and how they get there.

The driver takes over the newest probe of each arm and parameter when a run begins, so that the run directory alone
tells everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raybench.records.rundir import RunDirectory, safe_name
from raybench.records.strict_json import read_json, write_json
from raybench.report import numbers
from raybench.report.document import Row, Table

#: What `raybench probe` leaves in its folder, beside the runs.
PROBE_JSON = "probe.json"

#: The fields of a `deploy.probe.Trial`.
Trial = Mapping[str, Any]


def adopt_probes(run: RunDirectory, scenario_name: str, arms: Sequence[str]) -> None:
    """Copy the newest finished probe of each arm and parameter that lies beside the run."""
    for path in sorted(run.path.parent.glob(f"probe-{scenario_name}-*/{PROBE_JSON}"), key=_age):
        told = read_json(path)
        if isinstance(told, dict) and told.get("arm") in arms:
            run.probes.mkdir(exist_ok=True)
            name = f"{safe_name(told['arm'])}-{safe_name(told['parameter'])}.json"
            write_json(run.probes / name, {**told, "folder": path.parent.name})


def _age(path: Path) -> float:
    return path.stat().st_mtime


def probe_table(probe: Mapping[str, Any]) -> Table:
    """As in the field reports: each value, and what was short or spare."""
    rows = [Row((numbers.count(trial["value"]), result(trial))) for trial in probe["trials"]]
    return Table((probe["parameter"], probe["arm"]), rows, right=frozenset({0}))


def trial_table(parameter: str, trials: Sequence[Trial]) -> Table:
    """In the order of the trials, with how long each took to start and what it left free."""
    rows = [
        Row(
            (
                numbers.count(trial["value"]),
                numbers.seconds(trial["load_s"]),
                numbers.mib(trial["free_mib"]),
                result(trial),
            )
        )
        for trial in trials
    ]
    return Table((parameter, "Load", "GPU free", "Result"), rows, right=frozenset({0, 1, 2}))


def result(trial: Trial) -> str:
    """`starts, slack 5.1 MiB` or `712.0 MiB short`."""
    if trial["started"]:
        return "starts" + (f", slack {numbers.mib(trial['slack_mib'])}" if trial["slack_mib"] is not None else "")
    if trial["shortfall_mib"] is not None:
        return f"{numbers.mib(trial['shortfall_mib'])} short"
    return str(trial["error"]).splitlines()[0]
