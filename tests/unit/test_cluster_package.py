"""What travels to a cluster: the source, the scenario, a small corpus, and nothing else (case O-R1)."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from protocol_fakes import scenario

import raybench
from raybench.cluster.package import read_staged, stage, stage_scenario
from raybench.cluster.spec import PACKAGE_BYTES_MAX
from raybench.corpus.prompts import read_prompt_sets
from raybench.errors import EXIT_USAGE, ConfigError
from raybench.scenario.load import effective, parse_scenario
from raybench.scenario.schema import Corpus, Scenario

SOURCE = Path(raybench.__file__).parent


def with_corpus(path: str) -> Scenario:
    return scenario().model_copy(update={"corpus": Corpus(path=path)})


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project with what must never travel: many small files and a large result."""
    objects = tmp_path / "project" / ".git" / "objects"
    objects.mkdir(parents=True)
    for number in range(200):
        (objects / f"{number:040x}").write_bytes(os.urandom(600))
    results = tmp_path / "project" / "results"
    results.mkdir()
    with (results / "old.arrow").open("wb") as large:
        large.truncate(150 * 1024 * 1024)
    (tmp_path / "project" / ".venv").mkdir()
    (tmp_path / "project" / ".venv" / "lib.so").write_bytes(b"x")
    (tmp_path / "project" / "corpus.npy").write_bytes(b"c" * 1000)
    return tmp_path / "project"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "staging"
    path.mkdir()
    return path


def test_o_r1_results_and_git_never_get_into_the_package(project: Path, folder: Path) -> None:
    stage(with_corpus("corpus.npy"), project, folder, ship_source=True, bytes_max=PACKAGE_BYTES_MAX)
    staged = files(folder)
    own = {f"raybench/{name}" for name in files(SOURCE) if "__pycache__" not in name}
    assert staged == own | {"scenario.json", "corpus/corpus.npy"}
    assert sum((folder / name).stat().st_size for name in staged) < 3 * 1024 * 1024


def test_without_the_source_only_the_scenario_travels(project: Path, folder: Path) -> None:
    stage(scenario(), project, folder, ship_source=False, bytes_max=PACKAGE_BYTES_MAX)
    assert files(folder) == {"scenario.json"}


def test_o_r1_a_corpus_too_large_is_refused_before_it_is_copied(project: Path, folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"the upload would have [\d,]+ bytes, the limit is 104,857,600"
    ) as caught:
        stage(with_corpus("results/old.arrow"), project, folder, ship_source=True, bytes_max=PACKAGE_BYTES_MAX)
    text = str(caught.value)
    assert "largest: corpus/old.arrow 157,286,400, raybench " in text
    assert "name it by its absolute path" in text
    assert caught.value.exit_code == EXIT_USAGE
    assert not (folder / "corpus").exists()


def test_a_corpus_beside_the_scenario_is_found_in_the_package(project: Path, folder: Path) -> None:
    (project / "built").mkdir()
    (project / "built" / "ids.npy").write_bytes(b"ids")
    (project / "scenarios").mkdir()
    given = with_corpus("../built")
    stage(given, project / "scenarios", folder, ship_source=False, bytes_max=PACKAGE_BYTES_MAX)
    staged = read_staged(folder / "scenario.json")
    assert staged.corpus.path == "corpus/built"
    assert (folder / "corpus" / "built" / "ids.npy").read_bytes() == b"ids"
    assert given.corpus.path == "../built", "the scenario of the run is left as it was"


def test_an_absolute_corpus_is_the_cluster_s_own(folder: Path, project: Path) -> None:
    path = "/data/on/the/nodes.npy"
    stage(with_corpus(path), project, folder, ship_source=False, bytes_max=PACKAGE_BYTES_MAX)
    assert read_staged(folder / "scenario.json").corpus.path == path
    assert files(folder) == {"scenario.json"}


def test_a_corpus_that_is_not_there_is_said_before_anything_is_sent(project: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"corpus\.path: no such corpus beside the scenario; got: missing\.npy"):
        stage(with_corpus("missing.npy"), project, folder, ship_source=True, bytes_max=PACKAGE_BYTES_MAX)
    assert files(folder) == set()


def test_a_local_run_leaves_the_corpus_where_it_is(folder: Path) -> None:
    stage_scenario(with_corpus("corpus.npy"), folder)
    assert read_staged(folder / "scenario.json").corpus.path == "corpus.npy"


def test_the_staged_scenario_measures_the_same(project: Path, folder: Path) -> None:
    given = scenario()
    stage(given, project, folder, ship_source=False, bytes_max=PACKAGE_BYTES_MAX)
    assert effective(read_staged(folder / "scenario.json")) == effective(given)


def test_traces_travel_each_in_a_folder_of_its_workload(project: Path, folder: Path) -> None:
    (project / "a").mkdir()
    (project / "a" / "t.jsonl").write_text('{"timestamp_s": 0}')
    (project / "t.jsonl").write_text('{"timestamp_s": 1}')
    one = "{{name: {}, input_tokens: 64, output_tokens: 4, requests: 1, trace: {{path: {}}}}}"
    paths = {"first": "t.jsonl", "second": "a/t.jsonl", "third": "/on/the/node.csv"}
    given = scenario("\n".join("  - " + one.format(name, path) for name, path in paths.items()))
    stage(given, project, folder, ship_source=False, bytes_max=PACKAGE_BYTES_MAX)
    staged = [workload.trace for workload in read_staged(folder / "scenario.json").workloads]
    named = [trace.path for trace in staged if trace is not None]
    assert named == ["traces/first/t.jsonl", "traces/second/t.jsonl", "/on/the/node.csv"]
    assert [(folder / name).read_text()[-2] for name in named[:2]] == ["1", "0"]


def test_a_trace_that_is_not_there_is_said_before_anything_is_sent(project: Path, folder: Path) -> None:
    given = scenario("  - {name: w, input_tokens: 64, output_tokens: 4, requests: 1, trace: {path: none.csv}}")
    with pytest.raises(ConfigError, match=r"no such trace beside the scenario; got: none\.csv"):
        stage(given, project, folder, ship_source=True, bytes_max=PACKAGE_BYTES_MAX)


def test_the_prompts_of_a_set_travel_and_are_found_by_the_staged_scenario(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "package"
    (home / "prompts").mkdir(parents=True)
    folder.mkdir()
    (home / "prompts" / "p.md").write_bytes("é\r\n".encode())
    text = (
        "name: t\narms: {a: {url: 'http://t:1'}}\n"
        "workloads: [{name: w, input_tokens: 8, output_tokens: 8, concurrency: [1],"
        " prompt_set: {cold_by: flush, prompts: [{name: p, path: prompts/p.md}]}}]\n"
    )
    stage(parse_scenario(text, "t.yaml"), home, folder, ship_source=False, bytes_max=10**6)
    (prompt,) = read_prompt_sets(read_staged(folder / "scenario.json"), folder)["w"]
    assert prompt.body == orjson.dumps("é\r\n")[1:-1]
