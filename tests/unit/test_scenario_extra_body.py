"""What a scenario adds to the bodies of requests: one name, one rule, and never what raybench sets itself."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from raybench.engines import ENGINES
from raybench.engines.contract import RequestShape
from raybench.errors import ConfigError
from raybench.scenario.extra_body import OWN_FIELDS, merged
from raybench.scenario.load import parse_scenario
from raybench.scenario.schema import Route

SCENARIO = """\
name: added
arms:
  mine: {{url: "http://host:1", extra_body: {arm}}}
workloads:
  - name: w
    input_tokens: 1k
    output_tokens: 8
    concurrency: [1]
    prompt_set:
      cold_by: flush
      extra_body: {set}
      prompts: [{{name: one, path: one.md, extra_body: {prompt}}}]
gate:
  checks:
    - {{name: q, kind: answer, prompt: "2 * 3", equals: "6", extra_body: {question}}}
"""
PLACES = {
    "arm": "arms.mine",
    "set": "workloads[0].prompt_set",
    "prompt": "workloads[0].prompt_set.prompts[0]",
    "question": "gate.checks[0]",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", OWN_FIELDS)
def test_what_raybench_sets_itself_is_refused_where_it_stands(place: str, name: str) -> None:
    bodies = dict.fromkeys(PLACES, "{}") | {place: f"{{top_k: 5, {name}: false}}"}
    with pytest.raises(ConfigError) as caught:
        parse_scenario(SCENARIO.format(**bodies), "s.yaml")
    [problem] = caught.value.problems
    assert (problem.path, problem.value) == (f"{PLACES[place]}.extra_body.{name}", "false")
    assert problem.message == "raybench sets this field itself: leave it out"


@pytest.mark.parametrize("prompt", ["corpus", "text"])
@pytest.mark.parametrize(
    ("engine", "route"),
    [(name, route) for name in ENGINES for route in ("generate", "completions", "chat")
     if route != "generate" or name == "sglang"],
)  # fmt: skip
def test_every_field_that_an_engine_puts_prompt_or_id_into_is_refused(
    engine: str, route: Route, prompt: Literal["corpus", "text"]
) -> None:
    template = ENGINES[engine].template(RequestShape(route, 1, 8, prompt=prompt))
    stand_ins = {"ids": b"424242", "text": b"424242", "messages": b'{"role":"user","content":"424242"}'}
    body = json.loads(template.render("rid-424242", stand_ins[template.prompt]))
    own = {name for name, value in body.items() if "424242" in json.dumps(value)}
    assert own and own <= set(OWN_FIELDS)
    assert "stream" in body


def test_objects_merge_key_by_key_and_all_else_replaces() -> None:
    under = {"a": {"x": 1, "y": {"z": 1}}, "b": [1, 2], "c": 1}
    over = {"a": {"y": {"w": 2}}, "b": [3], "c": {"d": 1}}
    assert merged(under, over) == {"a": {"x": 1, "y": {"z": 1, "w": 2}}, "b": [3], "c": {"d": 1}}
    assert under["a"] == {"x": 1, "y": {"z": 1}}
