"""What travels to a cluster with a submitted run: raybench itself, the scenario, a small corpus.

Nothing else: a staging folder is filled with what the run needs, so no results, no `.git`, no virtual
environment can ever be in it (case O-R1). Its size is checked before the upload.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

import raybench
from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.load import effective
from raybench.scenario.schema import Scenario

SCENARIO_FILE = "scenario.json"
CORPUS_FOLDER = "corpus"


@dataclass(frozen=True)
class Package:
    """A filled staging folder; `scenario` is the scenario file in it."""

    folder: Path
    scenario: str
    size_bytes: int


def stage(scenario: Scenario, base: Path | None, folder: Path, *, ship_source: bool, bytes_max: int) -> Package:
    """Fill `folder`. `base`: where the scenario's relative paths start; None leaves the corpus where it is.

    Raises ConfigError when the package would be too large, naming its largest parts.
    """
    corpus = None if base is None else _corpus_to_take(scenario, base)
    if ship_source:
        stage_source(folder)
    if corpus is not None:
        path = f"{CORPUS_FOLDER}/{corpus.name}"
        scenario = scenario.model_copy(update={"corpus": scenario.corpus.model_copy(update={"path": path})})
    (folder / SCENARIO_FILE).write_text(json.dumps(effective(scenario), allow_nan=False, indent=1))
    sizes = {entry.name: _size(entry) for entry in folder.iterdir()}
    if corpus is not None:
        sizes[CORPUS_FOLDER] = _size(corpus)
    _refuse_too_large(sizes, bytes_max)
    if corpus is not None:
        _copy(corpus, folder / CORPUS_FOLDER)
    return Package(folder, SCENARIO_FILE, sum(sizes.values()))


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


def _corpus_to_take(scenario: Scenario, base: Path) -> Path | None:
    """A corpus that is named relative to the scenario travels; an absolute path is the cluster's."""
    path = scenario.corpus.path
    if path is None or Path(path).is_absolute():
        return None
    source = (base / path).resolve()
    if not source.exists():
        raise ConfigError(
            "corpus",
            ConfigProblem(
                "no such corpus beside the scenario",
                path="corpus.path",
                value=path,
                way_out="correct the path, or write an absolute one that exists on the coordinator's node",
            ),
        )
    return source


def _copy(source: Path, folder: Path) -> None:
    folder.mkdir()
    if source.is_dir():
        shutil.copytree(source, folder / source.name)
    else:
        shutil.copy2(source, folder / source.name)


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
