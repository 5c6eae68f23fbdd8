"""Cluster files: read by the scenario's reader, they change where a scenario runs and nothing else."""

from pathlib import Path

import pytest

from raybench.cluster.spec import PACKAGE_BYTES_MAX, ClusterSpec, load_cluster, on_cluster
from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.load import effective, read_model
from raybench.scenario.schema import Scenario

SCENARIO = Scenario.model_validate(
    {
        "name": "s",
        "arms": {"a": {"url": "http://a:1"}},
        "workloads": [{"name": "w", "input_tokens": 1, "output_tokens": 1, "concurrency": [1]}],
        "corpus": {"synthetic": {}},
        "load": {"client_nodes": 3, "client_nodes_min": 2, "workers_per_node": 4},
        "placement": {"client_resource": "bench", "target_resource": "gpu", "start_timeout_s": 10},
    }
)


def spec(text: str) -> ClusterSpec:
    return read_model(ClusterSpec, "name: c\naddress: http://head:8265\n" + text, "c.yaml")


def problem_of(text: str) -> ConfigProblem:
    with pytest.raises(ConfigError) as caught:
        spec(text)
    [problem] = caught.value.problems
    return problem


def test_a_cluster_is_its_address_and_defaults() -> None:
    cluster = spec("")
    assert (cluster.token_env, cluster.runs_dir) == (None, "~/raybench-runs")
    assert (cluster.package.ship, cluster.package.max_bytes) == (True, PACKAGE_BYTES_MAX)
    assert PACKAGE_BYTES_MAX == 104_857_600
    assert on_cluster(SCENARIO, cluster) == SCENARIO


def test_what_the_cluster_file_writes_replaces_the_scenario_s_placement_and_nothing_else() -> None:
    cluster = spec(
        "placement: {client_resource: null, client_labels: {role: client}}\nload: {workers_per_node: 1}\n"
    )
    placed = on_cluster(SCENARIO, cluster)
    assert placed.placement.model_dump() == {
        "client_resource": None,
        "client_labels": {"role": "client"},
        "target_resource": "gpu",
        "target_labels": {},
        "start_timeout_s": 10.0,
    }
    assert (placed.load.client_nodes, placed.load.client_nodes_min, placed.load.workers_per_node) == (3, 2, 1)
    before, after = effective(SCENARIO), effective(placed)
    assert {key for key in before if before[key] != after[key]} == {"placement", "load"}
    assert Scenario.model_validate(after).load == placed.load


def test_the_number_of_client_nodes_and_its_least_go_together() -> None:
    one = on_cluster(SCENARIO, spec("load: {client_nodes: 1}\n")).load
    assert (one.client_nodes, one.client_nodes_min) == (1, None)
    least = on_cluster(SCENARIO, spec("load: {client_nodes_min: 5}\n")).load
    assert (least.client_nodes, least.client_nodes_min) == (None, 5)


@pytest.mark.parametrize(
    ("text", "path", "part"),
    [
        ("adress: http://x:1\n", "adress", "unknown key"),
        ("target_resource: gpu\n", "target_resource", "unknown key"),
        ("runs_dir: runs\n", "runs_dir", "not in the right form"),
        ("token_env: ray token\n", "token_env", "not in the right form"),
        ("headers: {Authorization: Bearer x}\n", "headers", "credential"),
        ("runtime_env: {env_vars: {OPENAI_API_KEY: x}}\n", "runtime_env.env_vars", "looks like a secret"),
        ("runtime_env: {env_vars: {A: 1}}\n", "runtime_env.env_vars.A", "not text"),
        ("load: {client_nodes: 1, client_nodes_min: 2}\n", "load.client_nodes_min", "more than client_nodes"),
        ("package: {max_bytes: 104857601}\n", "package.max_bytes", "out of range"),
        ("address: http://head:1\n", "address", "key given twice"),
    ],
)
def test_a_wrong_cluster_file_is_refused_like_a_scenario(text: str, path: str, part: str) -> None:
    problem = problem_of(text)
    assert (problem.path, problem.line) == (path, 3)
    assert part in problem.message


def test_a_placement_key_one_level_too_high_is_told_where_it_belongs() -> None:
    assert problem_of("target_resource: gpu\n").way_out == "move it to `placement.target_resource`"


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_cluster(tmp_path / "c.yaml")
