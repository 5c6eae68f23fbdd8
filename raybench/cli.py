"""The command line: which commands there are, and how an error that raybench explains ends the process.

Those that need neither a Ray nor a run directory stand here; the others are in `running.py` and `reading.py`. The
heavy rooms are imported inside the commands that need them: `report` must start without Ray.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import raybench
from raybench import reading, running
from raybench.arguments import (
    DEFAULT_COMPRESSION,
    DEFAULT_RUNS_DIR,
    ClusterFile,
    Compression,
    RunsDir,
    ScenarioFile,
    Simulate,
    cluster_of,
    end,
    err,
    load,
    out,
    read_inputs,
    require_corpus,
)
from raybench.cluster.events import say, tells_events
from raybench.errors import EXIT_NOT_ALL_VALID, RaybenchError, TargetError

if TYPE_CHECKING:
    from raybench.scenario.schema import Arm, Limits, Scenario

app = typer.Typer(
    help="Saturation tests of LLM serving engines whose every number is valid or void.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
corpus_app = typer.Typer(help="Make and inspect the corpus that prompts are cut from.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")


@app.command()
def check(scenario: ScenarioFile, cluster: ClusterFile = None) -> None:
    """Read a scenario (and a cluster file) and say everything that is wrong with it. Contacts nothing."""
    spec = cluster_of(cluster)
    loaded = load(scenario, spec)
    from raybench.scenario.load import scenario_sha256

    base = scenario.resolve().parent
    read_inputs(loaded, base, here_only=True)
    missing = require_corpus(loaded, base, here_only=True, later=True)
    out.print(
        f"{scenario}: valid; arms: {len(loaded.arms)}, workloads: {len(loaded.workloads)},"
        f" sha256 {scenario_sha256(loaded)[:12]}",
    )
    if missing is not None:
        out.print(f"not there yet: {missing}", soft_wrap=True)
    if spec is not None:
        purpose = f": {spec.description}" if spec.description else ""
        told = f"{cluster}: valid; {spec.name} at {spec.address}{purpose}"
        out.print(told, soft_wrap=True)


@app.command()
def plan(
    scenario: ScenarioFile,
    ask: Annotated[bool, typer.Option("--ask", help="Ask the running engines for their limits.")] = False,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    simulate: Simulate = False,
    compression: Compression = DEFAULT_COMPRESSION,
) -> None:
    """Show every point with its active limit, queueing mark or skip reason, and how much corpus it takes.

    Contacts nothing, unless --ask is given.
    """
    from raybench.corpus.windows import corpus_need
    from raybench.load.pacer import seconds_of_points
    from raybench.protocol.client_checks import expected_loads
    from raybench.records.roofline import stored_rooflines
    from raybench.report.plan import print_clients, print_plan
    from raybench.scenario.limits import declared_limits, merge_limits
    from raybench.scenario.plan import make_plan
    from raybench.scenario.trace import read_traces

    loaded = load(scenario)
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
    if loaded.description:
        out.print(f"{loaded.name}: {loaded.description}")
    print_plan(made, limits, need, sends_s, out)
    rooflines = stored_rooflines(runs_dir)
    print_clients(rooflines, expected_loads(made, rooflines, loaded.load.client_nodes), out)


app.command()(running.submit)
app.command()(running.run)
app.command()(running.roofline)
app.command()(running.status)
app.command()(running.logs)
app.command()(running.stop)
app.command()(running.fetch)
app.command(hidden=True)(running.export)


@app.command()
def probe(
    scenario: ScenarioFile,
    arm: Annotated[str, typer.Option(help="The arm to launch.", show_default=False)],
    parameter: Annotated[str, typer.Option(help="The launch parameter of the arm to vary.")] = "max_context",
    grid: Annotated[
        str | None, typer.Option(help="Values to try, from the largest down, as 128k,96k,64k.")
    ] = None,
    minimum: Annotated[
        str | None, typer.Option(help="In place of --grid, with --maximum and --step: search by bisection.")
    ] = None,
    maximum: Annotated[str | None, typer.Option(help="The largest value to try.")] = None,
    step: Annotated[
        str | None, typer.Option(help="With --minimum: how close the answer has to come, in the parameter's unit.")
    ] = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
) -> None:
    """Find the largest launch parameter that starts on this host, with the memory that is short or spare."""
    from raybench.deploying import probe_arm, what_to_try

    values = what_to_try(grid, minimum, maximum, step)
    loaded, base = load(scenario), scenario.resolve().parent
    end(probe_arm(loaded, base, arm, parameter, values, runs_dir.resolve(), out))


@app.command()
def restore(scenario: ScenarioFile) -> None:
    """Bring the scenario's service back on this host, when a run has left it down, and verify it."""
    from raybench.deploying import restore_service

    end(restore_service(load(scenario), scenario.resolve().parent, out))


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
    out.print(f"{output}: {built.tokens:,} tokens, sha256 {built.sha256[:12]}", soft_wrap=True)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def sim(context: typer.Context) -> None:
    """Start the simulated engine in the foreground (`raybench sim --help` shows its options)."""
    from raybench.sim.__main__ import main as sim_main

    raise typer.Exit(sim_main(context.args))


def _show_version(asked: bool) -> None:
    if asked:
        out.print(f"raybench {raybench.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Saturation tests of LLM serving engines whose every number is valid or void."""


def _asked_limits(scenario: Scenario) -> dict[str, Limits]:
    """What the arms' running engines say they can hold; arms that raybench starts itself are left out.

    Raises TargetError when an engine does not answer.
    """
    import asyncio

    from raybench.engines import ENGINES
    from raybench.load.http import ControlClient
    from raybench.load.order import Endpoint
    from raybench.protocol.planning import limits_of

    async def limits(name: str, arm: Arm, url: str) -> Limits:
        http = ControlClient(Endpoint.of_arm(arm, url), admin_api_key_env=arm.admin_api_key_env)
        try:
            reply = await ENGINES[arm.engine].alive(http)
            if not reply.ok:
                raise TargetError("alive", f"{name} at {url}: {reply.summary}")
            return limits_of(await ENGINES[arm.engine].facts(http))
        finally:
            await http.close()

    return {
        name: asyncio.run(limits(name, arm, arm.url)) for name, arm in scenario.arms.items() if arm.url is not None
    }


def main(arguments: list[str] | None = None) -> None:
    """The process: run a command, explain a RaybenchError, end with its exit code."""
    try:
        app(arguments, prog_name="raybench", standalone_mode=True)
    except RaybenchError as error:
        if tells_events():
            say("error", message=str(error), exit_code=error.exit_code)
        else:
            # Whole words on a terminal; one line a problem for whatever else reads it.
            lines = not err.is_terminal
            err.print(f"raybench: {error}", style="red", soft_wrap=lines)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        err.print("raybench: interrupted", style="red")
        sys.exit(EXIT_NOT_ALL_VALID)
