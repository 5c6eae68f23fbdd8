"""`--simulate`: a scenario as it is rehearsed here, with a stand-in for its service while it runs.

Runs on the user's machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raybench.corpus.windows import corpus_need
from raybench.deploy.stand_in import service_stand_in
from raybench.scenario.rehearsal import rehearse
from raybench.scenario.schema import Scenario, Service


def rehearsed(scenario: Scenario, base: Path, compression: float, service: Service | None) -> Scenario:
    """The scenario that is measured instead. base: the folder that its relative paths start at."""

    def exists(path: str) -> bool:
        return (base / Path(path).expanduser()).exists()

    return rehearse(scenario, compression, service, exists, corpus_need)


@contextmanager
def staged(scenario: Scenario, base: Path, compression: float | None) -> Iterator[Scenario]:
    """What to run within the block: the scenario itself, or its rehearsal where a compression is given."""
    if compression is None:
        yield scenario
    elif scenario.service is None:
        yield rehearsed(scenario, base, compression, None)
    else:
        with service_stand_in(scenario.service) as service:
            yield rehearsed(scenario, base, compression, service)
