"""What a gate check asks and how its answers are judged. Pure; carried out by `protocol/gate.py`."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Sequence

import jsonschema

from raybench.engines.contract import Answer
from raybench.scenario.gate import GateCheck

#: Rough length of a token of the needle's text; the server's own count is told beside it.
CHARACTERS_PER_TOKEN = 4
_EXCERPT = 120
_WORDS = ("amber", "basin", "cargo", "delta", "ember", "field", "grain", "harbor", "inlet", "jetty", "kernel")


def question(check: GateCheck) -> str:
    """The user's message."""
    if check.kind == "needle":
        return _haystack(check)
    assert check.prompt is not None, "the schema asks for it"
    return check.prompt


def fields(check: GateCheck) -> dict[str, object]:
    """What the kind adds to the request body."""
    return {"stop": [check.stop]} if check.kind == "stop" else {}


def times(check: GateCheck) -> int:
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
            return None if wanted in answer.text else f"{wanted} is not in the answer: {excerpt(answer)}"
        case "reasoning":
            return _judge_reasoning(answer)
        case "stop":
            return _judge_stop(check, answer)
        case "determinism":
            return _judge_alike(answers)


def excerpt(answer: Answer) -> str:
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
        return None if text == check.equals.strip() else f"not {check.equals!r}: {excerpt(answer)}"
    assert check.matches is not None, "the schema asks for one of both"
    return None if re.search(check.matches, text) else f"{check.matches!r} is not found in {excerpt(answer)}"


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
        return f"no tool call came: {excerpt(answer)}"
    call = answer.tool_calls[0]
    if call.name != check.tool:
        return f"the call is of {call.name!r}, not of {check.tool!r}"
    return _judge_json(check, call.arguments, "the arguments of the call")


def _judge_reasoning(answer: Answer) -> str | None:
    if not answer.reasoning.strip():
        return f"no reasoning came: {excerpt(answer)}"
    return None if answer.text.strip() else f"{excerpt(answer)} (finish reason {answer.finish_reason})"


def _judge_stop(check: GateCheck, answer: Answer) -> str | None:
    assert check.stop is not None, "the schema asks for it"
    if check.stop in answer.text:
        return f"the answer holds the stop text {check.stop!r}: {excerpt(answer)}"
    if answer.finish_reason != "stop":
        return f"it did not end by {check.stop!r} but by {answer.finish_reason!r}: {excerpt(answer)}"
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
