"""The largest value of a launch parameter that starts: by a descending grid, or by bisection.

Runs on the target's host. What to try next is a pure function of what was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from raybench.deploy.arms import LaunchedArm, ProcessRecord, answers
from raybench.errors import TargetError
from raybench.scenario.schema import Arm

#: Ends that say nothing of memory, unless the log does.
_OTHER_REASONS = frozenset({"failed", "ended", "not_ready", "killed"})


@dataclass(frozen=True)
class Trial:
    """One launch. shortfall_mib, slack_mib: by the log. free_mib: of the fullest GPU when it was ready, by NVML.

    error: why it did not start, None when it did.
    """

    value: int
    started: bool
    load_s: float | None
    shortfall_mib: float | None
    slack_mib: float | None
    free_mib: float | None
    error: str | None


def next_of_grid(grid: Sequence[int], trials: Sequence[Trial]) -> int | None:
    """From the largest down, until one starts; None when it is known."""
    if any(trial.started for trial in trials):
        return None
    tried = {trial.value for trial in trials}
    return next((value for value in sorted(grid, reverse=True) if value not in tried), None)


def next_of_bisection(minimum: int, maximum: int, step: int, trials: Sequence[Trial]) -> int | None:
    """The maximum, the minimum, then halves of the interval between, in steps from the minimum."""
    good = max((trial.value for trial in trials if trial.started), default=None)
    bad = min((trial.value for trial in trials if not trial.started), default=None)
    if bad is None:
        return maximum if good is None else None
    if good is None:
        return minimum if bad > minimum else None
    below, above = (good - minimum) // step, -((minimum - bad) // step)  # the maximum may lie between two steps
    middle = (below + above) // 2
    return minimum + middle * step if middle > below else None


def probe(
    arm_name: str,
    arm: Arm,
    parameter: str,
    following: Callable[[Sequence[Trial]], int | None],
    folder: Path,
    base: Path,
    hold: Sequence[int] = (),
) -> Generator[Trial]:
    """Launch with one value after another; each is ended before the next, and when the iterator is closed.

    Raises TargetError when a launch fails for another reason than memory: smaller values would not help.
    """
    trials: list[Trial] = []
    while (value := following(trials)) is not None:
        trial, record = _try(arm_name, arm, parameter, value, folder / str(value), base, hold)
        if not trial.started and record.reason in _OTHER_REASONS and trial.shortfall_mib is None:
            raise TargetError(
                "probe",
                f"{parameter} {value} did not start, and nothing in its log speaks of memory: {trial.error}\n"
                "if it was memory, say how to tell by launch.memory.shortfall or launch.out_of_memory",
            )
        trials.append(trial)
        yield trial


def _try(
    arm_name: str, arm: Arm, parameter: str, value: int, folder: Path, base: Path, hold: Sequence[int]
) -> tuple[Trial, ProcessRecord]:
    assert arm.launch is not None and arm.url is not None, "only what is launched can be probed"
    folder.mkdir(parents=True, exist_ok=True)
    launch = arm.launch.with_parameter(parameter, value)
    launched = LaunchedArm(arm_name, launch, arm.url, folder, base=base, hold=hold)
    error = None
    try:
        launched.wait_ready(lambda: answers(arm))
    except TargetError as failed:
        error = failed.message
    finally:
        record = launched.stop()
    if record.gpu_held:
        raise TargetError.gpu_memory_held(arm_name, record.gpu_held)
    free = record.gpu_free_bytes_ready
    return Trial(
        value,
        error is None,
        record.load_s,
        record.shortfall_mib,
        record.slack_mib,
        None if not free else min(free.values()) / 1024**2,
        error,
    ), record
