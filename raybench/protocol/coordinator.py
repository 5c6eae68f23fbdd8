"""The coordinator: arm by arm, point by point, attempt by attempt, until each point has a verdict.

A plain class on one event loop; `cluster/fleet.py` wraps it into a Ray actor. It owns the journal and
the text windows, asks the procedure to carry attempts out and the checks to judge them, and commits.
Nothing is committed before its parts are closed and its verdict is on disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Literal

import raybench
from raybench.corpus.prompts import Prompt
from raybench.corpus.tokens import TokenCorpus
from raybench.corpus.windows import WindowLedger
from raybench.engines import ENGINES
from raybench.engines.contract import Facts, Http
from raybench.engines.redact import redact
from raybench.errors import EXIT_NOT_ALL_VALID, EXIT_OK, EXIT_SERVICE, EXIT_TARGET, TargetError, WindowsExhausted
from raybench.load.order import Endpoint
from raybench.protocol.attempts import AttemptMaker
from raybench.protocol.checks import Evidence
from raybench.protocol.deployments import Deployments
from raybench.protocol.desk import OrderDesk
from raybench.protocol.evidence import flushed_groups, history_of, load_health, load_log, load_requests
from raybench.protocol.fleet import LoadFleet, LogReading, ServiceReport, TargetHost
from raybench.protocol.gate import GateResult, run_gate
from raybench.protocol.invocation import History, Outcome
from raybench.protocol.procedure import Attempt, Observed, Procedure
from raybench.protocol.progress import Progress
from raybench.protocol.request_log import RequestLogCopy
from raybench.protocol.searching import LevelSearch
from raybench.protocol.target import Sleep, Target
from raybench.protocol.verdict import Verdict, judge, void_verdict
from raybench.protocol.watch import ServerWatch
from raybench.records.clock import Clock, read_boot_id
from raybench.records.journal import Journal
from raybench.records.parts import PartFiles
from raybench.records.roofline import Roofline
from raybench.records.rundir import RunDirectory, write_json
from raybench.scenario.levels import Level
from raybench.scenario.limits import declared_limits, merge_limits
from raybench.scenario.plan import PlannedSearch, Point, make_plan
from raybench.scenario.schema import Arm, Limits, Scenario
from raybench.scenario.search import Result
from raybench.scenario.trace import Trace

MakeControl = Callable[[Endpoint, str | None], Http]


class _Stop(Exception):
    """A point is void and the scenario says `on_void: stop`, or an arm cannot be measured at all."""


class Coordinator:
    """One run of one scenario. traces, prompt_sets: by workload, of those that have one."""

    def __init__(
        self,
        *,
        scenario: Scenario,
        run_id: str,
        run: RunDirectory,
        journal: Journal,
        history: History,
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
        self._history = history
        self._corpus = corpus
        self._attempts = AttemptMaker(scenario, run_id, corpus, traces, prompt_sets, journal, history)
        self._gates: dict[str, GateResult] = {}
        self._request_logs: dict[str, RequestLogCopy] = {}
        self._ledger_dir = ledger_dir
        self._fleet = fleet
        self._host = host
        self._files = files
        self._desk = desk
        self._make_control = make_control
        self._clock = clock
        self._rooflines = rooflines or {}
        self._sleep = sleep
        self._verdicts: dict[str, str] = {}
        self._target_failed = False
        self._probed = history.probed(scenario)
        declared = {name: declared_limits(arm) for name, arm in scenario.arms.items()}
        self._plans = dict.fromkeys(scenario.arms, make_plan(scenario, declared, self._probed))
        self.progress = Progress(desk, clock, len(self._planned))
        self._deployments = Deployments(host, journal, self.progress)

    async def run(self) -> Outcome:
        """Everything, to its end. Raises only for bugs and for a cluster that is gone."""
        text = self._corpus
        of_corpus = text and {"name": text.name, "sha256": text.sha256, "tokens": len(text.ids)}
        self._journal.append(
            "run_started",
            run_id=self._run_id,
            raybench_version=raybench.__version__,
            boot_id=read_boot_id(),
            resumed=bool(self._history.serial),
            workers=self._fleet.workers,
            corpus=of_corpus,
            rooflines={host: roofline.as_record() for host, roofline in self._rooflines.items()},
        )
        stop: _Stop | None = None
        status: Literal["complete", "stopped", "interrupted"] = "complete"
        try:
            await self._run_arms()
        except _Stop as reached:
            stop, status = reached, "stopped"
        except TargetError as error:
            self._target_failed = True
            stop, status = _Stop(str(error)), "stopped"
        except asyncio.CancelledError:
            status = "interrupted"
            await self._fleet.cancel()
        outcome = self._outcome(status, stop, await self._deployments.bring_service_back())
        self._journal.append("run_ended", **asdict(outcome))
        return outcome

    @property
    def _planned(self) -> list[Point]:
        """All points known so far, arm by arm, each arm's as its own plan has them."""
        return [point for arm, plan in self._plans.items() for point in plan.points if point.arm == arm]

    async def _run_arms(self) -> None:
        """One after the other. Raises TargetError when one cannot be started, reached or ended."""
        arms = self._scenario.arms
        left = {name: arm for name, arm in arms.items() if not self._arm_settled(name)}
        await self._deployments.make_room(left, self._scenario.service)
        for arm_name, arm in arms.items():
            await self._run_arm(arm_name, arm)

    async def _run_arm(self, arm_name: str, arm: Arm) -> None:
        if self._arm_settled(arm_name):
            for point in (p for p in self._planned if p.arm == arm_name):
                self._settle(point, self._history.committed[point.point_id])
            return
        async with AsyncExitStack() as stack:
            try:
                target = await self._reach(arm_name, arm, stack)
                facts = await target.facts()
                limits = self._plan_arm(arm_name, arm, facts)
                await self._pass_gate(target)
                log = await self._watch(target, facts, stack)
            except TargetError as error:
                self._journal.append("arm_failed", arm=arm_name, error=str(error))
                raise
            procedure = self._procedure(target, log)
            ledger = WindowLedger(
                self._ledger_dir / f"{self._ledger_name(target, facts)}.jsonl", facts.instance or ""
            )
            stack.callback(ledger.close)
            measure = partial(self._run_point, target=target, procedure=procedure, ledger=ledger)
            plan = self._plans[arm_name]
            searches = {search.workload: search for search in plan.searches if search.arm == arm_name}
            for workload in self._scenario.points_of(arm_name):
                if workload.name in searches:
                    await self._run_search(searches[workload.name], limits, measure)
                    continue
                for point in (p for p in plan.points if (p.arm, p.workload) == (arm_name, workload.name)):
                    await measure(point)

    async def _reach(self, arm_name: str, arm: Arm, stack: AsyncExitStack) -> Target:
        """The arm's engine, launched when the scenario says so, alive."""
        url = await self._deployments.url_of(arm_name, arm, stack)
        if arm.request_log is not None:
            self._request_logs[arm_name] = RequestLogCopy(self._host, self._run, arm_name, arm.request_log)
            stack.push_async_callback(self._keep_request_log, arm_name)
        endpoint = Endpoint.of_arm(arm, url)
        urls = arm.control_urls or [url]
        controls = [self._make_control(replace(endpoint, url=one), arm.admin_api_key_env) for one in urls]
        for control in controls:
            if hasattr(control, "close"):
                stack.push_async_callback(control.close)
        target = Target(arm_name, arm, ENGINES[arm.engine], endpoint, controls, self._clock, self._sleep)
        self.progress.arm_step(arm_name, "alive")
        await target.wait_alive(self._scenario.guards.alive_timeout_s)
        return target

    def _arm_settled(self, arm_name: str) -> bool:
        """Whether a resumed run has nothing to do on this arm."""
        listed = [w.name for w in self._scenario.points_of(arm_name) if w.search is None]
        points = (p for p in self._planned if p.arm == arm_name and p.workload in listed)
        searches = (search for search in self._plans[arm_name].searches if search.arm == arm_name)
        return all(self._history.settled(point.point_id) for point in points) and all(
            (search.arm, search.workload) in self._history.searched for search in searches
        )

    async def _pass_gate(self, target: Target) -> None:
        """Ask what the scenario's gate asks. Raises TargetError when it is not passed and that stops the run."""
        gate, arm_name = self._scenario.gate, target.arm_name
        if gate is None:
            return
        self.progress.arm_step(arm_name, "gate")
        http = self._make_control(target.endpoint, None)
        try:
            result = await run_gate(gate, target, http)
        finally:
            if hasattr(http, "close"):
                await http.close()
        self._gates[arm_name] = result
        write_json(self._run.arm(arm_name) / "gate.json", result.as_record())
        told = [{"name": check.name, "passed": check.passed, "detail": check.detail} for check in result.checks]
        self._journal.append("gate", arm=arm_name, ok=result.ok, summary=result.summary, checks=told)
        if not result.ok and gate.on_failure == "stop":
            raise TargetError("gate", f"{arm_name}: quality gate {result.summary}; {result.needed} must pass")

    async def _keep_request_log(self, arm_name: str) -> None:
        copy = self._request_logs.get(arm_name)
        if copy is not None and (problem := await copy.pull()) is not None:
            self._journal.append("request_log", arm=arm_name, problem=problem)

    def _plan_arm(self, arm_name: str, arm: Arm, facts: Facts) -> Limits:
        """Plan the arm once more with what the engine said of itself; all that is known of its limits."""
        limits = merge_limits(declared_limits(arm), limits_of(facts))
        variables = (arm.api_key_env, arm.admin_api_key_env)
        secrets = [os.environ[name] for name in variables if name is not None and name in os.environ]
        write_json(self._run.arm(arm_name) / "facts.json", redact(asdict(facts), secrets))
        self._replace_plan(arm_name, limits)
        self._journal.append(
            "arm_ready",
            arm=arm_name,
            engine=facts.engine,
            version=facts.version,
            instance=facts.instance,
            limits=limits.model_dump(mode="json"),
        )
        return limits

    def _replace_plan(self, arm_name: str, limits: Limits) -> None:
        """Make an arm's points again: with its engine's limits, and with the levels that searches came to."""
        self._plans[arm_name] = make_plan(self._scenario, {arm_name: limits}, self._probed)
        self.progress.points_total = len(self._planned)
        manifest = self._run.read_manifest()
        write_json(self._run.manifest, {**manifest, "points": [asdict(point) for point in self._planned]})

    async def _run_search(
        self, planned: PlannedSearch, limits: Limits, measure: Callable[[Point], Awaitable[None]]
    ) -> None:
        """Measure one point after another until the search has its result."""
        search = LevelSearch(planned, self._run, self._journal)
        search.start()
        if planned.lowest.skip_reason is not None:
            await measure(self._add_probe(planned, planned.lowest.level, limits))
        while not isinstance(following := search.following(), Result):
            point = self._add_probe(planned, planned.search.level(following), limits)
            self.progress.search = search.told()
            await measure(point)
            search.probed(point)
        self.progress.search = None
        search.end(following)
        own = (p for p in self._planned if (p.arm, p.workload) == (planned.arm, planned.workload))
        for point in own:
            if point.point_id not in self._verdicts:  # of an earlier invocation
                self._settle(point, self._history.committed[point.point_id])

    def _add_probe(self, planned: PlannedSearch, level: Level, limits: Limits) -> Point:
        levels = self._probed.setdefault((planned.arm, planned.workload), [])
        if level not in levels:
            levels.append(level)
        self._replace_plan(planned.arm, limits)
        wanted = (planned.arm, planned.workload, level)
        return next(p for p in self._planned if (p.arm, p.workload, p.level) == wanted)

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

    def _ledger_name(self, target: Target, facts: Facts) -> str:
        """One ledger an instance; an engine that hides its restarts keeps one for ever, by address."""
        if facts.instance is not None:
            return f"{target.engine.name}-{facts.instance}"
        return f"{target.engine.name}-" + "".join(c if c.isalnum() else "_" for c in target.endpoint.url)

    async def _run_point(self, point: Point, target: Target, procedure: Procedure, ledger: WindowLedger) -> None:
        if self._history.settled(point.point_id):
            self._settle(point, self._history.committed[point.point_id])
            return
        if point.skip_reason is not None:
            self._commit(point, None, "skipped", [point.skip_reason])
            return
        if renewed := await self._fleet.renew():
            self._journal.append("workers_renewed", workers=renewed)
        number, verdict = await self._measure(point, target, procedure, ledger)
        if verdict.decision == "accept":
            self._commit(point, number, "accepted", [])
            return
        self._commit(point, number, "void", verdict.reasons)
        if self._scenario.guards.on_void == "stop":
            raise _Stop(f"{point.point_id} is void: {'; '.join(verdict.reasons)}")

    async def _measure(
        self, point: Point, target: Target, procedure: Procedure, ledger: WindowLedger
    ) -> tuple[int, Verdict]:
        """Attempts until one is accepted or none is left: (attempt number, verdict)."""
        guards = self._scenario.guards
        number = self._history.attempts.get(point.point_id, 0)
        verdict = Verdict("void", (), {})
        for left in reversed(range(self._attempts.tries(point))):
            number += 1
            try:
                attempt = self._attempts.make(point, number, ledger)
                observed = await procedure.carry_out(attempt)
                await self._keep_request_log(point.arm)
                evidence = await self._evidence(attempt, target, observed)
                verdict = judge(evidence, guards, attempts_left=left)
            except WindowsExhausted as error:
                number = max(number - 1, 1)  # the attempt was never begun: the one before it is the last
                verdict = void_verdict(
                    "text_exhausted", f"not cold: no unused text is left for this server ({error})", verdict
                )
            except TargetError as error:
                verdict = void_verdict(f"{error.step}_failed", str(error), None)
                self._target_failed = True
            except asyncio.CancelledError:
                self._journal.append("attempt_interrupted", point_id=point.point_id, attempt=number)
                raise
            self._journal.append("verdict", point_id=point.point_id, attempt=number, **verdict.as_record())
            if verdict.decision != "retry":
                break
        return number, verdict

    async def _evidence(self, attempt: Attempt, target: Target, observed: Observed) -> Evidence:
        """The records as they are on disk, and what the steps saw."""
        history = history_of(self._run)
        of_attempt = (self._run, attempt.point.point_id, attempt.number, history)
        requests, torn, client = load_requests(*of_attempt)
        gpu, gate = self._scenario.monitors.gpu, self._gates.get(attempt.point.arm)
        return Evidence(
            point=attempt.point,
            requests=requests,
            before=observed.before,
            after=observed.after,
            lost_workers=observed.load.lost,
            torn_parts=torn,
            prompt_is_ids=target.engine.template(attempt.shape).prompt == "ids",
            ignore_eos=attempt.shape.ignore_eos,
            streamed=attempt.shape.stream,
            flush_reply=observed.flush_reply,
            idle_known=observed.idle_known,
            log=load_log(self._run, observed.log_load),
            log_reason=observed.log_reason,
            flushed_groups=flushed_groups(self._run, observed.log_flush),
            left_inside=observed.left_inside,
            leased=observed.leased,
            health=load_health(*of_attempt, observed.load.start_unix_ns, observed.load.end_unix_ns),
            client=client,
            rooflines=self._rooflines,
            clocks=history.attempt_clocks(attempt.point.point_id, attempt.number),
            link_changes=observed.link_changes,
            gpu=await self._host.gpu_state(observed.load.start_unix_ns),
            gpu_required=gpu.required,
            gate_failure=None if gate is None or gate.ok else gate.summary,
        )

    def _commit(self, point: Point, attempt: int | None, verdict: str, reasons: list[str]) -> None:
        self._journal.append(
            "point_committed",
            point_id=point.point_id,
            attempt=attempt,
            verdict=verdict,
            reasons=reasons,
        )
        self._settle(point, verdict)

    def _settle(self, point: Point, verdict: str) -> None:
        self._verdicts[point.point_id] = verdict
        self.progress.point_done(point, verdict)

    def _outcome(
        self,
        status: Literal["complete", "stopped", "interrupted"],
        stop: _Stop | None,
        service: ServiceReport | None,
    ) -> Outcome:
        verdicts = list(self._verdicts.values())
        counts = {name: verdicts.count(name) for name in ("accepted", "void", "skipped")}
        missing = len(self._planned) - len(verdicts)
        all_valid = status == "complete" and not counts["void"] and not missing
        code = EXIT_TARGET if self._target_failed else EXIT_OK if all_valid else EXIT_NOT_ALL_VALID
        if service is not None and service.phase == "not_verified":
            code = EXIT_SERVICE
        reason = None if stop is None else str(stop)
        return Outcome(status, **counts, missing=missing, reason=reason, exit_code=code)


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
