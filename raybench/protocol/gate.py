"""The quality gate: what an arm must be able to do before it is loaded. Runs in the coordinator.

Questions go to the chat route one after the other, before the first point of the arm; their text is none of the
load's, and each point's own flush and hit check follow. What is asked and how answers are judged is pure.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import jsonschema

from raybench.engines.contract import Answer, Engine, Http, Reply, RequestShape
from raybench.protocol.target import Target
from raybench.protocol.verdict import Finding
from raybench.scenario.extra_body import merged
from raybench.scenario.gate import Gate, GateCheck

CHAT_PATH = "/v1/chat/completions"
#: Rough length of a token of the needle's text; the server's own count is told beside it.
CHARACTERS_PER_TOKEN = 4
_EXCERPT = 120
_WORDS = ("amber", "basin", "cargo", "delta", "ember", "field", "grain", "harbor", "inlet", "jetty", "kernel")


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


def check_gate(gate: GateResult | None) -> Iterator[Finding]:
    """Numbers of an arm that did not pass its gate never stand without saying so."""
    if gate is not None and not gate.ok:
        yield Finding("gate_failed", "warning", f"quality gate not passed: {gate.summary}")


async def _carry_out(check: GateCheck, gate: Gate, target: Target, http: Http) -> CheckResult:
    answers: list[Answer] = []
    for _ in range(_times(check)):
        reply = await http.request("POST", CHAT_PATH, json=_body(check, target), timeout_s=gate.request_timeout_s)
        answers.append(_answer(target.engine, check, reply))
        if answers[-1].error_class is not None:
            break
    wrong = judge_answers(check, answers)
    return CheckResult(
        check.name,
        check.kind,
        wrong is None,
        _excerpt(answers[0]) if wrong is None else wrong,
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
    return merged(merged(body, arm.extra_body) | _fields(check), check.extra_body)


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


def question(check: GateCheck) -> str:
    """The user's message."""
    if check.kind == "needle":
        return _haystack(check)
    assert check.prompt is not None, "the schema asks for it"
    return check.prompt


def _fields(check: GateCheck) -> dict[str, object]:
    """What the kind adds to the request body."""
    return {"stop": [check.stop]} if check.kind == "stop" else {}


def _times(check: GateCheck) -> int:
    """How often the question is asked."""
    return (check.times or 2) if check.kind == "determinism" else 1


def judge_answers(check: GateCheck, answers: Sequence[Answer]) -> str | None:
    """What is wrong; None when the check is passed."""
    for answer in answers:
        if answer.error_class is not None:
            return f"{answer.error_class}: {answer.error_message}"
    answer = answers[0]
    match check.kind:
        case "answer":
            return _judge_text(check, answer)
        case "json":
            return _judge_json(check, answer.text, "the answer") or _cut(answer)
        case "tool_call":
            return _judge_tool_call(check, answer)
        case "needle":
            wanted = needle(check)
            return None if wanted in answer.text else f"{wanted} is not in the answer: {_excerpt(answer)}"
        case "reasoning":
            return _judge_reasoning(answer)
        case "stop":
            return _judge_stop(check, answer)
        case "determinism":
            return _judge_alike(answers)


def _excerpt(answer: Answer) -> str:
    """The start of an answer, for people."""
    text = answer.text.strip()
    if not text:
        return "no answer text" + (", only reasoning" if answer.reasoning else "")
    return repr(text if len(text) <= _EXCERPT else text[:_EXCERPT] + "...")


def needle(check: GateCheck) -> str:
    """The code word that the text hides; another one for each check."""
    digest = hashlib.sha256(check.name.encode()).hexdigest()
    return f"{_WORDS[int(digest[:4], 16) % len(_WORDS)]}-{int(digest[4:10], 16) % 90000 + 10000}"


def _haystack(check: GateCheck) -> str:
    assert check.input_tokens is not None, "the schema asks for it"
    chance = random.Random(check.name)
    lines: list[str] = []
    length = 0
    while length < check.input_tokens * CHARACTERS_PER_TOKEN:
        words = " ".join(chance.choices(_WORDS, k=10))
        lines.append(f"Entry {len(lines) + 1}: {words}.")
        length += len(lines[-1]) + 1
    depth = 0.5 if check.depth is None else check.depth
    lines.insert(round(depth * len(lines)), f"The access code of the archive is {needle(check)}.")
    ask = "What is the access code of the archive? Answer with the code alone."
    return "\n".join(["Read these entries.", *lines, ask])


def _judge_text(check: GateCheck, answer: Answer) -> str | None:
    text = answer.text.strip()
    if check.equals is not None:
        return None if text == check.equals.strip() else f"not {check.equals!r}: {_excerpt(answer)}"
    assert check.matches is not None, "the schema asks for one of both"
    return None if re.search(check.matches, text) else f"{check.matches!r} is not found in {_excerpt(answer)}"


def _judge_json(check: GateCheck, text: str, what: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"{what} is not JSON ({error}): {text.strip()[:_EXCERPT]!r}"
    if check.json_schema is None:
        return None
    wrong = next(jsonschema.Draft202012Validator(check.json_schema).iter_errors(value), None)
    return None if wrong is None else f"{what} does not validate at {wrong.json_path}: {wrong.message}"


def _judge_tool_call(check: GateCheck, answer: Answer) -> str | None:
    if not answer.tool_calls:
        return f"no tool call came: {_excerpt(answer)}"
    call = answer.tool_calls[0]
    if call.name != check.tool:
        return f"the call is of {call.name!r}, not of {check.tool!r}"
    return _judge_json(check, call.arguments, "the arguments of the call")


def _judge_reasoning(answer: Answer) -> str | None:
    if not answer.reasoning.strip():
        return f"no reasoning came: {_excerpt(answer)}"
    return None if answer.text.strip() else f"{_excerpt(answer)} (finish reason {answer.finish_reason})"


def _judge_stop(check: GateCheck, answer: Answer) -> str | None:
    assert check.stop is not None, "the schema asks for it"
    if check.stop in answer.text:
        return f"the answer holds the stop text {check.stop!r}: {_excerpt(answer)}"
    if answer.finish_reason != "stop":
        return f"it did not end by {check.stop!r} but by {answer.finish_reason!r}: {_excerpt(answer)}"
    return None


def _judge_alike(answers: Sequence[Answer]) -> str | None:
    told = [(answer.text, answer.reasoning, _calls(answer)) for answer in answers]
    if not any(told[0]):
        return "the answers are empty"
    differing = [number for number, one in enumerate(told[1:], start=2) if one != told[0]]
    return f"answer {differing[0]} of {len(answers)} differs from the first" if differing else None


def _calls(answer: Answer) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in answer.tool_calls]


def _cut(answer: Answer) -> str | None:
    return "the answer was cut off by its budget" if answer.finish_reason == "length" else None
