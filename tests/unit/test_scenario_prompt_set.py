"""What a prompt set and a gate may say, and what is refused because it could not be true."""

from __future__ import annotations

import pytest

from raybench.errors import ConfigError
from raybench.scenario.load import effective, parse_scenario
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Scenario

SCENARIO = """
name: test
arms: {{arm: {{url: "http://target:1"}}}}
workloads:
  - name: set
    input_tokens: 1k
    output_tokens: 100
    concurrency: [1]
    {more}
    prompt_set: {{prompts: [{{name: a, path: a}}, {{name: b, path: b}}], {set}}}
{top}
"""
CHECKS = "gate: {{checks: [{}]}}"


def scenario(set: str = "cold_by: flush", more: str = "", top: str = "") -> Scenario:
    return parse_scenario(SCENARIO.format(set=set, more=more, top=top), "test.yaml")


def gate(*checks: str) -> Scenario:
    return scenario(top=CHECKS.format(", ".join(checks)))


def test_a_set_needs_no_corpus_and_no_prewarm_and_lets_answers_end() -> None:
    made = scenario()
    point = make_plan(made).points[0]
    assert (point.requests, point.prewarm_requests, point.prompt_set) == (2, 0, True)
    assert made.corpus is None
    assert effective(made)["workloads"][0]["ignore_eos"] is False
    assert make_plan(made).windows == {"arm": {}}


def test_the_whole_set_is_sent_as_often_as_it_says() -> None:
    assert make_plan(scenario("cold_by: no_prefix_reuse, repeats: 3")).points[0].requests == 6


@pytest.mark.parametrize(
    ("set", "more", "top", "reason"),
    [
        ("repeats: 2, cold_by: flush", "", "", "nothing is flushed within a point"),
        ("cold_by: flush", "", "guards: {flush: false}", "guards.flush is false"),
        ("repeats: 1", "", "", "cold_by"),
        ("cold_by: flush", "requests: 4", "", "the prompt set says how many"),
        ("cold_by: flush", "prewarm_requests: 1", "", "no other text to prewarm with"),
    ],
)
def test_a_set_that_could_not_be_cold_or_sent_is_refused(set: str, more: str, top: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        scenario(set, more, top)


def test_more_at_once_than_there_are_prompts_is_refused() -> None:
    text = SCENARIO.format(set="cold_by: flush", more="", top="").replace("[1]", "[3]")
    with pytest.raises(ConfigError, match="2 requests can never be 3 at once"):
        parse_scenario(text, "test.yaml")


def test_a_prompt_with_more_than_the_workloads_budget_is_refused() -> None:
    text = SCENARIO.format(set="cold_by: flush", more="", top="").replace(
        "path: a}", "path: a, output_tokens: 101}"
    )
    with pytest.raises(ConfigError, match="the longest that may occur: 100"):
        parse_scenario(text, "test.yaml")


def test_corpus_workloads_still_need_a_corpus() -> None:
    text = "name: t\narms: {a: {url: 'http://t:1'}}\nworkloads: [{name: w, input_tokens: 8, output_tokens: 8,"
    with pytest.raises(ConfigError, match="corpus"):
        parse_scenario(text + " concurrency: [1]}]", "test.yaml")


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ("{name: a, kind: answer, prompt: x}", "exactly one of `equals` and `matches`"),
        ("{name: a, kind: answer, prompt: x, matches: '('}", "regular expression"),
        ("{name: a, kind: json}", "needs a prompt"),
        ("{name: a, kind: json, prompt: x, json_schema: {type: nothing}}", "not a JSON Schema"),
        ("{name: a, kind: needle, prompt: x, input_tokens: 8}", "makes its own text"),
        ("{name: a, kind: needle}", "needs it"),
        ("{name: a, kind: stop, prompt: x}", "needs it"),
        ("{name: a, kind: stop, prompt: x, stop: y, times: 2}", "belongs to a check of kind determinism"),
    ],
)
def test_a_check_that_could_not_be_judged_is_refused(check: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        gate(check)


def test_names_of_checks_differ_and_no_more_are_needed_than_there_are() -> None:
    one = "{name: a, kind: determinism, prompt: x}"
    with pytest.raises(ConfigError, match="another check has this name"):
        gate(one, one)
    with pytest.raises(ConfigError, match="more than there are checks"):
        scenario(top=f"gate: {{needed: 2, checks: [{one}]}}")
