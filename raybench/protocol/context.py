"""What everything that belongs to one run works with; made where the run is driven from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raybench.corpus.prompts import Prompt
from raybench.corpus.tokens import TokenCorpus
from raybench.engines.contract import Http
from raybench.load.order import Endpoint
from raybench.protocol.desk import OrderDesk
from raybench.protocol.fleet import LoadFleet, TargetHost
from raybench.protocol.target import Sleep
from raybench.records.clock import Clock
from raybench.records.journal import Journal
from raybench.records.parts import PartFiles
from raybench.records.roofline import Roofline
from raybench.records.rundir import RunDirectory
from raybench.scenario.schema import Scenario
from raybench.scenario.trace import Trace


class Control(Http, Protocol):
    """Control calls over connections of its own."""

    async def close(self) -> None: ...


#: For an endpoint, and the environment variable that holds the key of its control calls.
MakeControl = Callable[[Endpoint, str | None], Control]


@dataclass(frozen=True)
class RunContext:
    """One invocation of a run: what is to be measured, by what means, and where it is kept.

    corpus: None if every workload is a prompt set. traces, prompt_sets: by workload, of those that have one.
    rooflines: by client host, as far as they were ever measured. ledger_dir: of the ledgers that runs share.
    """

    scenario: Scenario
    run_id: str
    corpus: TokenCorpus | None
    traces: Mapping[str, Trace]
    prompt_sets: Mapping[str, tuple[Prompt, ...]]
    rooflines: Mapping[str, Roofline]
    fleet: LoadFleet
    host: TargetHost
    make_control: MakeControl
    run: RunDirectory
    journal: Journal
    files: PartFiles
    desk: OrderDesk
    ledger_dir: Path
    clock: Clock
    sleep: Sleep = asyncio.sleep
