"""What travels to a cluster with a submitted run: raybench, the scenario, a small corpus, traces, prompts.

Nothing else: a staging folder is filled with what the run needs, so no results, no `.git`, no virtual
environment can ever be in it (case O-R1). Its size is checked before the upload.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

import raybench
from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.arrivals import TraceReplay
from raybench.scenario.load import effective
from raybench.scenario.prompt_set import PromptFile
from raybench.scenario.schema import Corpus, Scenario
from raybench.scenario.workload import Workload

#: What names a file by its `path`.
Named = TypeVar("Named", Corpus, TraceReplay, PromptFile)

SCENARIO_FILE = "scenario.json"
CORPUS_FOLDER = "corpus"
TRACES_FOLDER = "traces"
PROMPTS_FOLDER = "prompts"


def stage(scenario: Scenario, base: Path, folder: Path, *, ship_source: bool, bytes_max: int) -> None:
    """Fill `folder`; the scenario is its SCENARIO_FILE. base: where the scenario's relative paths start.

    Raises ConfigError when the package would be too large, naming its largest parts.
    """
    scenario, inputs = _with_inputs(scenario, base)
    if ship_source:
        stage_source(folder)
    stage_scenario(scenario, folder)
    sizes = {entry.name: _size(entry) for entry in folder.iterdir()}
    sizes |= {name: _size(source) for name, source in inputs.items()}
    _refuse_too_large(sizes, bytes_max)
    for name, source in inputs.items():
        _copy(source, folder / name)


def stage_scenario(scenario: Scenario, folder: Path) -> None:
    """Write it alone: what it names stays where it is."""
    (folder / SCENARIO_FILE).write_text(json.dumps(effective(scenario), allow_nan=False, indent=1))


def stage_source(folder: Path) -> None:
    """Copy this installation's own source, so that the nodes need raybench's dependencies only."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(Path(raybench.__file__).parent, folder / "raybench", ignore=ignore)


def _refuse_too_large(sizes: Mapping[str, int], bytes_max: int) -> None:
    total = sum(sizes.values())
    if total <= bytes_max:
        return
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:3]
    raise ConfigError(
        "package",
        ConfigProblem(
            f"the upload would have {total:,} bytes, the limit is {bytes_max:,}"
            f" (largest: {', '.join(f'{name} {size:,}' for name, size in largest)})",
            way_out="put a large corpus on the coordinator's node and name it by its absolute path",
        ),
    )


def read_staged(path: Path) -> Scenario:
    """The scenario of a staged file, as `stage` wrote it. Raises ConfigError for anything else."""
    try:
        return Scenario.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        problem = ConfigProblem(
            f"not a scenario that this version of raybench has staged: {first['msg']}",
            path=where,
            way_out="write scenarios as YAML",
        )
        raise ConfigError(str(path), problem) from None


def _with_inputs(scenario: Scenario, base: Path) -> tuple[Scenario, dict[str, Path]]:
    """The scenario with its relative paths as they are in the package, and what is copied to where in it.

    What is named relative to the scenario travels; an absolute path is the cluster's.
    """
    inputs: dict[str, Path] = {}

    def packed(named: Named, kind: str, folder: str) -> Named:
        """With its path in the package, to which its file is copied; as it is where nothing travels."""
        if (source := _source(named.path, base, kind)) is None:
            return named
        name = f"{folder}/{source.name}"
        inputs[name] = source
        return named.model_copy(update={"path": name})

    def with_inputs(workload: Workload) -> Workload:
        trace, prompt_set = workload.trace, workload.prompt_set
        if trace is not None:
            trace = packed(trace, "trace", f"{TRACES_FOLDER}/{workload.name}")
        if prompt_set is not None:
            folder = f"{PROMPTS_FOLDER}/{workload.name}"
            prompts = [packed(prompt, "prompt", f"{folder}/{prompt.name}") for prompt in prompt_set.prompts]
            prompt_set = prompt_set.model_copy(update={"prompts": prompts})
        return workload.model_copy(update={"trace": trace, "prompt_set": prompt_set})

    corpus = None if scenario.corpus is None else packed(scenario.corpus, "corpus", CORPUS_FOLDER)
    workloads = [with_inputs(workload) for workload in scenario.workloads]
    return scenario.model_copy(update={"corpus": corpus, "workloads": workloads}), inputs


def files_beside(scenario: Scenario) -> list[str]:
    """The files that the scenario names relative to itself."""
    sets = [workload.prompt_set for workload in scenario.workloads if workload.prompt_set is not None]
    named: list[Corpus | TraceReplay | PromptFile | None] = [scenario.corpus]
    named += [workload.trace for workload in scenario.workloads]
    named += [prompt for prompt_set in sets for prompt in prompt_set.prompts]
    paths = [one.path for one in named if one is not None and one.path is not None]
    return [path for path in paths if not Path(path).is_absolute()]


def _source(path: str | None, base: Path, kind: str) -> Path | None:
    """The file or folder beside the scenario that `path` names; None for what does not travel."""
    if path is None or Path(path).is_absolute():
        return None
    source = (base / path).resolve()
    if not source.exists():
        raise ConfigError(
            kind,
            ConfigProblem(
                f"no such {kind} beside the scenario",
                path=f"{kind}.path",
                value=path,
                way_out="correct the path, or write an absolute one that exists on the coordinator's node",
            ),
        )
    return source


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
