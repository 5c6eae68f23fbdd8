"""The gate of the first seed's two deployments, asked of the simulated engines that stand in for them."""

import asyncio
import io
from pathlib import Path

import pytest

from raybench.corpus.windows import corpus_need
from raybench.engines import ENGINES
from raybench.load.http import ControlClient
from raybench.load.order import Endpoint
from raybench.protocol.gate import GateResult, run_gate
from raybench.protocol.target import Target
from raybench.records.clock import SystemClock
from raybench.scenario.gate import Gate
from raybench.scenario.load import load_scenario
from raybench.scenario.rehearsal import rehearse
from raybench.scenario.schema import Arm
from raybench.sim.server import serving

SCENARIO = Path(__file__).parents[2] / "scenarios" / "glm53_two_arms.yaml"
REHEARSED = rehearse(load_scenario(SCENARIO), 1000, None, lambda _: False, corpus_need)


async def asked(arm: Arm, gate: Gate) -> GateResult:
    assert arm.sim is not None
    async with serving(arm.sim, log=io.StringIO()) as url:
        endpoint = Endpoint.of_arm(arm, url)
        control = ControlClient(endpoint)
        target = Target("arm", arm, ENGINES[arm.engine], endpoint, [], SystemClock(), asyncio.sleep)
        try:
            return await run_gate(gate, target, control)
        finally:
            await control.close()


@pytest.mark.parametrize(("name", "summary"), [("TP2PP4", "6/7: tool-call failed"), ("TP8+EAGLE3+AR", "7/7")])
def test_the_gate_of_the_night_ends_as_in_the_report(name: str, summary: str) -> None:
    assert REHEARSED.gate is not None
    result = asyncio.run(asked(REHEARSED.arms[name], REHEARSED.gate))
    assert (result.summary, result.ok) == (summary, True)
    needle = next(check for check in result.checks if check.kind == "needle")
    assert needle.input_tokens is not None and needle.input_tokens > 128 * 1024


def test_what_the_simulated_engine_is_asked_wrongly_or_cannot_hold_fails() -> None:
    gate = Gate.model_validate(
        {
            "on_failure": "mark",
            "checks": [
                {"name": "sum", "kind": "answer", "prompt": "What is 17 * 23?", "equals": "392"},
                {"name": "deep", "kind": "needle", "input_tokens": "512k"},
                {"name": "short", "kind": "reasoning", "prompt": "What is 2 * 2?", "output_tokens": 3},
                {"name": "other", "kind": "stop", "prompt": "Tell me more.", "stop": "xyz", "output_tokens": 9},
            ],
        }
    )
    result = asyncio.run(asked(REHEARSED.arms["TP8+EAGLE3+AR"], gate))
    assert result.summary == "0/4: sum, deep, short, other failed"
    details = {check.name: check.detail for check in result.checks}
    assert "longer than the model's context" in details["deep"]
    assert "only reasoning" in details["short"]
    assert "did not end by" in details["other"]
