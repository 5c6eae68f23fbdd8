"""The coordinator: arm by arm, point by point, attempt by attempt, until each point has a verdict.

A plain class on one event loop; `cluster/coordinator_actor.py` wraps it into a Ray actor. It owns the journal and
the text windows, asks the procedure to carry attempts out and the checks to judge them, and commits.
Nothing is committed before its parts are closed and its verdict is on disk.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict

import raybench
from raybench.errors import TargetError, WindowsExhausted
from raybench.protocol.arms import ArmMaker, ReadyArm
from raybench.protocol.attempts import Attempt, AttemptMaker
from raybench.protocol.checks import judge
from raybench.protocol.context import RunContext
from raybench.protocol.deployments import Deployments
from raybench.protocol.evidence import evidence_of
from raybench.protocol.invocation import Earlier, Outcome, Status, Verdicts
from raybench.protocol.planning import RunPlan
from raybench.protocol.progress import Progress
from raybench.protocol.searching import LevelSearch
from raybench.protocol.verdict import Verdict, void_verdict
from raybench.records.clock import read_boot_id
from raybench.scenario.plan import PlannedSearch, Point
from raybench.scenario.schema import Arm
from raybench.scenario.search import Result


class _Stop(Exception):
    """A point is void and the scenario says `on_void: stop`."""


class Coordinator:
    """One invocation of a run."""

    def __init__(self, context: RunContext, earlier: Earlier) -> None:
        self._context = context
        self._scenario = context.scenario
        self._journal = context.journal
        self._earlier = earlier
        self._plan = RunPlan(context.scenario, earlier.probed(context.scenario), context.run)
        self.progress = Progress(context.desk, context.clock, self._plan)
        self._deployments = Deployments(context.host, context.journal, self.progress)
        self._arms = ArmMaker(context, self._plan, self.progress, self._deployments)
        self._attempts = AttemptMaker(context, earlier.serial)
        self._verdicts = Verdicts(earlier, context.journal, self.progress)

    async def run(self) -> Outcome:
        """Everything, to its end. Raises only for bugs and for a cluster that is gone."""
        text = self._context.corpus
        of_corpus = text and {"name": text.name, "sha256": text.sha256, "tokens": len(text.ids)}
        self._journal.append(
            "run_started",
            run_id=self._context.run_id,
            raybench_version=raybench.__version__,
            boot_id=read_boot_id(),
            resumed=bool(self._earlier.serial),
            workers=self._context.fleet.workers,
            corpus=of_corpus,
            rooflines={host: roofline.as_record() for host, roofline in self._context.rooflines.items()},
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
            await self._context.fleet.cancel()
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
                ready = await self._arms.make(arm_name, arm, stack)
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

    async def _run_search(self, ready: ReadyArm, planned: PlannedSearch) -> None:
        """Measure one point after another until the search has its result."""
        search = LevelSearch(planned, self._context.run, self._journal)
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

    async def _run_point(self, ready: ReadyArm, point: Point) -> None:
        if self._earlier.settled(point.point_id):
            self._verdicts.keep(point)
            return
        if point.skip_reason is not None:
            self._verdicts.commit(point, None, "skipped", [point.skip_reason])
            return
        if renewed := await self._context.fleet.renew():
            self._journal.append("workers_renewed", workers=renewed)
        number, verdict = await self._measure(ready, point)
        if verdict.decision == "accept":
            self._verdicts.commit(point, number, "accepted", [])
            return
        self._verdicts.commit(point, number, "void", verdict.reasons)
        if self._scenario.guards.on_void == "stop":
            raise _Stop(f"{point.point_id} is void: {'; '.join(verdict.reasons)}")

    async def _measure(self, ready: ReadyArm, point: Point) -> tuple[int, Verdict]:
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

    async def _judged(self, ready: ReadyArm, attempt: Attempt, attempts_left: int) -> Verdict:
        """Carry the attempt out and judge what it left behind."""
        observed = await ready.procedure.carry_out(attempt)
        if ready.request_log is not None:
            await ready.request_log.pull()
        gpu = await self._context.host.gpu_state(observed.load.start_unix_ns)
        evidence = evidence_of(self._context, attempt, observed, ready.target.engine, gpu, ready.gate)
        return judge(evidence, self._scenario.guards, attempts_left=attempts_left)
