"""Every shipped scenario and cluster file loads and says what its comments say; the documentation is complete."""

import csv
import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raybench.cluster.spec import ClusterSpec, load_cluster
from raybench.scenario.fields import Shape, describe, models_below
from raybench.scenario.load import load_scenario, parse_scenario
from raybench.scenario.plan import Point, make_plan
from raybench.scenario.schema import Scenario
from raybench.scenario.yamltext import read_yaml

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
CLUSTERS = sorted((ROOT / "clusters").glob("*.yaml"))
DOCUMENT = (ROOT / "docs" / "SCENARIOS.md").read_text(encoding="utf-8")
MODELS = [*models_below(Scenario), *(m for m in models_below(ClusterSpec) if m not in models_below(Scenario))]


def points_of(name: str) -> tuple[Point, ...]:
    return make_plan(load_scenario(ROOT / "scenarios" / name)).points


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_every_shipped_scenario_loads_and_has_something_to_measure(path: Path) -> None:
    plan = make_plan(load_scenario(path))
    assert plan.measured or plan.searches


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.name)
def test_every_shipped_cluster_file_loads(path: Path) -> None:
    assert load_cluster(path).name == path.stem


def test_there_are_shipped_files() -> None:
    assert {"16k.yaml", "demo.yaml", "glm53_matrix.yaml"} <= {path.name for path in SCENARIOS}
    assert {"two-node.yaml", "onprem.yaml"} <= {path.name for path in CLUSTERS}


def test_the_two_matrix_files_make_the_first_seed_s_44_points_and_its_4_skips(golden: Path) -> None:
    points = [*points_of("16k.yaml"), *points_of("glm53_matrix.yaml")]
    planned = {
        (p.arm, p.input_tokens, p.output_tokens, p.concurrency): p.requests
        for p in points
        if p.skip_reason is None
    }
    with (golden / "seed1" / "report_appendix_b.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 44
    assert planned == {
        (row["arm"], int(row["input_len"]), int(row["output_len"]), int(row["concurrency"])): int(row["nreq"])
        for row in rows
    }
    assert [p.point_id for p in points if p.skip_reason is not None] == [
        "TP8+EAGLE3+AR/256k-1/c2",
        "TP8+EAGLE3+AR/256k-1/c3",
        "TP8+EAGLE3+AR/512k-1/c1",
        "TP8+EAGLE3+AR/896k-1/c1",
    ]


def test_the_matrix_marks_the_first_seed_s_queueing_points() -> None:
    points = [*points_of("16k.yaml"), *points_of("glm53_matrix.yaml")]
    assert [p.point_id for p in points if p.queueing and p.skip_reason is None] == [
        "TP2PP4/16k-512/c64",
        "TP8+EAGLE3+AR/16k-512/c32",
        "TP8+EAGLE3+AR/16k-512/c64",
        "TP2PP4/1k-128/c64",
        "TP2PP4/1k-4k/c64",
        "TP8+EAGLE3+AR/1k-4k/c64",
        "TP8+EAGLE3+AR/64k-512/c8",
        "TP8+EAGLE3+AR/128k-512/c4",
    ]


@pytest.mark.parametrize("name", ["16k.yaml", "glm53_matrix.yaml"])
def test_the_matrix_sends_greedy_streamed_ids_of_full_length(name: str) -> None:
    scenario = load_scenario(ROOT / "scenarios" / name)
    assert {arm.effective_route for arm in scenario.arms.values()} == {"generate"}
    assert {(w.temperature, w.effective_ignore_eos, w.stream) for w in scenario.workloads} == {(0.0, True, True)}
    assert len({arm.url for arm in scenario.arms.values()}) == 2


def test_the_demonstration_has_a_queueing_point_and_a_structural_skip() -> None:
    points = points_of("demo.yaml")
    assert [p.queueing for p in points if p.skip_reason is None] == [False, True, False]
    assert [p.skip_reason for p in points if p.skip_reason is not None] == [
        "context limit: 40960 input + 1 output + 2 reserved = 40963 > 32768 tokens"
    ]


# docs/SCENARIOS.md


def rows_of(model: type[BaseModel]) -> dict[str, list[str]]:
    section = re.search(rf"^### {model.__name__}$(.*?)(?=^##|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/SCENARIOS.md has no section {model.__name__}"
    rows = [line.strip("| ").split(" | ") for line in section[1].splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in rows}


def default_of(info: FieldInfo) -> str:
    """As the document writes it: `required`, `null`, `16`, `true`, `empty`; `see <Model>` for a block."""
    if info.is_required():
        return "required"
    default = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel):
        return f"see {type(default).__name__}"
    if default is None:
        return "null"
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if default not in ([], {}, "") else "empty"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_document_names_every_field_with_its_type_default_and_meaning(model: type[BaseModel]) -> None:
    rows = rows_of(model)
    assert list(rows) == list(model.model_fields)
    for name, info in model.model_fields.items():
        words, default, meaning = rows[name]
        assert (words, default) == (describe(Shape.of_field(info)), default_of(info)), name
        assert len(meaning) > 3, name


EXAMPLES = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split(":", 1)[0])
def test_every_example_of_the_document_is_part_of_a_scenario(example: str) -> None:
    part = read_yaml(example, "docs/SCENARIOS.md")
    assert isinstance(part.value, dict) and not part.problems
    workload = {"name": "w", "input_tokens": 1024, "output_tokens": 8, "concurrency": [1]}
    scenario: dict[str, object] = {"name": "s", "arms": {"a": {"url": "http://h:1"}}, "corpus": {"synthetic": {}}}
    scenario["workloads"] = [workload]
    if set(part.value) <= set(Scenario.model_fields):
        scenario |= part.value
    else:
        scenario["workloads"] = [workload | {"concurrency": None} | part.value]
    plan = make_plan(Scenario.model_validate(scenario))
    assert plan.measured or plan.searches


def test_the_document_s_ten_lines_are_a_scenario() -> None:
    assert len(EXAMPLES[0].splitlines()) <= 11
    points = make_plan(parse_scenario(EXAMPLES[0], "docs/SCENARIOS.md")).points
    assert [point.concurrency for point in points] == [1, 8, 64]
