"""The quality gate: how answers are judged, and what a gate says as a whole."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from raybench.engines import ENGINES
from raybench.engines.contract import Answer, Reply, ToolCall
from raybench.load.order import Endpoint
from raybench.protocol.gate import CHARACTERS_PER_TOKEN, GateResult, judge_answers, needle, question, run_gate
from raybench.protocol.target import Target
from raybench.records.clock import SystemClock
from raybench.scenario.gate import Gate, GateCheck
from raybench.scenario.schema import Arm

PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def check(kind: str, **fields: Any) -> GateCheck:
    prompt = {} if kind == "needle" else {"prompt": "x"}
    return GateCheck(name="check", kind=kind, **prompt, **fields)  # type: ignore[arg-type]


def call(arguments: str, name: str = "get_weather") -> Answer:
    return Answer(tool_calls=[ToolCall(name, arguments)])


NEEDLE = check("needle", input_tokens=1000)
PASSING = [
    (check("answer", equals="391"), Answer(text=" 391\n")),
    (check("answer", matches="[0-9]+"), Answer(text="it is 391")),
    (check("json"), Answer(text='{"a": 1}', finish_reason="stop")),
    (check("json", json_schema=PLACE), Answer(text='{"city": "é"}')),
    (check("tool_call", tool="get_weather", json_schema=PLACE), call('{"city": "Oslo"}')),
    (NEEDLE, Answer(text=f"The code is {needle(NEEDLE)}.")),
    (check("reasoning"), Answer(text="12", reasoning="hm")),
    (check("stop", stop="12"), Answer(text="1 2 3", finish_reason="stop")),
]
FAILING = [
    (check("answer", equals="391"), Answer(text="39"), "not '391'"),
    (check("answer", equals="391"), Answer(reasoning="391"), "only reasoning"),
    (check("json"), Answer(text="```json\n{}\n```"), "not JSON"),
    (check("json"), Answer(text="1", finish_reason="length"), "cut off by its budget"),
    (check("json", json_schema=PLACE), Answer(text="{}"), "does not validate"),
    (check("tool_call", tool="get_weather"), Answer(text="<tool_call>"), "no tool call came"),
    (check("tool_call", tool="get_weather"), call("{}", "other"), "the call is of 'other'"),
    (check("tool_call", tool="get_weather", json_schema=PLACE), call("{}"), "does not validate"),
    (check("tool_call", tool="get_weather"), call("{"), "not JSON"),
    (NEEDLE, Answer(text="amber-1"), "is not in the answer"),
    (check("reasoning"), Answer(text="12"), "no reasoning came"),
    (check("reasoning"), Answer(reasoning="hm", finish_reason="length"), "only reasoning"),
    (check("stop", stop="12"), Answer(text="11 12 13", finish_reason="stop"), "holds the stop text"),
    (check("stop", stop="12"), Answer(text="1 2", finish_reason="length"), "did not end by"),
    (check("answer", equals="a"), Answer(error_class="http_error", error_message="HTTP 500"), "HTTP 500"),
]


@pytest.mark.parametrize(("one", "answer"), PASSING)
def test_a_right_answer_passes(one: GateCheck, answer: Answer) -> None:
    assert judge_answers(one, [answer]) is None


@pytest.mark.parametrize(("one", "answer", "why"), FAILING)
def test_a_wrong_answer_fails_and_says_why(one: GateCheck, answer: Answer, why: str) -> None:
    told = judge_answers(one, [answer])
    assert told is not None
    assert why in told


def test_determinism_compares_everything_that_is_said() -> None:
    one = check("determinism")
    assert judge_answers(one, [Answer(text="a"), Answer(text="a")]) is None
    for other in (Answer(text="b"), Answer(text="a", reasoning="r"), Answer(text="a", tool_calls=[ToolCall("f")])):
        assert judge_answers(one, [Answer(text="a"), other]) == "answer 2 of 2 differs from the first"
    assert judge_answers(one, [Answer(), Answer()]) == "the answers are empty"


@pytest.mark.parametrize("depth", [0.0, 0.4, 1.0])
def test_the_needle_lies_as_deep_as_asked_in_a_text_about_as_long(depth: float) -> None:
    one = check("needle", input_tokens=2000, depth=depth)
    text = question(one)
    assert text.count(needle(one)) == 1
    assert abs(text.index(needle(one)) / len(text) - depth) < 0.05
    assert 0.9 < len(text) / CHARACTERS_PER_TOKEN / 2000 < 1.2


@dataclass
class Chat:
    """Answers the questions in turn."""

    replies: list[Reply]
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def request(self, method: str, path: str, *, json: Any = None, **_: Any) -> Reply:
        assert (method, path) == ("POST", "/v1/chat/completions")
        self.asked.append(json)
        return self.replies[len(self.asked) - 1]


def said(text: str, **message: Any) -> Reply:
    choice = {"message": {"content": text, **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    return Reply(200, json.dumps({"choices": [choice], "usage": usage}).encode())


def result_of(gate: Gate, *replies: Reply) -> tuple[GateResult, Chat]:
    chat = Chat(list(replies))
    arm = Arm(engine="llamacpp", url="http://t:1", model="m", extra_body={"seed": 1})
    target = Target(
        "arm", arm, ENGINES["llamacpp"], Endpoint("http://t:1", "llamacpp"), [], SystemClock(), asyncio.sleep
    )
    return asyncio.run(run_gate(gate, target, chat)), chat


TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
GATE = Gate(
    needed=2,
    checks=[
        GateCheck(name="sum", kind="answer", prompt="1+1", equals="2", output_tokens=16),
        GateCheck(
            name="tool-call", kind="tool_call", prompt="go", tool="get_weather", extra_body={"tools": TOOLS}
        ),
        GateCheck(name="same", kind="determinism", prompt="x", times=3),
    ],
)
CALL = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]}


def test_all_checks_passed_is_said_shortly() -> None:
    result, chat = result_of(GATE, said("2"), said("", **CALL), said("y"), said("y"), said("y"))
    assert (result.summary, result.ok) == ("3/3", True)
    first = chat.asked[0]
    assert (first["model"], first["seed"], first["max_tokens"], first["stream"]) == ("m", 1, 16, False)
    assert chat.asked[1]["tools"] == TOOLS
    assert result.checks[0].input_tokens == 9


def test_what_failed_is_named_and_enough_may_still_pass() -> None:
    result, _ = result_of(GATE, said("2"), said("no"), said("y"), said("y"), said("y"))
    assert (result.summary, result.ok) == ("2/3: tool-call failed", True)
    record = result.as_record()
    assert record["passed"] == 2
    assert json.loads(json.dumps(record))["checks"][1]["answers"][0]["text"] == "no"


def test_a_server_that_does_not_answer_fails_its_checks_and_is_not_asked_again_by_the_same() -> None:
    broken = Reply(None, error="no answer within 1 s")
    result, chat = result_of(GATE, broken, broken, broken)
    assert (result.summary, result.ok) == ("0/3: sum, tool-call, same failed", False)
    assert len(chat.asked) == 3
