"""The table of a probe, as the field reports have it: value, result with what was short or spare, load time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from raybench.deploy.probe import Trial

UNKNOWN = "—"


def trial_table(parameter: str, trials: Sequence[Trial]) -> Table:
    """In the order of the trials."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in (parameter, "Load", "GPU free"):
        table.add_column(column, justify="right")
    table.add_column("Result", overflow="fold")
    for trial in trials:
        load = UNKNOWN if trial.load_s is None else f"{trial.load_s:,.1f} s"
        table.add_row(f"{trial.value:,}", load, _mib(trial.free_mib), result(vars(trial)))
    return table


def result(trial: Mapping[str, Any]) -> str:
    """`starts, slack 5.1 MiB` or `712.0 MiB short`, of the fields of a trial."""
    if trial["started"]:
        return "starts" + (f", slack {_mib(trial['slack_mib'])}" if trial["slack_mib"] is not None else "")
    if trial["shortfall_mib"] is not None:
        return f"{_mib(trial['shortfall_mib'])} short"
    return str(trial["error"]).splitlines()[0]


def _mib(size: float | None) -> str:
    return UNKNOWN if size is None else f"{size:,.1f} MiB"
