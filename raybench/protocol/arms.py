"""An arm made ready to be measured: launched, alive, planned, through its gate, watched.

Runs in the coordinator.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace

from raybench.corpus.windows import WindowLedger
from raybench.engines import ENGINES
from raybench.engines.contract import Facts
from raybench.errors import TargetError
from raybench.load.order import Endpoint
from raybench.protocol.context import RunContext
from raybench.protocol.deployments import Deployments
from raybench.protocol.fleet import LogReading
from raybench.protocol.gate import GateResult, run_gate
from raybench.protocol.planning import RunPlan, limits_of
from raybench.protocol.procedure import Procedure
from raybench.protocol.progress import Progress
from raybench.protocol.target import Target
from raybench.protocol.watch import RequestLogCopy, ServerWatch
from raybench.records.redact import redact
from raybench.records.strict_json import write_json
from raybench.scenario.limits import declared_limits, merge_limits
from raybench.scenario.schema import Arm


@dataclass(frozen=True)
class ReadyArm:
    """What it takes to measure points on an arm. request_log: the server's own, where the scenario names one."""

    target: Target
    procedure: Procedure
    ledger: WindowLedger
    gate: GateResult | None
    request_log: RequestLogCopy | None


class ArmMaker:
    """Makes one arm after the other ready; what it starts ends with the stack that it is given."""

    def __init__(self, context: RunContext, plan: RunPlan, progress: Progress, deployments: Deployments) -> None:
        self._context = context
        self._plan = plan
        self._progress = progress
        self._deployments = deployments

    async def make(self, arm_name: str, arm: Arm, stack: AsyncExitStack) -> ReadyArm:
        """Raises TargetError when the arm cannot be started or reached, or does not pass its gate."""
        context = self._context
        url = await self._deployments.url_of(arm_name, arm, stack)
        request_log = None
        if arm.request_log is not None:
            request_log = RequestLogCopy(
                context.host, context.run, context.files, context.journal, arm_name, arm.request_log
            )
            stack.push_async_callback(request_log.close)
        target = await self._reach(arm_name, arm, url, stack)
        facts = await target.facts()
        self._plan_again(target, facts)
        gate = await self._pass_gate(target)
        log = await self._watch(target, facts, stack)
        ledger = WindowLedger(context.ledger_dir / f"{_ledger_name(target, facts)}.jsonl", facts.instance or "")
        stack.callback(ledger.close)
        return ReadyArm(target, Procedure(context, target, log, self._progress), ledger, gate, request_log)

    async def _reach(self, arm_name: str, arm: Arm, url: str, stack: AsyncExitStack) -> Target:
        """The arm's engine, alive."""
        context = self._context
        endpoint = Endpoint.of_arm(arm, url)
        urls = arm.control_urls or [url]
        controls = [context.make_control(replace(endpoint, url=one), arm.admin_api_key_env) for one in urls]
        for control in controls:
            stack.push_async_callback(control.close)
        target = Target(arm_name, arm, ENGINES[arm.engine], endpoint, controls, context.clock, context.sleep)
        self._progress.arm_step(arm_name, "alive")
        await target.wait_alive(context.scenario.guards.alive_timeout_s)
        return target

    def _plan_again(self, target: Target, facts: Facts) -> None:
        """Plan the arm once more with what the engine said of itself."""
        arm_name, arm = target.arm_name, target.arm
        limits = merge_limits(declared_limits(arm), limits_of(facts))
        variables = (arm.api_key_env, arm.admin_api_key_env)
        secrets = [os.environ[name] for name in variables if name is not None and name in os.environ]
        write_json(self._context.run.arm(arm_name) / "facts.json", redact(asdict(facts), secrets))
        self._plan.know(arm_name, limits)
        self._context.journal.append(
            "arm_ready",
            arm=arm_name,
            engine=facts.engine,
            version=facts.version,
            instance=facts.instance,
            limits=limits.model_dump(mode="json"),
        )

    async def _pass_gate(self, target: Target) -> GateResult | None:
        """Ask what the scenario's gate asks. Raises TargetError when it is not passed and that stops the run."""
        context, arm_name = self._context, target.arm_name
        gate = context.scenario.gate
        if gate is None:
            return None
        self._progress.arm_step(arm_name, "gate")
        control = context.make_control(target.endpoint, None)
        try:
            result = await run_gate(gate, target, control)
        finally:
            await control.close()
        write_json(context.run.arm(arm_name) / "gate.json", result.as_record())
        told = [{"name": check.name, "passed": check.passed, "detail": check.detail} for check in result.checks]
        context.journal.append("gate", arm=arm_name, ok=result.ok, summary=result.summary, checks=told)
        if not result.ok and gate.on_failure == "stop":
            raise TargetError("gate", f"{arm_name}: quality gate {result.summary}; {result.needed} must pass")
        return result

    async def _watch(self, target: Target, facts: Facts, stack: AsyncExitStack) -> LogReading:
        """Start the monitors of this arm. What is read of the engine's log."""
        context, arm_name, arm = self._context, target.arm_name, target.arm
        gpu = context.scenario.monitors.gpu
        source = gpu.source if gpu.source != "auto" else ("sim" if arm.sim else "nvml")
        if source != "none":
            stack.push_async_callback(context.host.unwatch_gpus)
            reason = await context.host.watch_gpus(arm_name, source, target.endpoint.url, gpu.interval_s)
            context.journal.append("gpu_monitor", arm=arm_name, source=source, reason=reason)
            if reason is not None and gpu.required:
                raise TargetError("gpu_monitor", f"GPU data is required and not available: {reason}")
        server = context.scenario.monitors.server
        if server.enabled:
            watch = ServerWatch(target, facts.instance, context.run, context.files, server.interval_s)
            await stack.enter_async_context(watch)
        if not arm.tells_its_log:
            return LogReading()
        stack.push_async_callback(context.host.unwatch_log)
        log = await context.host.watch_log(arm_name, arm)
        context.journal.append("server_log", arm=arm_name, part=log.part, reason=log.reason)
        return log


def _ledger_name(target: Target, facts: Facts) -> str:
    """One ledger an instance; an engine that hides its restarts keeps one for ever, by address."""
    if facts.instance is not None:
        return f"{target.engine.name}-{facts.instance}"
    return f"{target.engine.name}-" + "".join(c if c.isalnum() else "_" for c in target.endpoint.url)
