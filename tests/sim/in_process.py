"""A whole run in one process: the real coordinator, workers, log reader and simulated servers, without Ray.

What `cluster/` does with actors is done here with plain calls, so that many runs with many kinds of lies take
seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raybench.corpus.rendered import render_ids
from raybench.corpus.tokens import TokenCorpus, load_corpus
from raybench.engines import ENGINES
from raybench.load.http import ControlClient
from raybench.load.leases import Recall, Returned
from raybench.load.order import Order, OrderKey
from raybench.load.worker import LoadWorker
from raybench.monitors.server_log import LogTail, LogWatch
from raybench.protocol.context import RunContext
from raybench.protocol.coordinator import Coordinator
from raybench.protocol.desk import OrderDesk
from raybench.protocol.fleet import COORDINATOR, FleetResult, GpuState, LogReading, ServiceReport
from raybench.protocol.invocation import Earlier, Outcome
from raybench.records.clock import AnchoredClock, ClockAnchor, ClockOffset
from raybench.records.journal import Journal, read_journal
from raybench.records.parts import PartFiles
from raybench.records.roofline import Roofline
from raybench.records.rundir import RunDirectory
from raybench.records.stream import part_metadata
from raybench.records.strict_json import write_json
from raybench.scenario.schema import Arm, Scenario, Service
from raybench.sim.faults import Preload
from raybench.sim.server import serving

#: What the host of the workers is said to carry: far more than any run here sends.
ROOMY = Roofline("host", "wire", 64, 32, 25.0, 10**6, "local ports", 1e9, "node CPU", 0.0, "test", 0, ())
RUN_ID = "lies-20260101-000000-0badcafe"


class UnknownHealth:
    """Client, server and other runs share this process: its CPU share tells nothing of one client."""

    async def watch(self, unread: Callable[[], list[int]]) -> None:
        await asyncio.Event().wait()

    def started(self, late_ns: int) -> None:
        pass

    def row(self, **of_order: object) -> dict[str, object]:
        return {}


class PlainFleet:
    """`protocol.fleet.LoadFleet` over workers of this process."""

    def __init__(self, corpus: TokenCorpus, desk: OrderDesk, clock: AnchoredClock, workers: int) -> None:
        text = {"ids": render_ids(corpus.ids)}
        self._desk, self._clock = desk, clock
        self._members = {
            f"w{number:03d}": LoadWorker(f"w{number:03d}", text, clock, UnknownHealth) for number in range(workers)
        }

    @property
    def workers(self) -> list[str]:
        return list(self._members)

    async def renew(self) -> list[str]:
        return []

    async def offsets(self) -> dict[str, ClockOffset]:
        return dict.fromkeys(self._members, ClockOffset(0, 0))

    async def execute(
        self, orders: Mapping[str, Order], offsets: Mapping[str, ClockOffset], start_lead_s: float
    ) -> FleetResult:
        for name, order in orders.items():
            await self._members[name].arm(order)
        start = self._clock.unix_ns() + int(start_lead_s * 1e9)
        runs = [self._members[name].run(self._desk, start, offsets[name]) for name in orders]
        summaries = await asyncio.gather(*runs)
        return FleetResult(start, self._clock.unix_ns(), tuple(summaries))

    async def recall(self, worker: str, key: OrderKey, recall: Recall) -> Returned | None:
        return await self._members[worker].recall(key, recall)

    async def cancel(self) -> None:
        for member in self._members.values():
            await member.cancel()


class PlainHost:
    """`protocol.fleet.TargetHost` over simulated servers of this process."""

    def __init__(self, run: RunDirectory, desk: OrderDesk, clock: AnchoredClock, preload: Preload) -> None:
        self._run, self._desk, self._clock, self._preload = run, desk, clock, preload
        self._servers = AsyncExitStack()
        self._watch: LogWatch | None = None

    async def take_inventory(self, arm_name: str, arm: Arm) -> None:
        """Nothing: what the servers are made of is in this process."""

    async def take_service_down(self, service: Service) -> ServiceReport:
        raise AssertionError("the runs here have no service")

    async def bring_service_back(self) -> ServiceReport:
        raise AssertionError("the runs here have no service")

    async def read_from(self, arm_name: str, path: str, offset: int, size: int) -> bytes:
        raise AssertionError("the runs here have no request log")

    async def launch(self, arm_name: str, arm: Arm) -> tuple[str, float | None]:
        assert arm.sim is not None
        log = self._servers.enter_context(self._log_path(arm_name).open("a"))
        return await self._servers.enter_async_context(serving(arm.sim, preload=self._preload, log=log)), None

    async def stop(self, arm_name: str) -> Mapping[str, object] | None:
        await self._servers.aclose()
        return None

    async def watch_log(self, arm_name: str, arm: Arm) -> LogReading:
        part = self._run.relative(self._run.next_server_log_part(arm_name))
        tail = LogTail(self._log_path(arm_name), ENGINES[arm.engine].read_log_line, self._clock, arm_name)
        metadata = part_metadata("server_log", ClockAnchor.now(self._clock), arm=arm_name)
        self._watch = LogWatch(tail, part, metadata, self._desk.append_part, self._desk.close_part)
        reason = await self._watch.start()
        return LogReading(part) if reason is None else LogReading(reason=reason)

    async def log_position(self) -> int | None:
        return None if self._watch is None else await self._watch.mark()

    async def unwatch_log(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.stop()

    async def watch_gpus(self, arm_name: str, source: str, url: str, interval_s: float) -> str | None:
        raise AssertionError("the runs here have no GPU monitor")

    async def gpu_state(self, since_unix_ns: int) -> GpuState:
        return GpuState()

    async def clocks(self) -> dict[str, ClockOffset]:
        return {COORDINATOR: ClockOffset(0, 0)}

    async def watch_links(self) -> None:
        """Nothing: there is no link between two parts of one process."""

    async def link_changes(self) -> int | None:
        return None

    async def unwatch_gpus(self) -> None:
        raise AssertionError("the runs here have no GPU monitor")

    def _log_path(self, arm_name: str) -> Path:
        return self._run.arm(arm_name) / "engine.log"


@dataclass(frozen=True)
class Played:
    """What a run left behind."""

    outcome: Outcome
    run: RunDirectory
    journal: list[dict[str, Any]]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.journal if event["event"] == name]

    def verdicts(self) -> list[str]:
        """How each point was committed."""
        return [event["verdict"] for event in self.events("point_committed")]

    def findings(self) -> dict[str, tuple[str, str]]:
        """code -> (severity, message) over all attempts of the run, the gravest of each code."""
        found: dict[str, tuple[str, str]] = {}
        for event in self.events("verdict"):
            for finding in event["findings"]:
                told = (finding["severity"], finding["message"])
                if finding["code"] not in found or told[0] == "void":
                    found[finding["code"]] = told
        return found


async def play(scenario: Scenario, path: Path, *, held_windows: int | None = None, workers: int = 2) -> Played:
    """Carry a scenario out. held_windows: so many that come first the fault `preload_corpus` holds; None = all."""
    clock = AnchoredClock(host="host")
    run = RunDirectory(path / "run")
    run.create()
    write_json(run.manifest, {"run_id": RUN_ID})
    corpus = load_corpus(scenario.corpus, path)
    files = PartFiles(run.path)
    desk = OrderDesk(run, files, clock)
    journal = Journal(run.journal, clock)
    context = RunContext(
        scenario=scenario,
        run_id=RUN_ID,
        corpus=corpus,
        traces={},
        prompt_sets={},
        rooflines={ROOMY.host: ROOMY},
        fleet=PlainFleet(corpus, desk, clock, workers),
        host=PlainHost(run, desk, clock, Preload(corpus.ids, held_windows)),
        make_control=lambda endpoint, key: ControlClient(endpoint, admin_api_key_env=key),
        run=run,
        journal=journal,
        files=files,
        desk=desk,
        ledger_dir=path / ".ledger",
        clock=clock,
    )
    coordinator = Coordinator(context, Earlier())
    try:
        outcome = await coordinator.run()
    finally:
        files.close_all()
        journal.close()
    return Played(outcome, run, read_journal(run.journal))
