"""The coordinator: arm by arm, point by point, attempt by attempt, until each point has a verdict.

A plain class on one event loop; `cluster/coordinator_actor.py` wraps it into a Ray actor. It owns the journal and
the text windows, asks the procedure to carry attempts out and the checks to judge them, and commits.
Nothing is committed before its parts are closed and its verdict is on disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

import raybench
from raybench.corpus.prompts import Prompt
from raybench.corpus.tokens import TokenCorpus
from raybench.corpus.windows import WindowLedger
from raybench.engines import ENGINES
from raybench.engines.contract import Facts, Http
from raybench.engines.redact import redact
from raybench.errors import TargetError, WindowsExhausted
from raybench.load.order import Endpoint
from raybench.protocol.attempts import Attempt, AttemptMaker
from raybench.protocol.checks import judge
from raybench.protocol.deployments import Deployments
from raybench.protocol.desk import OrderDesk
from raybench.protocol.evidence import evidence_of
from raybench.protocol.fleet import LoadFleet, LogReading, TargetHost
from raybench.protocol.gate import GateResult, run_gate
from raybench.protocol.invocation import Earlier, Outcome, Status, Verdicts
from raybench.protocol.planning import RunPlan
from raybench.protocol.procedure import Procedure
from raybench.protocol.progress import Progress
from raybench.protocol.request_log import RequestLogCopy
from raybench.protocol.searching import LevelSearch
from raybench.protocol.target import Sleep, Target
from raybench.protocol.verdict import Verdict, void_verdict
from raybench.protocol.watch import ServerWatch
from raybench.records.clock import Clock, read_boot_id
from raybench.records.journal import Journal
from raybench.records.parts import PartFiles
from raybench.records.roofline import Roofline
from raybench.records.rundir import RunDirectory, write_json
from raybench.scenario.limits import declared_limits, merge_limits
from raybench.scenario.plan import PlannedSearch, Point
from raybench.scenario.schema import Arm, Limits, Scenario
from raybench.scenario.search import Result
from raybench.scenario.trace import Trace


class Control(Http, Protocol):
    """Control calls over connections of its own."""

    async def close(self) -> None: ...


#: For an endpoint, and the environment variable that holds the key of its control calls.
MakeControl = Callable[[Endpoint, str | None], Control]


class _Stop(Exception):
    """A point is void and the scenario says `on_void: stop`."""


@dataclass(frozen=True)
class _ReadyArm:
    """What it takes to measure points on an arm. request_log: the server's own, where the scenario names one."""

    target: Target
    procedure: Procedure
    ledger: WindowLedger
    gate: GateResult | None
    request_log: RequestLogCopy | None


class Coordinator:
    """One run of one scenario. traces, prompt_sets: by workload, of those that have one."""

    def __init__(
        self,
        *,
        scenario: Scenario,
        run_id: str,
        run: RunDirectory,
        journal: Journal,
        earlier: Earlier,
        corpus: TokenCorpus | None,
        traces: Mapping[str, Trace],
        prompt_sets: Mapping[str, tuple[Prompt, ...]],
        ledger_dir: Path,
        fleet: LoadFleet,
        host: TargetHost,
        files: PartFiles,
        desk: OrderDesk,
        make_control: MakeControl,
        clock: Clock,
        rooflines: Mapping[str, Roofline] | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._scenario = scenario
        self._run_id = run_id
        self._run = run
        self._journal = journal
        self._earlier = earlier
        self._corpus = corpus
        self._attempts = AttemptMaker(scenario, run_id, corpus, traces, prompt_sets, journal, earlier)
        self._ledger_dir = ledger_dir
        self._fleet = fleet
        self._host = host
        self._files = files
        self._desk = desk
        self._make_control = make_control
        self._clock = clock
        self._rooflines = rooflines or {}
        self._sleep = sleep
        self._plan = RunPlan(scenario, earlier.probed(scenario), run)
        self.progress = Progress(desk, clock, self._plan)
        self._deployments = Deployments(host, journal, self.progress)
        self._verdicts = Verdicts(earlier, journal, self.progress)

    async def run(self) -> Outcome:
        """Everything, to its end. Raises only for bugs and for a cluster that is gone."""
        text = self._corpus
        of_corpus = text and {"name": text.name, "sha256": text.sha256, "tokens": len(text.ids)}
        self._journal.append(
            "run_started",
            run_id=self._run_id,
            raybench_version=raybench.__version__,
            boot_id=read_boot_id(),
            resumed=bool(self._earlier.serial),
            workers=self._fleet.workers,
            corpus=of_corpus,
            rooflines={host: roofline.as_record() for host, roofline in self._rooflines.items()},
        )
        status: Status = "complete"
        reason = None
        try:
            await self._run_arms()
        except _Stop as stop:
            status, reason = "stopped", str(stop)
        except TargetError as error:
            self._verdicts.target_failed = True
            status, reason = "stopped", str(error)
        except asyncio.CancelledError:
            status = "interrupted"
            await self._fleet.cancel()
        is_back = await self._deployments.bring_service_back()
        outcome = self._verdicts.outcome(status, reason, len(self._plan), service_is_back=is_back)
        self._journal.append("run_ended", **asdict(outcome))
        return outcome

    async def _run_arms(self) -> None:
        """One after the other. Raises TargetError when one cannot be started, reached or ended."""
        arms = self._scenario.arms
        left = {name: arm for name, arm in arms.items() if not self._plan.is_settled(name, self._earlier)}
        await self._deployments.make_room(left, self._scenario.service)
        for name, arm in arms.items():
            if name in left:
                await self._run_arm(name, arm)
                continue
            for point in self._plan.points_of(name):
                self._verdicts.keep(point)

    async def _run_arm(self, arm_name: str, arm: Arm) -> None:
        async with AsyncExitStack() as stack:
            try:
                ready = await self._make_ready(arm_name, arm, stack)
            except TargetError as error:
                self._journal.append("arm_failed", arm=arm_name, error=str(error))
                raise
            searches = self._plan.searches_of(arm_name)
            for workload in self._scenario.workloads_of(arm_name):
                if workload.name in searches:
                    await self._run_search(ready, searches[workload.name])
                    continue
                for point in self._plan.points_of(arm_name, workload.name):
                    await self._run_point(ready, point)

    async def _make_ready(self, arm_name: str, arm: Arm, stack: AsyncExitStack) -> _ReadyArm:
        """Launched when the scenario says so, alive, planned, through its gate, watched; ended with the stack."""
        url = await self._deployments.url_of(arm_name, arm, stack)
        request_log = None
        if arm.request_log is not None:
            request_log = RequestLogCopy(self._host, self._run, arm_name, arm.request_log)
            stack.push_async_callback(self._pull, request_log, arm_name)
        target = await self._reach(arm_name, arm, url, stack)
        facts = await target.facts()
        self._plan_arm(arm_name, arm, facts)
        gate = await self._pass_gate(target)
        log = await self._watch(target, facts, stack)
        ledger = WindowLedger(self._ledger_dir / f"{_ledger_name(target, facts)}.jsonl", facts.instance or "")
        stack.callback(ledger.close)
        return _ReadyArm(target, self._procedure(target, log), ledger, gate, request_log)

    async def _reach(self, arm_name: str, arm: Arm, url: str, stack: AsyncExitStack) -> Target:
        """The arm's engine, alive."""
        endpoint = Endpoint.of_arm(arm, url)
        urls = arm.control_urls or [url]
        controls = [self._make_control(replace(endpoint, url=one), arm.admin_api_key_env) for one in urls]
        for control in controls:
            stack.push_async_callback(control.close)
        target = Target(arm_name, arm, ENGINES[arm.engine], endpoint, controls, self._clock, self._sleep)
        self.progress.arm_step(arm_name, "alive")
        await target.wait_alive(self._scenario.guards.alive_timeout_s)
        return target

    async def _pass_gate(self, target: Target) -> GateResult | None:
        """Ask what the scenario's gate asks. Raises TargetError when it is not passed and that stops the run."""
        gate, arm_name = self._scenario.gate, target.arm_name
        if gate is None:
            return None
        self.progress.arm_step(arm_name, "gate")
        control = self._make_control(target.endpoint, None)
        try:
            result = await run_gate(gate, target, control)
        finally:
            await control.close()
        write_json(self._run.arm(arm_name) / "gate.json", result.as_record())
        told = [{"name": check.name, "passed": check.passed, "detail": check.detail} for check in result.checks]
        self._journal.append("gate", arm=arm_name, ok=result.ok, summary=result.summary, checks=told)
        if not result.ok and gate.on_failure == "stop":
            raise TargetError("gate", f"{arm_name}: quality gate {result.summary}; {result.needed} must pass")
        return result

    async def _pull(self, request_log: RequestLogCopy, arm_name: str) -> None:
        if (problem := await request_log.pull()) is not None:
            self._journal.append("request_log", arm=arm_name, problem=problem)

    def _plan_arm(self, arm_name: str, arm: Arm, facts: Facts) -> None:
        """Plan the arm once more with what the engine said of itself."""
        limits = merge_limits(declared_limits(arm), limits_of(facts))
        variables = (arm.api_key_env, arm.admin_api_key_env)
        secrets = [os.environ[name] for name in variables if name is not None and name in os.environ]
        write_json(self._run.arm(arm_name) / "facts.json", redact(asdict(facts), secrets))
        self._plan.know(arm_name, limits)
        self._journal.append(
            "arm_ready",
            arm=arm_name,
            engine=facts.engine,
            version=facts.version,
            instance=facts.instance,
            limits=limits.model_dump(mode="json"),
        )

    async def _watch(self, target: Target, facts: Facts, stack: AsyncExitStack) -> LogReading:
        """Start the monitors of this arm; they end with it. What is read of the engine's log."""
        gpu = self._scenario.monitors.gpu
        source = gpu.source if gpu.source != "auto" else ("sim" if target.arm.sim else "nvml")
        if source != "none":
            stack.push_async_callback(self._host.unwatch_gpus)
            reason = await self._host.watch_gpus(target.arm_name, source, target.endpoint.url, gpu.interval_s)
            self._journal.append("gpu_monitor", arm=target.arm_name, source=source, reason=reason)
            if reason is not None and gpu.required:
                raise TargetError("gpu_monitor", f"GPU data is required and not available: {reason}")
        server = self._scenario.monitors.server
        if server.enabled:
            watch = ServerWatch(target, facts.instance, self._run, self._files, self._clock, server.interval_s)
            await stack.enter_async_context(watch)
        if not target.arm.tells_its_log:
            return LogReading()
        stack.push_async_callback(self._host.unwatch_log)
        log = await self._host.watch_log(target.arm_name, target.arm)
        self._journal.append("server_log", arm=target.arm_name, part=log.part, reason=log.reason)
        return log

    def _procedure(self, target: Target, log: LogReading) -> Procedure:
        return Procedure(
            target=target,
            fleet=self._fleet,
            host=self._host,
            desk=self._desk,
            journal=self._journal,
            guards=self._scenario.guards,
            load=self._scenario.load,
            run_token=self._run_id[-8:],
            log=log,
            on_step=lambda attempt, step: self.progress.step(attempt.point, attempt.number, step),
        )

    async def _run_search(self, ready: _ReadyArm, planned: PlannedSearch) -> None:
        """Measure one point after another until the search has its result."""
        search = LevelSearch(planned, self._run, self._journal)
        search.start()
        if planned.lowest.skip_reason is not None:
            await self._run_point(ready, self._plan.add_probe(planned, planned.lowest.level))
        while not isinstance(following := search.following(), Result):
            point = self._plan.add_probe(planned, planned.search.level(following))
            self.progress.search = search.told()
            await self._run_point(ready, point)
            search.probed(point)
        self.progress.search = None
        search.end(following)
        for point in self._plan.points_of(planned.arm, planned.workload):
            if point not in self._verdicts:  # of an earlier invocation
                self._verdicts.keep(point)

    async def _run_point(self, ready: _ReadyArm, point: Point) -> None:
        if self._earlier.settled(point.point_id):
            self._verdicts.keep(point)
            return
        if point.skip_reason is not None:
            self._verdicts.commit(point, None, "skipped", [point.skip_reason])
            return
        if renewed := await self._fleet.renew():
            self._journal.append("workers_renewed", workers=renewed)
        number, verdict = await self._measure(ready, point)
        if verdict.decision == "accept":
            self._verdicts.commit(point, number, "accepted", [])
            return
        self._verdicts.commit(point, number, "void", verdict.reasons)
        if self._scenario.guards.on_void == "stop":
            raise _Stop(f"{point.point_id} is void: {'; '.join(verdict.reasons)}")

    async def _measure(self, ready: _ReadyArm, point: Point) -> tuple[int, Verdict]:
        """Attempts until one is accepted or none is left: (attempt number, verdict)."""
        number = self._earlier.attempts.get(point.point_id, 0)
        verdict = Verdict("void", (), {})
        for left in reversed(range(self._attempts.tries(point))):
            number += 1
            try:
                attempt = self._attempts.make(point, number, ready.ledger)
                verdict = await self._judged(ready, attempt, left)
            except WindowsExhausted as error:
                number = max(number - 1, 1)  # the attempt was never begun: the one before it is the last
                verdict = void_verdict(
                    "text_exhausted", f"not cold: no unused text is left for this server ({error})", verdict
                )
            except TargetError as error:
                verdict = void_verdict(f"{error.step}_failed", str(error), None)
                self._verdicts.target_failed = True
            except asyncio.CancelledError:
                self._journal.append("attempt_interrupted", point_id=point.point_id, attempt=number)
                raise
            self._journal.append("verdict", point_id=point.point_id, attempt=number, **verdict.as_record())
            if verdict.decision != "retry":
                break
        return number, verdict

    async def _judged(self, ready: _ReadyArm, attempt: Attempt, attempts_left: int) -> Verdict:
        """Carry the attempt out and judge what it left behind."""
        observed = await ready.procedure.carry_out(attempt)
        if ready.request_log is not None:
            await self._pull(ready.request_log, attempt.point.arm)
        evidence = evidence_of(
            self._run,
            attempt,
            observed,
            ready.target.engine,
            self._rooflines,
            await self._host.gpu_state(observed.load.start_unix_ns),
            gpu_required=self._scenario.monitors.gpu.required,
            gate=ready.gate,
        )
        return judge(evidence, self._scenario.guards, attempts_left=attempts_left)


def _ledger_name(target: Target, facts: Facts) -> str:
    """One ledger an instance; an engine that hides its restarts keeps one for ever, by address."""
    if facts.instance is not None:
        return f"{target.engine.name}-{facts.instance}"
    return f"{target.engine.name}-" + "".join(c if c.isalnum() else "_" for c in target.endpoint.url)


def limits_of(facts: Facts) -> Limits:
    """What the engine says it can hold. A number below 1 is its way to say "none" or "automatic"."""
    told = {
        "max_running_requests": facts.max_running_requests,
        "kv_pool_tokens": facts.kv_pool_tokens,
        "context_tokens": facts.context_tokens,
        "max_input_tokens": facts.max_input_tokens,
        "page_tokens": facts.page_tokens,
    }
    return Limits(**{name: value for name, value in told.items() if value is not None and value >= 1})
