"""`raybench restore`: bring back a service that a run has left down. Runs on the target's host, without Ray."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console

from raybench.deploy.keeping import Keeping
from raybench.errors import EXIT_OK, EXIT_SERVICE, ConfigError, ConfigProblem
from raybench.report.service import service_line
from raybench.scenario.schema import Scenario


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
    console.print(service_line(report), highlight=False, markup=False, soft_wrap=True)
    return EXIT_OK if report["phase"] == "verified" else EXIT_SERVICE
