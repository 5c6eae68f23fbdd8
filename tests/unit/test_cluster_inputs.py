"""A resumed run replays the traces, and sends the text, that it began with."""

from pathlib import Path

import numpy as np
import pytest

from raybench.cluster.inputs import Inputs, refuse_changed
from raybench.errors import RunDirectoryError
from raybench.scenario.load import parse_scenario
from raybench.scenario.schema import Scenario

SCENARIO = """
name: test
arms: {arm: {url: "http://target:30000"}}
workloads:
  - {name: w, input_tokens: 64, output_tokens: 4, trace: {path: t.csv}, requests: 1}
corpus: {synthetic: {tokens: 4096}}
"""


def test_a_trace_that_has_changed_is_refused_on_resume(tmp_path: Path) -> None:
    scenario = parse_scenario(SCENARIO, "test.yaml")

    def told() -> dict[str, object]:
        return Inputs.read(scenario, tmp_path).told(scenario, tmp_path)

    path = tmp_path / "t.csv"
    path.write_text("timestamp_s\n0\n")
    before = told()
    refuse_changed({}, before)
    refuse_changed(before, told())
    path.write_text("timestamp_s\n1\n")
    with pytest.raises(RunDirectoryError, match="the trace of w has changed since the run began"):
        refuse_changed(before, told())


def test_a_corpus_that_has_changed_is_refused_on_resume(tmp_path: Path) -> None:
    given = {"name": "s", "arms": {"a": {"url": "http://t:1"}}, "corpus": {"path": "ids.npy"}}
    given["workloads"] = [{"name": "w", "input_tokens": 64, "output_tokens": 4, "concurrency": [1]}]
    scenario = Scenario.model_validate(given)
    told = []
    for first in (0, 0, 1):
        np.save(tmp_path / "ids.npy", np.arange(first, first + 4096, dtype=np.int32))
        told.append(Inputs.read(scenario, tmp_path).told(scenario, tmp_path))
    refuse_changed(told[0], told[1])
    with pytest.raises(RunDirectoryError, match=r"the corpus ids\.npy has changed since the run began"):
        refuse_changed(told[0], told[2])


def test_a_prompt_that_has_changed_is_refused_on_resume() -> None:
    before, now = ({"prompt_sets": {"w": [{"name": "p1", "sha256": digest}]}} for digest in ("a" * 64, "b" * 64))
    refuse_changed(before, before)
    with pytest.raises(RunDirectoryError, match="prompt p1 of w has changed since the run began"):
        refuse_changed(before, now)
