"""What the simulated engines understand, and what they do not."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.protocol.gate import needle, question
from raybench.scenario.gate import GateCheck
from raybench.sim.questions import Said, say, understood

PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PLACE}}]


def answer(text: str, *, thinks: bool = False, tool_parser: bool = True, **fields: Any) -> Said | None:
    body = {"messages": [{"role": "user", "content": text}], **fields}
    return understood(body, thinks=thinks, tool_parser=tool_parser)


def content(said: Said | None) -> str:
    assert said is not None
    return said.shown(0, said.tokens)[1]


def test_the_code_word_is_read_from_the_text_and_from_nowhere_else() -> None:
    check = GateCheck(name="deep", kind="needle", input_tokens=2000, depth=0.9)
    text = question(check)
    assert content(answer(text)) == needle(check)
    lost = text.replace(needle(check), "amber-1")
    assert content(answer(lost)) == "amber-1"
    without = "\n".join(line for line in text.splitlines() if needle(check) not in line)
    assert content(answer(without)) == "It is not told."


def test_a_sum_is_worked_out_and_a_count_ends_before_the_stop_text() -> None:
    assert content(answer("What is 31 * 29?")) == "899"
    assert content(answer("Count from 1 to 20.", stop=["12"])) == "1 2 3 4 5 6 7 8 9 10 11 "
    assert content(answer("Count from 1 to 3.", stop="9")) == "1 2 3"


def test_figures_in_a_long_text_are_no_question() -> None:
    assert answer("why " * 100 + "64 * 1024") is None
    assert answer("Name three prime numbers.") is None


def test_without_a_parser_a_tool_call_is_text() -> None:
    called = answer("Weather?", tools=TOOLS)
    assert called is not None and called.call is not None
    assert (called.call["name"], json.loads(called.call["arguments"])) == ("get_weather", {"city": "text"})
    assert content(called) == ""
    told = answer("Weather?", tools=TOOLS, tool_parser=False)
    assert told is not None and told.call is None
    assert content(told).startswith("<tool_call>get_weather ")


def test_only_a_model_that_thinks_has_thoughts() -> None:
    thinking, plain = answer("2 * 3", thinks=True), answer("2 * 3")
    assert thinking is not None and plain is not None
    assert thinking.shown(0, thinking.tokens) == ("Let me see. Simple enough.", "6")
    assert plain.shown(0, plain.tokens) == ("", "6")


@given(
    thought=st.text(alphabet="ab \n", max_size=20), spoken=st.text(alphabet="cd \n", max_size=20), data=st.data()
)
def test_wherever_an_answer_is_cut_its_parts_make_the_whole(
    thought: str, spoken: str, data: st.DataObject
) -> None:
    said = say(thought, spoken)
    cuts = sorted(data.draw(st.lists(st.integers(0, said.tokens), max_size=4)))
    bounds = [0, *cuts, said.tokens]
    parts = [said.shown(begin, end) for begin, end in pairwise(bounds)]
    assert ("".join(r for r, _ in parts), "".join(c for _, c in parts)) == said.shown(0, said.tokens)
    assert said.shown(0, said.tokens)[1].strip() == spoken.strip()


@pytest.mark.parametrize("schema", [PLACE, {"type": "array", "items": {"enum": [3]}}, {"type": "boolean"}])
def test_json_is_made_after_its_schema(schema: dict[str, Any]) -> None:
    check = GateCheck(name="json", kind="json", prompt="x", json_schema=schema)
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    value = json.loads(content(answer(str(check.prompt), response_format=form)))
    assert value in ({"city": "text"}, [3], True)
