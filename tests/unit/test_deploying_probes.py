"""Probes that lie beside a new run become a part of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from raybench.deploying import PROBE_JSON, adopt_probes
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import read_json, write_json
from raybench.report.artifacts import probe_table


def trial(value: int, shortfall_mib: float | None) -> dict[str, Any]:
    known = {"load_s": None, "free_mib": None, "error": None if shortfall_mib is None else "short"}
    slack_mib = 5.1 if shortfall_mib is None else None
    return {
        "value": value,
        "started": shortfall_mib is None,
        "shortfall_mib": shortfall_mib,
        "slack_mib": slack_mib,
        **known,
    }


def left(folder: Path, arm: str, at: float, *trials: dict[str, Any], finished: bool = True) -> None:
    folder.mkdir(parents=True)
    told = {"arm": arm, "parameter": "max_context", "finished": finished, "trials": list(trials)}
    write_json(folder / PROBE_JSON, told)
    os.utime(folder / PROBE_JSON, (at, at))


def test_the_newest_probe_of_each_arm_of_this_scenario_is_taken_over(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    left(tmp_path / "probe-mine-D-1", "D", 100, trial(8, 712.0))
    left(tmp_path / "probe-mine-D-2", "D", 50, trial(9, 900.0))
    left(tmp_path / "probe-mine-E-1", "E", 100, trial(8, None))
    left(tmp_path / "probe-other-D-1", "D", 200, trial(8, None))
    adopt_probes(run, "mine", ["D"])
    (path,) = run.probes.iterdir()
    assert read_json(path)["folder"] == "probe-mine-D-1"


def test_a_probe_that_was_interrupted_hides_no_finished_one(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    left(tmp_path / "probe-mine-D-1", "D", 50, trial(9, 900.0), trial(8, None))
    left(tmp_path / "probe-mine-D-2", "D", 100, trial(9, 900.0), finished=False)
    adopt_probes(run, "mine", ["D"])
    (path,) = run.probes.iterdir()
    assert read_json(path)["folder"] == "probe-mine-D-1"


def test_a_run_without_probes_gets_no_folder(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    adopt_probes(run, "mine", ["D"])
    assert not run.probes.exists()


def test_the_table_says_what_was_short_or_spare_as_the_second_seed() -> None:
    probe = {"arm": "D", "parameter": "max_context", "trials": [trial(163840, 169.0), trial(155648, None)]}
    table = probe_table(probe)
    assert table.columns == ("max_context", "D")
    cells = [row.cells for row in table.rows]
    assert cells == [("163,840", "169.0 MiB short"), ("155,648", "starts, slack 5.1 MiB")]
