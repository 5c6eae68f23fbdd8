"""The quality gate: what an arm must be able to do before it is loaded. Runs in the coordinator.

Questions go to the chat route one after the other, before the first point of the arm; their text is none of the
load's, and each point's own flush and hit check follow.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from raybench.engines.contract import Answer, Engine, Http, Reply, RequestShape
from raybench.protocol.gate_checks import excerpt, fields, judge_answers, question, times
from raybench.protocol.target import Target
from raybench.scenario.extra_body import merged
from raybench.scenario.gate import Gate, GateCheck

CHAT_PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class CheckResult:
    """detail: what is wrong, or the start of the answer. input_tokens: of the question, by the server's count."""

    name: str
    kind: str
    passed: bool
    detail: str
    input_tokens: int | None
    answers: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class GateResult:
    """needed: how many checks had to pass."""

    needed: int
    checks: tuple[CheckResult, ...]

    @property
    def passed(self) -> int:
        return sum(check.passed for check in self.checks)

    @property
    def ok(self) -> bool:
        return self.passed >= self.needed

    @property
    def summary(self) -> str:
        """`7/7`, or `6/7: tool-call failed`."""
        failed = [check.name for check in self.checks if not check.passed]
        counted = f"{self.passed}/{len(self.checks)}"
        return f"{counted}: {', '.join(failed)} failed" if failed else counted

    def as_record(self) -> dict[str, object]:
        """Everything, answers included."""
        told = {"summary": self.summary, "ok": self.ok, "passed": self.passed, "needed": self.needed}
        return {**told, "checks": [asdict(check) for check in self.checks]}


async def run_gate(gate: Gate, target: Target, http: Http) -> GateResult:
    """Ask everything. A request that fails fails its check."""
    checks = [await _carry_out(check, gate, target, http) for check in gate.checks]
    return GateResult(gate.effective_needed, tuple(checks))


async def _carry_out(check: GateCheck, gate: Gate, target: Target, http: Http) -> CheckResult:
    answers: list[Answer] = []
    for _ in range(times(check)):
        reply = await http.request("POST", CHAT_PATH, json=_body(check, target), timeout_s=gate.request_timeout_s)
        answers.append(_answer(target.engine, check, reply))
        if answers[-1].error_class is not None:
            break
    wrong = judge_answers(check, answers)
    return CheckResult(
        check.name,
        check.kind,
        wrong is None,
        excerpt(answers[0]) if wrong is None else wrong,
        answers[0].input_tokens,
        tuple(_told(answer) for answer in answers),
    )


def _body(check: GateCheck, target: Target) -> dict[str, object]:
    arm = target.arm
    body: dict[str, object] = {} if arm.model is None else {"model": arm.model}
    body |= {
        "messages": [{"role": "user", "content": question(check)}],
        "max_tokens": check.output_tokens,
        "temperature": 0.0,
        "stream": False,
    }
    return merged(merged(body, arm.extra_body) | fields(check), check.extra_body)


def _answer(engine: Engine, check: GateCheck, reply: Reply) -> Answer:
    if not reply.ok:
        return Answer(error_class="http_error", error_message=reply.summary)
    shape = RequestShape("chat", 1, check.output_tokens, stream=False, prompt="text")
    decoder = engine.decoder(shape, event_bytes_max=len(reply.body) + 1)
    decoder.feed(reply.body, 0)
    return decoder.finish(complete=True)


def _told(answer: Answer) -> dict[str, object]:
    return {
        "text": answer.text,
        "reasoning": answer.reasoning,
        "tool_calls": [asdict(call) for call in answer.tool_calls],
        "finish_reason": answer.finish_reason,
        "output_tokens": answer.output_tokens,
        "error": answer.error_message,
    }
