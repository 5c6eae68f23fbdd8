"""What is done on the target's host by hand, without Ray: `raybench probe` (the largest launch parameter that
starts, shown as it is found) and `raybench restore` (the service that a run has left down).

A probe lies beside the runs; the driver takes over the newest of each arm and parameter when a run begins, so that
the run directory alone tells everything. The service in use makes room for a probe as it does for a run.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console

from raybench.deploy.keeping import Keeping, is_back
from raybench.deploy.probe import Trial, next_of_bisection, next_of_grid, probe
from raybench.errors import (
    EXIT_NOT_ALL_VALID,
    EXIT_OK,
    EXIT_SERVICE,
    EXIT_TARGET,
    ConfigError,
    ConfigProblem,
    ServiceNotBack,
    TargetError,
)
from raybench.records.rundir import RunDirectory, safe_name
from raybench.records.strict_json import read_json, write_json
from raybench.report.artifacts import trial_result, trial_table
from raybench.report.service import service_line
from raybench.report.terminal import print_blocks
from raybench.scenario.schema import Arm, Scenario
from raybench.scenario.values import parse_tokens

#: What `raybench probe` leaves in its folder, beside the runs.
PROBE_JSON = "probe.json"

#: What to try next, by what was tried.
Following = Callable[[Sequence[Trial]], int | None]


def what_to_try(grid: str | None, minimum: str | None, maximum: str | None, step: str | None) -> Following:
    """Exactly one of the two ways. Raises ConfigError."""
    interval = {"--minimum": minimum, "--maximum": maximum, "--step": step}
    if grid is not None and not any(interval.values()):
        return partial(next_of_grid, sorted({_count("--grid", text) for text in grid.split(",")}))
    if grid is None and all(interval.values()):
        low, high, width = (_count(name, str(text)) for name, text in interval.items())
        if low > high:
            raise ConfigError("options", ConfigProblem("more than --maximum", path="--minimum", value=minimum))
        return partial(next_of_bisection, low, high, width)
    raise ConfigError("options", "give either --grid, or all of --minimum, --maximum and --step")


def probe_arm(
    scenario: Scenario,
    base: Path,
    arm_name: str,
    parameter: str,
    following: Following,
    runs_dir: Path,
    console: Console,
) -> int:
    """The exit code: 0 when a value starts, 4 when none does, 1 when it was interrupted."""
    arm = _arm_to_probe(scenario, arm_name, parameter)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = runs_dir / f"probe-{scenario.name}-{safe_name(arm_name)}-{stamp}-{os.getpid()}"
    folder.mkdir(parents=True)
    trials: list[Trial] = []
    finished = False

    def keep() -> None:
        told = {"arm": arm_name, "parameter": parameter, "finished": finished}
        write_json(folder / PROBE_JSON, told | {"trials": [asdict(trial) for trial in trials]})

    with _room(scenario, base, folder, console) as hold:
        try:
            with closing(probe(arm_name, arm, parameter, following, folder, base, hold)) as tried:
                for trial in tried:
                    trials.append(trial)
                    keep()
                    console.print(f"{parameter} {trial.value:,}: {trial_result(vars(trial))}", style="dim")
            finished = True
            keep()
        except KeyboardInterrupt:
            console.print("interrupted: what was launched has been ended", style="yellow")
        best = max((trial.value for trial in trials if trial.started), default=None)
        found = f"largest {parameter} that starts: {best:,}" if best is not None else "no value starts"
        print_blocks([trial_table(parameter, [vars(trial) for trial in trials])], console)
        console.print(f"{arm_name}: {found if finished else 'not finished'}")
        console.print(f"logs: {folder}", soft_wrap=True)
    if not finished:
        return EXIT_NOT_ALL_VALID
    return EXIT_OK if best is not None else EXIT_TARGET


@contextmanager
def _room(scenario: Scenario, base: Path, folder: Path, console: Console) -> Iterator[list[int]]:
    """Files that what is launched has to hold open; the service in use is down within the block.

    Raises TargetError when it is not taken down, ServiceNotBack when it is not verified afterwards.
    """
    if scenario.service is None:
        yield []
        return
    keeping = Keeping.start(scenario.service, base, folder)
    try:
        report = keeping.wait_down()
        if report["phase"] != "down":
            raise TargetError("service", f"it was not taken down: {'; '.join(report['problems'])}")
        yield [keeping.lifeline]
    finally:
        report = keeping.bring_back()
        if not is_back(report):
            raise ServiceNotBack(service_line(report))
        console.print(service_line(report), soft_wrap=True)


def _arm_to_probe(scenario: Scenario, arm_name: str, parameter: str) -> Arm:
    """Raises ConfigError with what there is instead."""
    arm = scenario.arms.get(arm_name)
    if arm is None:
        allowed = ", ".join(scenario.arms)
        raise ConfigError("options", ConfigProblem("no such arm", path="--arm", value=arm_name, allowed=allowed))
    if arm.launch is None:
        raise ConfigError(
            "options", ConfigProblem("raybench does not launch this arm", path="--arm", value=arm_name)
        )
    if parameter not in arm.launch.parameters:
        allowed = ", ".join(arm.launch.parameters) or "none: give the launch `parameters`"
        problem = ConfigProblem("no such parameter", path="--parameter", value=parameter, allowed=allowed)
        raise ConfigError("options", problem)
    return arm


def _count(option: str, text: str) -> int:
    """`16384` or `16k`."""
    value = parse_tokens(text.strip())
    if isinstance(value, str) and value.isascii() and value.isdigit() and int(value) > 0:
        return int(value)
    if isinstance(value, int):
        return value
    raise ConfigError(
        "options", ConfigProblem("not a whole number", path=option, value=text, allowed="16384, 16k or 1m, from 1")
    )


def adopt_probes(run: RunDirectory, scenario_name: str, arms: Sequence[str]) -> None:
    """Copy the newest finished probe of each arm and parameter that lies beside the run."""
    for path in sorted(run.path.parent.glob(f"probe-{scenario_name}-*/{PROBE_JSON}"), key=_age):
        told = read_json(path)
        if isinstance(told, dict) and told.get("finished") and told.get("arm") in arms:
            run.probes.mkdir(exist_ok=True)
            name = f"{safe_name(told['arm'])}-{safe_name(told['parameter'])}.json"
            write_json(run.probes / name, {**told, "folder": path.parent.name})


def _age(path: Path) -> float:
    return path.stat().st_mtime


def restore_service(scenario: Scenario, base: Path, console: Console) -> int:
    """The exit code. Raises ConfigError when the scenario has no service."""
    if scenario.service is None:
        raise ConfigError(
            scenario.name,
            ConfigProblem("there is nothing to restore: the scenario has no service", path="service"),
        )
    with tempfile.TemporaryDirectory(prefix="raybench-") as folder:
        keeping = Keeping.start(scenario.service, base, Path(folder), only_restore=True)
        report = keeping.bring_back()
    console.print(service_line(report), soft_wrap=True)
    return EXIT_OK if report["phase"] == "verified" else EXIT_SERVICE
