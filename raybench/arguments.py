"""Arguments that several commands share, and what they name, read: scenarios, cluster files, runs to go on with.

The rooms are imported inside the functions, so that `--help` stays quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from raybench.errors import ConfigError, ConfigProblem, RunDirectoryError

if TYPE_CHECKING:
    from raybench.cluster.spec import ClusterSpec
    from raybench.scenario.schema import Scenario

#: What is printed holds names, paths and reasons as they are: `[/s]` is no markup, `:x:` no picture.
out = Console(markup=False, highlight=False, emoji=False)
err = Console(stderr=True, markup=False, highlight=False, emoji=False)

#: Scenarios that an installation without its repository has: the demonstration.
PACKAGED = Path(__file__).parent / "scenario" / "packaged"


def scenario_path(given: str) -> Path:
    """The file of that path; a bare name that is no file here is that of a scenario that raybench brings along."""
    path, packaged = Path(given), PACKAGED / f"{given}.yaml"
    if not path.exists() and packaged.parent == PACKAGED and packaged.is_file():
        return packaged
    return path


ScenarioFile = Annotated[
    Path,
    typer.Argument(
        help='Scenario file (YAML), or "demo".', show_default=False, parser=scenario_path, metavar="SCENARIO"
    ),
]
OptionalScenario = Annotated[
    Path | None,
    typer.Argument(
        help='Scenario file (YAML), or "demo"; not needed with --resume.',
        show_default=False,
        parser=scenario_path,
        metavar="SCENARIO",
    ),
]
RunPath = Annotated[Path, typer.Argument(help="Run directory.", show_default=False)]
RunName = Annotated[str, typer.Argument(help="Run id, or the path of its run directory.", show_default=False)]
RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Where run directories stand.")]
Address = Annotated[
    str | None, typer.Option("--address", help="Job API of a running cluster, such as http://head:8265.")
]
ClusterFile = Annotated[Path | None, typer.Option("--cluster", help="Cluster file (YAML) to run on.")]
Resume = Annotated[
    Path | None, typer.Option("--resume", help="Run directory to go on with, after its last committed point.")
]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Rehearse on simulated engines in the place of the real ones.")
]
Compression = Annotated[
    float, typer.Option("--compression", help="With --simulate: how many simulated seconds pass in a real one.")
]
Force = Annotated[bool, typer.Option("--force", help="Run although another run loads the same target.")]
DEFAULT_RUNS_DIR = Path("runs")
DEFAULT_COMPRESSION = 20.0


def load(path: Path, cluster: ClusterSpec | None = None) -> Scenario:
    """A scenario as it would run on the cluster. `.json` is a scenario that `submit` has staged."""
    from raybench.scenario.load import load_scenario

    if path.suffix == ".json":
        from raybench.cluster.package import read_staged

        scenario = read_staged(path)
    else:
        scenario = load_scenario(path)
    if cluster is None:
        return scenario
    from raybench.cluster.spec import on_cluster

    return on_cluster(scenario, cluster)


def cluster_of(file: Path | None, address: str | None = None) -> ClusterSpec | None:
    """The cluster that the options name; None without any."""
    from raybench.cluster.spec import cluster_at, load_cluster

    if file is not None and address is not None:
        raise ConfigError("options", "--address and --cluster name two clusters; give one")
    if file is not None:
        return load_cluster(file)
    return None if address is None else cluster_at(address)


def read_inputs(scenario: Scenario, base: Path, *, here_only: bool) -> None:
    """Refuse traces and prompts that cannot be sent, before anything is contacted."""
    from raybench.corpus.prompts import read_prompt_sets
    from raybench.scenario.trace import read_traces

    read_traces(scenario, base, here_only=here_only)
    read_prompt_sets(scenario, base, here_only=here_only)


def require_corpus(scenario: Scenario, base: Path, *, here_only: bool, later: bool = False) -> str | None:
    """Refuse a corpus that is not there or cannot be read. here_only: an absolute path is another host's.

    later: one that is not there may still be made; what will be refused then is returned.
    """
    from raybench.corpus.tokens import existing

    path = None if scenario.corpus is None else scenario.corpus.path
    if path is None or (here_only and Path(path).is_absolute()):
        return None
    try:
        existing(path, base)
    except ConfigError as error:
        if not later or (base / path).exists():
            raise
        return str(error)
    return None


@dataclass(frozen=True)
class RunRequest:
    """A run that is asked for. Paths are absolute.

    source: what the manifest calls the scenario. base: the folder that its relative paths start at. resume: the
    run directory to go on with; else a new one is made in runs_dir, named run_id where that is given. force: also
    while another run loads the same target.
    """

    scenario: Scenario
    source: str
    base: Path
    runs_dir: Path
    resume: Path | None
    force: bool
    run_id: str | None = None


def run_request(
    path: Path | None, cluster: ClusterSpec | None, runs_dir: Path, resume: Path | None, *, force: bool
) -> RunRequest:
    """path: of the scenario, read as it would run on the cluster; None = a resumed run brings its own."""
    if resume is not None:
        resume = resume.expanduser().resolve()
    if path is not None:
        source, base, scenario = str(path), path.resolve().parent, load(path, cluster)
    elif resume is not None:
        source, base, scenario = _scenario_of(resume)
    else:
        problem = ConfigProblem("nothing to run", way_out="name a scenario file, or --resume RUN")
        raise ConfigError("options", problem)
    return RunRequest(scenario, source, base, runs_dir.expanduser().resolve(), resume, force)


def _scenario_of(run: Path) -> tuple[str, Path, Scenario]:
    """(what it is called, folder of its relative paths, the scenario) of a run that was begun."""
    from pydantic import ValidationError

    from raybench.cluster.package import files_beside
    from raybench.records.rundir import RunDirectory
    from raybench.scenario.schema import Scenario

    manifest = RunDirectory(run).read_manifest()
    try:
        scenario = Scenario.model_validate(manifest["scenario"])
        source, base = str(manifest["scenario_source"]), Path(manifest["base"])
    except (KeyError, TypeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise RunDirectoryError(
            f"{run}: its manifest is not one of this version of raybench ({reason});"
            " name the scenario file as well, or start a new run"
        ) from None
    if not base.is_dir() and (files := files_beside(scenario)):  # it ran on a cluster, where they had been sent
        raise RunDirectoryError(
            f"{run}: {', '.join(files)} stood beside its scenario, which is not known here; name the scenario file"
            f" ({source}) as well"
        )
    return source, base, scenario


def end(code: int) -> NoReturn:
    """Of the process, with this exit code."""
    raise typer.Exit(code)
