"""`--simulate`: what is measured stays, what it is measured on is simulated."""

from pathlib import Path

import pytest

from raybench.corpus.windows import corpus_need
from raybench.scenario.load import effective, load_scenario, parse_scenario
from raybench.scenario.plan import make_plan
from raybench.scenario.rehearsal import rehearse
from raybench.scenario.schema import Scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def rehearsed(scenario: Scenario, has: str = "") -> Scenario:
    return rehearse(scenario, 20, None, lambda path: path == has, corpus_need)


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_scenario_can_be_rehearsed_with_its_points(path: Path) -> None:
    real = load_scenario(path)
    simulated = rehearsed(real)
    assert simulated.name.endswith("-simulated")
    assert all(arm.sim is not None and arm.url is None and arm.launch is None for arm in simulated.arms.values())
    ids = [point.point_id for point in make_plan(real).points]
    assert [point.point_id for point in make_plan(simulated).points] == ids
    need = max(map(corpus_need, make_plan(simulated).windows.values()), default=0)
    assert simulated.corpus.synthetic is not None
    assert simulated.corpus.synthetic.tokens >= need
    assert effective(Scenario.model_validate(effective(simulated))) == effective(simulated)


def test_the_two_deployments_of_the_first_seed_are_simulated_as_themselves() -> None:
    real = load_scenario(SCENARIOS / "glm53_two_arms.yaml")
    simulated = rehearsed(real)
    profiles = {name: arm.sim and arm.sim.profile for name, arm in simulated.arms.items()}
    assert profiles == {"TP2PP4": "tp2pp4", "TP8+EAGLE3+AR": "tp8_eagle3"}
    skips = [point.skip_reason for point in make_plan(simulated).points]
    assert skips == [point.skip_reason for point in make_plan(real).points]


def test_artifacts_that_this_host_has_are_still_hashed() -> None:
    real = load_scenario(SCENARIOS / "glm53_two_arms.yaml")
    model = real.arms["TP2PP4"].inventory.artifacts[0]
    assert rehearsed(real).arms["TP2PP4"].inventory.artifacts == []
    assert rehearsed(real, has=model).arms["TP2PP4"].inventory.artifacts == [model]


def test_an_arm_without_limits_gets_a_profile_that_holds_its_longest_request() -> None:
    scenario = parse_scenario(
        "name: n\narms: {a: {url: 'http://h:1', engine: vllm}}\ncorpus: {path: x.npy}\n"
        "workloads: [{name: w, input_tokens: 100k, output_tokens: 1, concurrency: [1]}]\n",
        "n.yaml",
    )
    arm = rehearsed(scenario).arms["a"]
    assert arm.sim is not None
    assert (arm.sim.profile, arm.effective_route, arm.engine) == ("tp8_eagle3", "completions", "sglang")


def test_a_simulated_arm_stays_as_it_is() -> None:
    real = load_scenario(SCENARIOS / "two_arms_sim.yaml")
    assert rehearsed(real).arms == real.arms
