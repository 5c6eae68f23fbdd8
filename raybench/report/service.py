"""Where the service in use stands after a run, in one line that nobody overlooks.

Runs on the user's machine; where the keeper is at work on the same one, it is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from raybench.deploy.keeping import is_back, last_report
from raybench.records.rundir import RunDirectory

if TYPE_CHECKING:
    from rich.console import Console


def service_line(report: Mapping[str, Any]) -> str:
    """report: what the keeper told last (`service.json`)."""
    where, problems = report.get("service", "the service"), "; ".join(report["problems"])
    if report["phase"] == "verified":
        again = " (an earlier run had left it down)" if report.get("recovered") else ""
        return f"service {where}: back and verified{again}"
    if report["phase"] == "refused":
        return f"service {where}: not touched: {problems}"
    if report["phase"] == "not_verified":
        return f"SERVICE NOT VERIFIED: {where}: {problems}. LOOK AFTER IT NOW, or run `raybench restore SCENARIO`"
    keeper = f"its keeper, process {report.get('pid')} on {report.get('host')}, was {report['phase']}"
    return f"SERVICE NOT YET BACK: {where}: {keeper} when this was written"


def service_of(run: RunDirectory, on_phase: Callable[[str], None]) -> dict[str, Any] | None:
    """The last word of the run's keeper, waited for where it is at work on this host; None without a service."""
    return last_report(run.service_json, on_phase) if run.service_json.exists() else None


def say_service(run: RunDirectory, console: Console) -> bool:
    """Say at the very end how the service in use is; whether it is as it was."""

    def wait(phase: str) -> None:
        console.print(f"service: {phase.replace('_', ' ')}", style="dim")

    report = service_of(run, wait)
    if report is None:
        return True
    well = is_back(report)
    style = "green" if well else "bold red"
    console.print(service_line(report), style=style, soft_wrap=True)
    return well
