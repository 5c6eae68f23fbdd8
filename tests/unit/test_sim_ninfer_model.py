"""The simulated ninfer-like engine: memory of a context, rounds of drafts, answers that a gate can judge."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.errors import ConfigError
from raybench.sim.ninfer_model import Artifact, Backend, decode, reply

ROOT = Path(__file__).parents[2]
ARTIFACTS = {
    path.name.partition(".")[0]: Artifact.read(path)
    for path in (ROOT / "scenarios" / "artifacts").glob("*.sim-artifact.json")
}
V3 = ARTIFACTS["coder-v3"]
LONG = "why " * 100


def ask(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def test_the_contexts_of_the_second_seed_fit_and_fail_as_there() -> None:
    with (ROOT / "tests/golden/seed2/ninfer_context_probe.csv").open(newline="") as file:
        for told in csv.DictReader(file):
            slack = V3.slack_mib(int(told["max_context"]), "dflash2")
            assert (slack >= 0) == (told["fits"] == "yes")
            assert slack == pytest.approx(float(told["slack_mib"]), abs=8)


@pytest.mark.parametrize(
    ("backend", "drafts", "rate"), [("mtp", 3, 0.703), ("dflash2", 7, 0.439), ("none", 3, None)]
)
def test_drafts_are_accepted_about_as_often_as_in_the_seed(
    backend: Backend, drafts: int, rate: float | None
) -> None:
    made = decode(V3, backend, drafts, 6000, 100, "key")
    if rate is None:
        assert (made.drafted, made.rounds) == (0, 5999)
    else:
        assert made.accepted / made.drafted == pytest.approx(rate, abs=0.02)


@given(tokens=st.integers(1, 400), drafts=st.integers(0, 8))
def test_rounds_and_accepted_drafts_make_all_tokens_but_the_first(tokens: int, drafts: int) -> None:
    made = decode(V3, "mtp", drafts, tokens, 10, "key")
    assert made.rounds + made.accepted == tokens - 1
    assert made.accepted <= made.drafted


def test_an_answer_is_cut_at_its_budget_and_may_be_all_reasoning() -> None:
    cut = reply(V3, ask(LONG, reasoning_effort="high"), 50)
    assert (cut.tokens, cut.finish, cut.content) == (50, "length", "")
    whole = reply(V3, ask(LONG), 100_000)
    assert whole.finish == "stop"
    assert whole.content
    assert whole == reply(V3, ask(LONG), 100_000)


def test_what_a_gate_asks_is_understood() -> None:
    assert reply(V3, ask("What is 17 * 23?"), 99).content == "391"
    stopped = reply(V3, ask("Count from 1 to 20", stop=["12"]), 99)
    assert (stopped.content, stopped.finish) == ("1 2 3 4 5 6 7 8 9 10 11 ", "stop")
    schema = {"type": "object", "properties": {"a": {"type": "array"}, "b": {"enum": [3]}}}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    assert json.loads(reply(V3, ask("x", response_format=form), 99).content) == {"a": ["text"], "b": 3}
    tools = [{"function": {"name": "f", "parameters": schema}}]
    assert reply(V3, ask("x", tools=tools), 99).call["name"] == "f"
    assert reply(ARTIFACTS["coder-v2"], ask("x", tools=tools), 99).call is None


@pytest.mark.parametrize(
    ("fields", "budget"),
    [({"tools": [{}]}, 9), ({"tools": "f"}, 9), ({"response_format": "json"}, 9), ({}, 0), ({}, -5)],
)
def test_what_cannot_be_read_or_may_hold_no_token_is_refused(fields: dict[str, Any], budget: int) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|a budget of"):
        reply(V3, ask("x", **fields), budget)


def test_code_in_a_long_prompt_is_no_question() -> None:
    assert reply(V3, ask(LONG + "64 * 1024; the access code of the archive is {x}."), 10).tokens == 10


def test_a_file_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    with pytest.raises(ConfigError, match="not an artifact"):
        Artifact.read(tmp_path / "x")
