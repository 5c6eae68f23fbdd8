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

from raybench.cluster.calls import live_nodes
from raybench.cluster.capacity import most_streams, refuse_what_hosts_cannot
from raybench.cluster.fleet import RayFleet, RayTargetHost
from raybench.cluster.layout import lay_out, seat_workers
from raybench.corpus.prompts import Prompt, digests, read_prompt_sets
from raybench.corpus.rendered import Rendered, render_ids
from raybench.corpus.tokens import TokenCorpus, load_corpus
from raybench.deploy.ledger import digest_input
from raybench.engines import ENGINES
from raybench.engines.contract import Http, RequestShape
from raybench.errors import ConfigError, ConfigProblem, RaybenchError, RunDirectoryError
from raybench.load.http import ControlClient
from raybench.load.order import Endpoint, OrderKey
from raybench.protocol.client_checks import asked_by_host, expected_load, points_to_come
from raybench.protocol.coordinator import Coordinator
from raybench.protocol.desk import OrderDesk
from raybench.protocol.evidence import strike_damaged
from raybench.protocol.invocation import History, Outcome
from raybench.protocol.progress import Snapshot
from raybench.records.clock import AnchoredClock
from raybench.records.journal import Journal, read_journal
from raybench.records.parts import PartFiles
from raybench.records.roofline import stored_rooflines
from raybench.records.rundir import RunDirectory, write_json
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Scenario
from raybench.scenario.trace import read_traces

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
        scenario, run = self._scenario, self._run_directory
        journal = Journal(run.journal, self._clock)
        try:
            await asyncio.to_thread(strike_damaged, run, journal)
            history = History.of(read_journal(run.journal))
            corpus = None
            if scenario.corpus is not None:
                corpus = await asyncio.to_thread(load_corpus, scenario.corpus, self._base)
            prompt_sets = await asyncio.to_thread(read_prompt_sets, scenario, self._base)
            prompts = await asyncio.to_thread(prompts_for, scenario, corpus)
            traces = await asyncio.to_thread(read_traces, scenario, self._base)
            context = ray.get_runtime_context()
            layout = lay_out(live_nodes(), context.get_node_id(), scenario.placement, scenario.load)
            me, timeout_s = context.current_actor, scenario.placement.start_timeout_s
            seats = seat_workers(layout.clients, scenario.load.workers_per_node, most_streams(scenario))
            sources = scenario.load.source_addresses
            fleet = RayFleet(seats, me, prompts, self._clock, timeout_s, self._desk.last_pulse_ns, sources)
            host = RayTargetHost(layout, me, run, self._clock, scenario, self._base)
            hellos: list[dict[str, Any]] = [*await fleet.start(), await host.start(timeout_s)]
            refuse_what_hosts_cannot(scenario, hellos[:-1])
            await asyncio.to_thread(self._note_inputs, corpus, prompt_sets, hellos)
            rooflines = stored_rooflines(run.path.parent, {str(hello["host"]) for hello in hellos[:-1]})
            asked = asked_by_host(points_to_come(make_plan(scenario)), [str(h["host"]) for h in hellos[:-1]])
            self._notes = [*layout.notes, *expected_load(asked, rooflines)]
            journal.append(
                "fleet_ready",
                workers=[_without_facts(hello) for hello in hellos[:-1]],
                target_host=_without_facts(hellos[-1]),
                clients=[node.title for node in layout.clients],
                notes=self._notes,
            )
            self._coordinator = Coordinator(
                scenario=scenario,
                run_id=self._run_id,
                run=run,
                journal=journal,
                history=history,
                corpus=corpus,
                traces=traces,
                prompt_sets=prompt_sets,
                ledger_dir=run.path.parent / ".ledger",
                fleet=fleet,
                host=host,
                files=self._files,
                desk=self._desk,
                make_control=make_control,
                clock=self._clock,
                rooflines=rooflines,
            )
            outcome = await self._coordinator.run()
        except RaybenchError as error:
            with suppress(RunDirectoryError):  # a full disk has said so itself
                journal.append("run_failed", error=str(error), kind=type(error).__name__)
            raise
        finally:
            journal.close()
        return outcome

    def _note_inputs(
        self,
        corpus: TokenCorpus | None,
        prompt_sets: Mapping[str, tuple[Prompt, ...]],
        hellos: list[dict[str, object]],
    ) -> None:
        """Put into the manifest what the run really worked with: corpus, traces, prompts, and each host once."""
        manifest = self._run_directory.read_manifest()
        traces = {
            workload.name: digest_input(self._base / workload.trace.path)
            for workload in self._scenario.workloads
            if workload.trace is not None
        }
        told: dict[str, object] = {
            "traces": traces,
            "prompt_sets": {workload: digests(prompts) for workload, prompts in prompt_sets.items()},
            "hosts": {str(hello["host"]): hello["facts"] for hello in hellos},
        }
        if corpus is not None:
            told["corpus"] = self._told_of(corpus)
        refuse_changed_traces(manifest, traces)
        refuse_changed_prompts(manifest, prompt_sets)
        write_json(self._run_directory.manifest, {**manifest, **told})

    def _told_of(self, corpus: TokenCorpus) -> dict[str, object]:
        path = None if self._scenario.corpus is None else self._scenario.corpus.path
        file = None if path is None else digest_input(self._base / path)
        return {"name": corpus.name, "tokens": corpus.tokens, "sha256": corpus.sha256, "file": file}

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


def refuse_changed_traces(manifest: Mapping[str, Any], traces: Mapping[str, Mapping[str, object]]) -> None:
    """A resumed run replays what it began with. Raises RunDirectoryError naming the workload otherwise.

    manifest: of the run, without `traces` when it is new. traces: by workload, `digest_input` of the file now.
    """
    for workload, before in manifest.get("traces", {}).items():
        was, now = str(before["sha256"]), str(traces[workload]["sha256"])
        if was != now:
            raise RunDirectoryError(
                f"the trace of {workload} has changed since the run began (sha256 {was[:12]}, now {now[:12]});"
                " points of two traces are not one matrix: put the old file back, or start a new run"
            )


def refuse_changed_prompts(manifest: Mapping[str, Any], prompt_sets: Mapping[str, tuple[Prompt, ...]]) -> None:
    """A resumed run sends the prompts that it began with. Raises RunDirectoryError naming the prompt otherwise."""
    for workload, entries in manifest.get("prompt_sets", {}).items():
        for before, prompt in zip(entries, prompt_sets[workload], strict=True):
            if before["sha256"] != prompt.sha256:
                raise RunDirectoryError(
                    f"prompt {prompt.name} of {workload} has changed since the run began (sha256"
                    f" {before['sha256'][:12]}, now {prompt.sha256[:12]}); points of two prompts are not one"
                    " matrix: put the old file back, or start a new run"
                )


def _without_facts(hello: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in hello.items() if key != "facts"}


def make_control(endpoint: Endpoint, admin_api_key_env: str | None) -> Http:
    return ControlClient(endpoint, admin_api_key_env=admin_api_key_env)


def prompts_for(scenario: Scenario, corpus: TokenCorpus | None) -> dict[str, Rendered]:
    """What bodies are cut from, for the kinds of prompt that the scenario's arms need; nothing without a corpus.

    Raises ConfigError when an arm needs text and the corpus has only ids.
    """
    if corpus is None:
        return {}
    kinds = set()
    for name, arm in scenario.arms.items():
        if all(workload.prompt_set is not None for workload in scenario.points_of(name)):
            continue
        shape = RequestShape(arm.effective_route, 1, 1)
        kind = ENGINES[arm.engine].template(shape).prompt
        if kind == "text" and corpus.text is None:
            raise ConfigError(
                "corpus",
                ConfigProblem(
                    f"arm {name} sends text ({arm.effective_route}), the corpus {corpus.name} has only token ids",
                    path="corpus",
                    way_out="build one with `raybench corpus build`, or use the route completions or generate",
                ),
            )
        kinds.add(kind)
    rendered = {"ids": render_ids(corpus.ids)} if "ids" in kinds else {}
    if "text" in kinds and corpus.text is not None:
        rendered["text"] = corpus.text
    return rendered
