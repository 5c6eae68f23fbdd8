"""Prompt sets and gates in the coordinator's hands: what is sent, flushed, journalled, stopped and marked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from protocol_fakes import FakeControl, FakeEngine, Stage, scenario

from raybench.engines import ENGINES
from raybench.engines.contract import Reply
from raybench.errors import EXIT_TARGET
from raybench.load.order import Endpoint
from raybench.records.strict_json import read_json
from raybench.scenario.gate import Gate, GateCheck
from raybench.scenario.schema import Scenario

SET = """  - name: set
    input_tokens: 64
    output_tokens: 9
    concurrency: [1, 2]
    prompt_set:
      cold_by: {cold_by}
      extra_body: {{reasoning_effort: low}}
      prompts:
        - {{name: first, path: first.md, output_tokens: 4}}
        - {{name: second, path: second.md}}"""


def prompt_set(folder: Path, cold_by: str = "flush", gate: Gate | None = None) -> Scenario:
    for name in ("first.md", "second.md"):
        (folder / name).write_text(f"{name} é\n")
    return scenario(SET.format(cold_by=cold_by)).model_copy(update={"gate": gate})


def gate(on_failure: Literal["stop", "mark"]) -> Gate:
    checks = [
        GateCheck(name="sum", kind="answer", prompt="1+1", equals="2"),
        GateCheck(name="json", kind="json", prompt="a book"),
    ]
    return Gate(checks=checks, on_failure=on_failure)


class Chatting(FakeControl):
    """Says `2` to everything: right for the first check, and valid JSON unless `json` is broken."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    async def request(self, method: str, path: str, **_: Any) -> Reply:
        choice = {"message": {"content": self._text}, "finish_reason": "stop"}
        return Reply(200, orjson.dumps({"choices": [choice], "usage": {"completion_tokens": 1}}))


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine behind every stage of a test."""
    made = FakeEngine()
    monkeypatch.setitem(ENGINES, "sglang", made)
    return made


class GateStage(Stage):
    """The engine behind the stage answers chat requests with `said`."""

    said = "2"

    def make_control(self, _endpoint: Endpoint, _admin_key: str | None) -> FakeControl:
        self.controls.append(Chatting(self.said))
        return self.controls[-1]


def play(stage: Stage) -> Any:
    return asyncio.run(stage.play())


def test_prompts_are_sent_in_turn_each_with_its_own_budget(tmp_path: Path, engine: FakeEngine) -> None:
    stage = Stage(tmp_path, prompt_set(tmp_path), engine)
    assert play(stage).exit_code == 0
    orders = [order for order in stage.fleet.orders if order.point_id == "arm/set/c1"]
    assert {order.phase for order in orders} == {"load"}
    order = orders[0]
    assert [order.prompt_of(ticket).name for ticket in range(2)] == ["first", "second"]  # type: ignore[union-attr]
    assert [order.shape_of(ticket).output_tokens for ticket in range(2)] == [4, 9]
    assert order.shape_of(0).extra_body == {"reasoning_effort": "low"}
    assert order.shape.ignore_eos is False


def test_the_journal_names_what_was_sent_by_its_digest(tmp_path: Path, engine: FakeEngine) -> None:
    stage = Stage(tmp_path, prompt_set(tmp_path), engine)
    play(stage)
    started = stage.events("attempt_started")[0]
    assert [entry["name"] for entry in started["prompts"]] == ["first", "second"]
    assert all(len(entry["sha256"]) == 64 for entry in started["prompts"])
    assert "windows" not in started


def test_a_set_that_is_cold_by_flush_is_flushed_before_every_attempt(tmp_path: Path, engine: FakeEngine) -> None:
    stage = Stage(tmp_path, prompt_set(tmp_path), engine)
    play(stage)
    assert stage.steps().count("flush") == 2


def test_a_set_without_prefix_reuse_is_not_flushed_and_not_tried_again(tmp_path: Path, engine: FakeEngine) -> None:
    stage = Stage(tmp_path, prompt_set(tmp_path, "no_prefix_reuse"), engine)
    stage.engine.always_hit = True
    play(stage)
    assert "flush" not in stage.steps()
    assert stage.verdicts() == ["void"]


def test_a_gate_that_is_passed_is_told_and_kept(tmp_path: Path, engine: FakeEngine) -> None:
    stage = GateStage(tmp_path, prompt_set(tmp_path, gate=gate("stop")), engine)
    assert play(stage).exit_code == 0
    (told,) = stage.events("gate")
    assert (told["arm"], told["ok"], told["summary"]) == ("arm", True, "2/2")
    assert read_json(stage.run.arm("arm") / "gate.json")["checks"][0]["answers"][0]["text"] == "2"


def test_a_gate_that_fails_stops_the_run_before_anything_is_measured(tmp_path: Path, engine: FakeEngine) -> None:
    stage = GateStage(tmp_path, prompt_set(tmp_path, gate=gate("stop")), engine)
    stage.said = "no"
    outcome = play(stage)
    assert outcome.exit_code == EXIT_TARGET
    assert "quality gate 0/2: sum, json failed; 2 must pass" in outcome.reason
    assert not stage.events("attempt_started")


def test_a_gate_that_fails_may_only_mark_every_point(tmp_path: Path, engine: FakeEngine) -> None:
    stage = GateStage(tmp_path, prompt_set(tmp_path, gate=gate("mark")), engine)
    stage.said = "no"
    assert play(stage).exit_code == 0
    marked = [[one["code"] for one in event["findings"]] for event in stage.events("verdict")]
    assert all("gate_failed" in codes for codes in marked)
    assert len(marked) == 2


def test_the_servers_log_comes_into_the_run_directory(tmp_path: Path, engine: FakeEngine) -> None:
    made = prompt_set(tmp_path)
    arm = made.arms["arm"].model_copy(update={"request_log": "/log.jsonl"})
    stage = Stage(tmp_path, made.model_copy(update={"arms": {"arm": arm}}), engine)
    stage.host.files["/log.jsonl"] = b"{}\n" * 3
    play(stage)
    assert [path.read_bytes() for path in stage.run.request_logs("arm")] == [b"{}\n" * 3]
