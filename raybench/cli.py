"""The command line: one function a command, each a few calls into the rooms.

Ray and the other heavy rooms are imported inside the commands that need them: `report` must start
without Ray. Errors that raybench explains end here, as text and an exit code.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

import raybench
from raybench import reading
from raybench.errors import EXIT_NOT_ALL_VALID, ConfigError, ConfigProblem, RaybenchError, RunDirectoryError

if TYPE_CHECKING:
    from raybench.cluster.spec import ClusterSpec
    from raybench.scenario.schema import Limits, Scenario

app = typer.Typer(
    help="Saturation tests of LLM serving engines whose every number is valid or void.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
corpus_app = typer.Typer(help="Make and inspect the corpus that prompts are cut from.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")

out = Console(soft_wrap=False)
err = Console(stderr=True)

ScenarioFile = Annotated[Path, typer.Argument(help="Scenario file (YAML).", show_default=False)]
RunPath = Annotated[Path, typer.Argument(help="Run directory.", show_default=False)]
RunName = Annotated[str, typer.Argument(help="Run id, or the path of its run directory.", show_default=False)]
RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Where run directories stand.")]
ClusterFile = Annotated[Path | None, typer.Option("--cluster", help="Cluster file (YAML) to run on.")]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Rehearse: simulated engines in the place of the deployments.")
]
Compression = Annotated[
    float, typer.Option("--compression", help="With --simulate: how many simulated seconds pass in one.")
]
Force = Annotated[bool, typer.Option("--force", help="Run although another run loads the same target.")]
DEFAULT_RUNS_DIR = Path("runs")
DEFAULT_COMPRESSION = 20.0


@app.command()
def check(scenario: ScenarioFile, cluster: ClusterFile = None) -> None:
    """Read a scenario (and a cluster file) and say everything that is wrong with it. Contacts nothing."""
    loaded = _load(scenario, _cluster(cluster))
    from raybench.scenario.load import scenario_sha256

    _read_inputs(loaded, scenario.resolve().parent, here_only=True)
    out.print(
        f"{scenario}: valid; {len(loaded.arms)} arms, {len(loaded.workloads)} workloads,"
        f" sha256 {scenario_sha256(loaded)[:12]}",
        highlight=False,
    )


@app.command()
def plan(
    scenario: ScenarioFile,
    ask: Annotated[bool, typer.Option("--ask", help="Ask the running engines for their limits.")] = False,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    simulate: Simulate = False,
    compression: Compression = DEFAULT_COMPRESSION,
) -> None:
    """Show every point with its active limit, queueing mark or skip reason, and the corpus need."""
    from raybench.corpus.windows import corpus_need
    from raybench.load.pacer import seconds_of_points
    from raybench.protocol.client_checks import expected_loads
    from raybench.records.roofline import stored_rooflines
    from raybench.report.plan import print_clients, print_plan
    from raybench.scenario.limits import declared_limits, merge_limits
    from raybench.scenario.plan import make_plan
    from raybench.scenario.trace import read_traces

    loaded = _load(scenario, None)
    base = scenario.resolve().parent
    if simulate:
        from raybench.deploy.rehearsal import rehearsed

        loaded = rehearsed(loaded, base, compression, loaded.service)
    traces = read_traces(loaded, base, here_only=True)
    asked = _asked_limits(loaded) if ask else {}
    limits = {name: declared_limits(arm) for name, arm in loaded.arms.items()}
    limits |= {name: merge_limits(limits[name], told) for name, told in asked.items()}
    made = make_plan(loaded, asked)
    need = {arm: corpus_need(windows) for arm, windows in made.windows.items()}
    sends_s = seconds_of_points(made.points, loaded.workloads, traces)
    print_plan(made, limits, need, sends_s, out)
    rooflines = stored_rooflines(runs_dir)
    print_clients(rooflines, expected_loads(made, rooflines, loaded.load.client_nodes), out)


@app.command()
def submit(
    scenario: Annotated[Path | None, typer.Argument(help="Scenario file (YAML).", show_default=False)] = None,
    address: Annotated[str | None, typer.Option(help="Job API of a running cluster, as http://head:8265.")] = None,
    cluster: ClusterFile = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    resume: Annotated[Path | None, typer.Option(help="Run directory to go on with.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the job is submitted.")] = False,
    simulate: Simulate = False,
    compression: Compression = DEFAULT_COMPRESSION,
    force: Force = False,
) -> None:
    """Run a scenario as a Ray job and bring its run directory and report home.

    Without --address and --cluster a local Ray is started for the run.
    """
    from raybench.cluster import auth
    from raybench.records.rundir import RunDirectory

    spec = _cluster(cluster)
    if address is not None and spec is not None:
        raise ConfigError("options", "--address and --cluster name two clusters; give one")
    if simulate and (resume is not None or address is not None or spec is not None):
        raise ConfigError(
            "options", "--simulate rehearses here and from the start: not with --resume or a cluster"
        )
    source, base, loaded = _scenario_to_run(scenario, resume, spec)
    _read_inputs(loaded, base, here_only=True)
    if address is None and spec is None:
        if resume is not None:
            RunDirectory(resume).require()
        auth.for_own_ray()
    else:
        auth.for_cluster(None if spec is None else spec.token_env)
    from raybench.deploy.rehearsal import staged
    from raybench.submission import Request, submit_run

    request = Request(
        scenario=loaded,
        source=source,
        base=base,
        address=address,
        cluster=spec,
        runs_dir=runs_dir.resolve(),
        resume=None if resume is None else resume.resolve(),
        no_wait=no_wait,
        force=force,
    )
    with staged(loaded, base, compression if simulate else None) as to_run:
        code = submit_run(replace(request, scenario=to_run), out)
    _end(code)


@app.command()
def run(
    scenario: Annotated[Path | None, typer.Argument(help="Scenario file (YAML).", show_default=False)] = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    run_id: Annotated[str | None, typer.Option(help="Name of the run; made up by default.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run directory to go on with.")] = None,
    base: Annotated[Path | None, typer.Option(help="Folder that relative paths in the scenario start at.")] = None,
    source: Annotated[str | None, typer.Option(help="What the manifest calls the scenario.", hidden=True)] = None,
    force: Force = False,
) -> None:
    """Run a scenario inside the current Ray (this is what the Ray job of `submit` runs)."""
    named, folder, loaded = _scenario_to_run(scenario, resume, None)
    _read_inputs(loaded, base or folder, here_only=False)
    if "RAY_ADDRESS" not in os.environ:
        from raybench.cluster import auth

        auth.for_own_ray()
    from raybench.driver import run_here

    _end(
        run_here(
            loaded,
            source=source or named,
            base=base or folder,
            runs_dir=runs_dir.expanduser().resolve(),
            run_id=run_id,
            resume=None if resume is None else resume.expanduser().resolve(),
            force=force,
            console=out,
        )
    )


@app.command()
def roofline(
    address: Annotated[str | None, typer.Option(help="Job API of a running cluster, as http://head:8265.")] = None,
    cluster: ClusterFile = None,
    node: Annotated[
        list[str] | None, typer.Option(help="Host or address of a node; all clients by default.")
    ] = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter steps: about half a minute.")] = False,
    error_ms: Annotated[
        float, typer.Option(help="Stamp error that a load may have at P99, in ms.", min=0.1)
    ] = 25.0,
    client: Annotated[str, typer.Option(help="auto, or plain: the one of TLS and proxies.")] = "auto",
    workers: Annotated[
        int | None, typer.Option(help="Workers a node; by cores and load by default.", min=1)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON on stdout; progress goes to stderr.")
    ] = False,
    placement: Annotated[str | None, typer.Option(help="The cluster file's, as JSON.", hidden=True)] = None,
) -> None:
    """Measure what each client node can carry before its own stamps go wrong, and store it.

    Without --address and --cluster: the nodes of the current Ray, or this machine in a Ray of its own.
    """
    from raybench.cluster import auth
    from raybench.scenario.load_block import Placement

    spec = _cluster(cluster)
    if address is not None and spec is not None:
        raise ConfigError("options", "--address and --cluster name two clusters; give one")
    if client not in ("auto", "plain"):
        raise ConfigError("options", ConfigProblem("no such client", "--client", client, "auto or plain"))
    inside = address is None and spec is None
    if not inside:
        auth.for_cluster(None if spec is None else spec.token_env)
    elif "RAY_ADDRESS" not in os.environ:
        auth.for_own_ray()
    from raybench.protocol.roofline import QUICK, Effort, RooflineRequest, Settings

    request = RooflineRequest(
        runs_dir=runs_dir.expanduser().resolve(),
        placement=Placement() if placement is None else Placement.model_validate_json(placement),
        nodes=tuple(node or ()),
        workers_per_node=workers or "auto",
        settings=Settings(error_ms, client, QUICK if quick else Effort()),
    )
    if inside:
        from raybench.driver import measure_rooflines

        _end(measure_rooflines(request, out, err, as_json=as_json))
    from raybench.submission import submit_rooflines

    _end(submit_rooflines(request, address, spec, out, err, as_json=as_json))


@app.command()
def status(run: RunName, runs_dir: RunsDir = DEFAULT_RUNS_DIR) -> None:
    """Say how a submitted run stands."""
    from raybench.submission import job_status

    out.print(job_status(run, runs_dir.resolve()), highlight=False, markup=False, soft_wrap=True)


@app.command()
def logs(
    run: RunName,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
) -> None:
    """Show what a submitted run has printed."""
    from raybench.submission import show_logs

    show_logs(run, runs_dir.resolve(), out, follow=follow)


@app.command()
def stop(run: RunName, runs_dir: RunsDir = DEFAULT_RUNS_DIR) -> None:
    """Stop a submitted run: its load ends, what was committed stays; go on later with --resume."""
    from raybench.submission import stop_run

    out.print(stop_run(run, runs_dir.resolve()), highlight=False, markup=False, soft_wrap=True)


@app.command()
def fetch(run: RunName, runs_dir: RunsDir = DEFAULT_RUNS_DIR) -> None:
    """Copy the run directory of a submitted run home and print its points."""
    from raybench.submission import fetch_run

    fetch_run(run, runs_dir.resolve(), out)


@app.command()
def probe(
    scenario: ScenarioFile,
    arm: Annotated[str, typer.Option(help="The arm to launch.", show_default=False)],
    parameter: Annotated[str, typer.Option(help="Its launch parameter to try.")] = "max_context",
    grid: Annotated[str | None, typer.Option(help="Values to try from the largest down, as 128k,96k,64k.")] = None,
    minimum: Annotated[str | None, typer.Option(help="With --maximum and --step: search by bisection.")] = None,
    maximum: Annotated[str | None, typer.Option(help="The largest value to try.")] = None,
    step: Annotated[str | None, typer.Option(help="How close the answer has to be.")] = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
) -> None:
    """Find the largest launch parameter that starts on this host, with the memory that is short or spare."""
    from raybench.report.probing import probe_arm, what_to_try

    values = what_to_try(grid, minimum, maximum, step)
    loaded, base = _load(scenario, None), scenario.resolve().parent
    _end(probe_arm(loaded, base, arm, parameter, values, runs_dir.resolve(), out))


@app.command()
def restore(scenario: ScenarioFile) -> None:
    """Bring the scenario's service back on this host, when a run has left it down, and verify it."""
    from raybench.report.restore import restore_service

    _end(restore_service(_load(scenario, None), scenario.resolve().parent, out))


app.command()(reading.monitor)
app.command()(reading.merge)
app.command()(reading.report)
app.command("import")(reading.import_table)
app.command()(reading.compare)
app.command()(reading.retest)
app.command()(reading.query)
app.command()(reading.reconcile)


@corpus_app.command("build")
def corpus_build(
    files: Annotated[list[Path], typer.Argument(help="Text files (UTF-8), in order.", show_default=False)],
    tokenizer: Annotated[Path, typer.Option(help="The model's tokenizer.json.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Corpus directory to make.", show_default=False)],
) -> None:
    """Turn text files into token ids (and keep the text, for chat routes)."""
    from raybench.corpus.build import build_corpus

    built = build_corpus(files, tokenizer, output)
    out.print(f"{output}: {built.tokens:,} tokens, sha256 {built.sha256[:12]}", highlight=False, soft_wrap=True)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def sim(context: typer.Context) -> None:
    """Start the simulated engine in the foreground (`raybench sim --help` shows its options)."""
    from raybench.sim.__main__ import main as sim_main

    raise typer.Exit(sim_main(context.args))


@app.command(hidden=True)
def export(run: RunPath) -> None:
    """Print a run directory as archive events; the other half of `fetch`."""
    from raybench.cluster.archive import export as export_run

    export_run(run.expanduser(), lambda line: print(line, flush=True))


def _show_version(asked: bool) -> None:
    if asked:
        out.print(f"raybench {raybench.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Saturation tests of LLM serving engines whose every number is valid or void."""


def _load(path: Path, cluster: ClusterSpec | None) -> Scenario:
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


def _cluster(path: Path | None) -> ClusterSpec | None:
    if path is None:
        return None
    from raybench.cluster.spec import load_cluster

    return load_cluster(path)


def _read_inputs(scenario: Scenario, base: Path, *, here_only: bool) -> None:
    """Refuse traces and prompts that cannot be sent, before anything is contacted."""
    from raybench.corpus.prompts import read_prompt_sets
    from raybench.scenario.trace import read_traces

    read_traces(scenario, base, here_only=here_only)
    read_prompt_sets(scenario, base, here_only=here_only)


def _scenario_to_run(
    path: Path | None, resume: Path | None, cluster: ClusterSpec | None
) -> tuple[str, Path, Scenario]:
    """(what to call it, folder of its relative paths, scenario); a resumed run brings its own."""
    if path is not None:
        return str(path), path.resolve().parent, _load(path, cluster)
    if resume is None:
        raise ConfigError(
            "options", ConfigProblem("nothing to run", way_out="name a scenario file, or --resume RUN")
        )
    from pydantic import ValidationError

    from raybench.records.rundir import RunDirectory
    from raybench.scenario.schema import Scenario

    manifest = RunDirectory(resume).read_manifest()
    try:
        scenario = Scenario.model_validate(manifest["scenario"])
        return str(manifest["scenario_source"]), Path(manifest["base"]), scenario
    except (KeyError, TypeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise RunDirectoryError(
            f"{resume}: its manifest is not one of this version of raybench ({reason});"
            " name the scenario file as well, or start a new run"
        ) from None


def _asked_limits(scenario: Scenario) -> dict[str, Limits]:
    """The limits that the engines themselves state. Raises TargetError when one does not answer."""
    import asyncio

    from raybench.driver import ask_limits

    return asyncio.run(ask_limits(scenario))


def _end(code: int) -> NoReturn:
    raise typer.Exit(code)


def main(arguments: list[str] | None = None) -> None:
    """The process: run a command, explain a RaybenchError, end with its exit code."""
    try:
        app(arguments, prog_name="raybench", standalone_mode=True)
    except RaybenchError as error:
        err.print(f"raybench: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        err.print("raybench: interrupted", style="red")
        sys.exit(EXIT_NOT_ALL_VALID)
