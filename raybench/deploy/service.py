"""The service in use on the target's host: what it was, how it goes down, how it comes back, and whether it did.

Plain steps without a process of their own; `deploy/keeper.py` runs them in one that outlives raybench.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from raybench.deploy.commands import Ran, run_command
from raybench.engines import ENGINES
from raybench.engines.contract import Facts, RequestShape
from raybench.load.http import ControlClient
from raybench.load.order import Endpoint
from raybench.records.redact import redact_text
from raybench.scenario.schema import Service

POLL_S = 0.2
_EVENT_BYTES_MAX = 64 * 1024 * 1024

#: Of an engine's facts, those that a restart changes.
_CHANGING_FACTS = frozenset({"instance", "raw"})

#: Token ids that exist in every vocabulary, away from its special ones. Each request begins with others.
_FIRST_ID, _IDS = 1000, 4000
_WORDS = ("the", "service", "that", "was", "here", "before", "is", "in", "use", "again")


@dataclass(frozen=True)
class Seen:
    """The service as it was found up. outputs: by command of `verify.unchanged`, what it printed."""

    facts: Mapping[str, Any]
    outputs: Mapping[str, str] = field(default_factory=dict)


class InUse:
    """One service. base: where its commands run, the folder of the scenario file."""

    def __init__(self, service: Service, base: Path) -> None:
        self._service = service
        self._base = base
        arm = service.deployment
        assert arm.url is not None, "a service is reached"
        self._arm = arm
        self._engine = ENGINES[arm.engine]
        self._endpoint = Endpoint.of_arm(arm, arm.url)

    async def look(self, within_s: float = 0.0) -> Seen | str:
        """What it is, once it is up; why that cannot be said when it is not up within the limit."""
        control = self._control()
        deadline = time.monotonic() + within_s
        try:
            while not (reply := await self._engine.alive(control)).ok:
                if time.monotonic() >= deadline:
                    limit = f" within {within_s:g} s" if within_s else ""
                    return f"the service does not answer{limit} at {self._arm.url}: {reply.summary}"
                await asyncio.sleep(POLL_S)
            facts = stable_facts(await self._engine.facts(control))
        finally:
            await control.close()
        outputs = {}
        for command in self._service.verify.unchanged:
            ran = await asyncio.to_thread(self._run, command)
            if ran.failure is not None:
                return f"what must stay unchanged cannot be told: {ran.failure}"
            outputs[command] = ran.output
        return Seen(facts, outputs)

    def take_down(self) -> list[Ran]:
        """In order, up to the first that fails."""
        ran: list[Ran] = []
        for command in self._service.take_down:
            ran.append(self._run(command))
            if ran[-1].failure is not None:
                break
        return ran

    def bring_back(self) -> list[Ran]:
        """All of them, in order."""
        return [self._run(command) for command in self._service.bring_back]

    async def verify(self, before: Seen) -> list[str]:
        """What is not as it was; nothing when the service is back."""
        now = await self.look(self._service.ready_timeout_s)
        if isinstance(now, str):
            return [now]
        check = self._service.verify
        return [
            *differences(before, now),
            *await self._ask(1, check.prompt_tokens, "the request"),
            *await self._ask(check.burst, check.burst_prompt_tokens, "a request of the burst"),
        ]

    async def _ask(self, count: int, tokens: int, what: str) -> list[str]:
        """Send so many requests at once; what went wrong with each."""
        control = self._control(load=True)
        try:
            errors = await asyncio.gather(*(self._request(control, number, tokens) for number in range(count)))
        finally:
            await control.close()
        return [f"{what} of {tokens} tokens failed: {error}" for error in errors if error is not None]

    async def _request(self, control: ControlClient, number: int, tokens: int) -> str | None:
        """One request that is not streamed; why it failed, None when it was answered."""
        check = self._service.verify
        shape = RequestShape(
            route=self._arm.effective_route,
            input_tokens=tokens,
            output_tokens=check.output_tokens,
            model=self._arm.model,
            stream=False,
            extra_body=dict(self._arm.extra_body),
        )
        template = self._engine.template(shape)
        body = template.render(
            f"raybench-verify-{os.getpid()}-{number:08d}", _prompt(template.prompt, number, tokens)
        )
        reply = await control.request(
            "POST", template.path, json=json.loads(body), timeout_s=check.request_timeout_s
        )
        if not reply.ok:
            return reply.summary
        decoder = self._engine.decoder(shape, event_bytes_max=_EVENT_BYTES_MAX)
        decoder.feed(reply.body, time.monotonic_ns())
        answer = decoder.finish(complete=True)
        if answer.error_class is not None:
            return answer.error_message or answer.error_class
        return None if answer.output_tokens else f"an answer without tokens: {reply.summary}"

    def _control(self, *, load: bool = False) -> ControlClient:
        """load: with the key of ordinary requests, not with that of control calls."""
        return ControlClient(self._endpoint, admin_api_key_env=None if load else self._arm.admin_api_key_env)

    def _run(self, command: str) -> Ran:
        return run_command(command, cwd=self._base, timeout_s=self._service.command_timeout_s)


def stable_facts(facts: Facts) -> dict[str, Any]:
    """What an engine says of itself and a restart with the same configuration does not change."""
    return {name: value for name, value in asdict(facts).items() if name not in _CHANGING_FACTS}


def differences(before: Seen, now: Seen) -> list[str]:
    """In sentences without a stop. Secrets in the outputs are not repeated."""
    found = [
        f"{name} was {before.facts[name]}, is {now.facts.get(name)}"
        for name in before.facts
        if before.facts[name] != now.facts.get(name)
    ]
    for command, output in before.outputs.items():
        if now.outputs.get(command) != output:
            found.append(f"the output of `{redact_text(command)}` is another than before")
    return found


def _prompt(kind: str, number: int, tokens: int) -> bytes:
    if kind == "ids":
        return ",".join(str(_FIRST_ID + (number * 977 + k) % _IDS) for k in range(tokens)).encode()
    return (f"{number} " + " ".join(_WORDS[k % len(_WORDS)] for k in range(tokens))).encode()
