"""The coordinator as an actor: builds the fleet, holds the desk, runs `protocol.coordinator`.

One actor a run, on the driver's node, in the namespace `raybench` under a name that carries the run
id. It dies with its driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

from raybench.cluster.calls import RemoteDesk, live_nodes
from raybench.cluster.capacity import most_streams, refuse_what_hosts_cannot
from raybench.cluster.fleet import RayFleet
from raybench.cluster.inputs import Inputs, refuse_changed
from raybench.cluster.layout import lay_out, seat_workers
from raybench.cluster.target_host import RayTargetHost
from raybench.errors import RaybenchError, RunDirectoryError
from raybench.load.http import ControlClient
from raybench.load.order import OrderKey
from raybench.protocol.client_checks import asked_by_host, expected_load, points_to_come
from raybench.protocol.context import RunContext
from raybench.protocol.coordinator import Coordinator
from raybench.protocol.desk import OrderDesk
from raybench.protocol.evidence import strike_damaged
from raybench.protocol.invocation import Earlier, Outcome
from raybench.protocol.progress import Snapshot
from raybench.records.clock import AnchoredClock
from raybench.records.journal import Journal, read_journal
from raybench.records.parts import PartFiles
from raybench.records.roofline import Roofline, stored_rooflines
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import write_json
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Scenario

#: Appended record bytes reach the disk at least this often.
SYNC_S = 1.0


class CoordinatorActor:
    """`base`: the folder that the scenario's relative paths start at. Run directory and manifest exist."""

    def __init__(self, scenario: Scenario, run_id: str, run_path: str, base: str) -> None:
        self._scenario = scenario
        self._run_id = run_id
        self._base = Path(base)
        self._clock = AnchoredClock()
        self._run_directory = RunDirectory(Path(run_path))
        self._files = PartFiles(self._run_directory.path)
        self._desk = OrderDesk(self._run_directory, self._files, self._clock)
        self._coordinator: Coordinator | None = None
        self._task: asyncio.Task[Outcome] | None = None
        self._notes: list[str] = []
        self._unwritten: RunDirectoryError | None = None

    async def describe(self) -> dict[str, object]:
        """Whose this actor is, by which `claims.remove_leftovers` knows that it is no leftover."""
        return {"run_id": self._run_id}

    async def run(self) -> Outcome | RaybenchError:
        """The whole run. What raybench explains to its user is returned, since an exception would come
        out of Ray in other clothes."""
        self._task = asyncio.ensure_future(self._build_and_run())
        syncer = asyncio.ensure_future(self._sync_for_ever())
        ended: Outcome | RaybenchError
        try:
            ended = await self._task
        except RaybenchError as error:
            ended = error
        finally:
            syncer.cancel()
        try:
            self._files.close_all()
        except RunDirectoryError as error:
            return self._unwritten or error
        return self._unwritten or ended

    async def stop(self) -> None:
        """Give the run up: what is in flight is closed and recorded, arms are stopped."""
        self._desk.stop_leasing()
        if self._task is not None:
            self._task.cancel()

    async def snapshot(self) -> Snapshot | None:
        return None if self._coordinator is None else self._coordinator.progress.snapshot()

    async def notes(self) -> list[str]:
        """What to tell the user of the fleet; complete once there is a snapshot."""
        return self._notes

    async def lease(self, worker: str, key: OrderKey, free_slots: int, settled: int) -> list[int]:
        return await self._desk.lease(worker, key, free_slots, settled)

    async def append(self, worker: str, key: OrderKey, kind: str, data: bytes) -> None:
        await self._kept(self._desk.append(worker, key, kind, data))

    async def heartbeat(self, worker: str, in_flight: int, completed: int, output_tokens: int) -> None:
        await self._desk.heartbeat(worker, in_flight, completed, output_tokens)

    async def append_part(self, relative_path: str, data: bytes) -> None:
        await self._kept(self._desk.append_part(relative_path, data))

    async def close_part(self, relative_path: str) -> None:
        await self._kept(self._desk.close_part(relative_path))

    async def _build_and_run(self) -> Outcome:
        run = self._run_directory
        journal = Journal(run.journal, self._clock)
        try:
            await asyncio.to_thread(strike_damaged, run, journal)
            earlier = Earlier.of(read_journal(run.journal))
            inputs = await asyncio.to_thread(Inputs.read, self._scenario, self._base)
            fleet, host, rooflines = await self._make_fleet(inputs, journal)
            context = RunContext(
                scenario=self._scenario,
                run_id=self._run_id,
                corpus=inputs.corpus,
                traces=inputs.traces,
                prompt_sets=inputs.prompt_sets,
                rooflines=rooflines,
                fleet=fleet,
                host=host,
                make_control=lambda endpoint, key: ControlClient(endpoint, admin_api_key_env=key),
                run=run,
                journal=journal,
                files=self._files,
                desk=self._desk,
                ledger_dir=run.path.parent / ".ledger",
                clock=self._clock,
            )
            self._coordinator = Coordinator(context, earlier)
            return await self._coordinator.run()
        except RaybenchError as error:
            with suppress(RunDirectoryError):  # a full disk has said so itself
                journal.append("run_failed", error=str(error), kind=type(error).__name__)
            raise
        finally:
            journal.close()

    async def _make_fleet(
        self, inputs: Inputs, journal: Journal
    ) -> tuple[RayFleet, RayTargetHost, Mapping[str, Roofline]]:
        """Workers and the target's host, all of them heard from, and what is known of the hosts of the workers."""
        scenario, run, load = self._scenario, self._run_directory, self._scenario.load
        context = ray.get_runtime_context()
        desk, timeout_s = RemoteDesk(context.current_actor), scenario.placement.start_timeout_s
        layout = lay_out(live_nodes(), context.get_node_id(), scenario.placement, load)
        seats = seat_workers(layout.clients, load.workers_per_node, most_streams(scenario))
        pulse, sources = self._desk.last_pulse_ns, load.source_addresses
        fleet = RayFleet(seats, desk, inputs.rendered, self._clock, timeout_s, pulse, sources)
        host = RayTargetHost(layout, desk, run, self._clock, scenario, self._base)
        workers: list[dict[str, Any]] = await fleet.start()
        target: dict[str, Any] = await host.start(timeout_s)
        refuse_what_hosts_cannot(scenario, workers)
        await asyncio.to_thread(self._note_inputs, inputs, [*workers, target])
        rooflines = stored_rooflines(run.path.parent, {str(hello["host"]) for hello in workers})
        asked = asked_by_host(points_to_come(make_plan(scenario)), [str(hello["host"]) for hello in workers])
        self._notes = [*layout.notes, *expected_load(asked, rooflines)]
        journal.append(
            "fleet_ready",
            workers=[_without_facts(hello) for hello in workers],
            target_host=_without_facts(target),
            clients=[node.title for node in layout.clients],
            notes=self._notes,
        )
        return fleet, host, rooflines

    def _note_inputs(self, inputs: Inputs, hellos: list[dict[str, Any]]) -> None:
        """Put into the manifest what the run really works with, and each host once."""
        manifest = self._run_directory.read_manifest()
        told = inputs.told(self._scenario, self._base)
        refuse_changed(manifest, told)
        hosts = {str(hello["host"]): hello["facts"] for hello in hellos}
        write_json(self._run_directory.manifest, {**manifest, **told, "hosts": hosts})

    async def _sync_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            await self._kept(asyncio.to_thread(self._files.sync))

    async def _kept(self, write: Awaitable[None]) -> None:
        """Records that cannot be kept are worth no load: the run ends, and says why. Whoever wrote is told
        nothing, since it could only die of it, and would be taken for lost."""
        try:
            await write
        except RunDirectoryError as error:
            if self._unwritten is None:
                self._unwritten = error
                await self.stop()


def _without_facts(hello: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in hello.items() if key != "facts"}
