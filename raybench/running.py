"""Commands of runs in a Ray: submit, run, roofline, and those about a submitted run. `cli.py` registers them.

Ray and the other heavy rooms are imported inside the commands, so that `--help` stays quick.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from raybench.arguments import (
    DEFAULT_COMPRESSION,
    DEFAULT_RUNS_DIR,
    Address,
    ClusterFile,
    Compression,
    Force,
    OptionalScenario,
    Resume,
    RunName,
    RunPath,
    RunsDir,
    Simulate,
    cluster_of,
    end,
    err,
    out,
    read_inputs,
    require_corpus,
    run_request,
)
from raybench.errors import ConfigError, ConfigProblem


def submit(
    scenario: OptionalScenario = None,
    address: Address = None,
    cluster: ClusterFile = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    resume: Resume = None,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="Return once the job is submitted; needs a running cluster. Then: status, logs, stop, fetch.",
        ),
    ] = False,
    simulate: Simulate = False,
    compression: Compression = DEFAULT_COMPRESSION,
    force: Force = False,
) -> None:
    """Run a scenario as a Ray job and bring its run directory and report home.

    Without --address and --cluster a local Ray is started for the run.
    """
    from raybench.cluster import auth
    from raybench.records.rundir import RunDirectory

    spec = cluster_of(cluster, address)
    if simulate and (resume is not None or spec is not None):
        raise ConfigError(
            "options", "--simulate rehearses here and from the start: not with --resume or a cluster"
        )
    if no_wait and spec is None:
        way_out = "give --address or --cluster, or leave --no-wait out"
        reason = "--no-wait needs a running cluster: the local Ray ends with this command"
        raise ConfigError("options", ConfigProblem(reason, way_out=way_out))
    request = run_request(scenario, spec, runs_dir, resume, force=force)
    read_inputs(request.scenario, request.base, here_only=spec is not None)
    if not simulate:
        require_corpus(request.scenario, request.base, here_only=spec is not None)
    if spec is not None:
        auth.for_cluster(spec.token_env)
    else:
        if request.resume is not None:
            RunDirectory(request.resume).require()
        auth.for_own_ray()
    from raybench.deploy.rehearsal import staged
    from raybench.submission import submit_run

    with staged(request.scenario, request.base, compression if simulate else None) as to_run:
        code = submit_run(replace(request, scenario=to_run), spec, out, no_wait=no_wait)
    end(code)


def run(
    scenario: OptionalScenario = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    run_id: Annotated[str | None, typer.Option(help="Name of the run; made up by default.")] = None,
    resume: Resume = None,
    base: Annotated[
        Path | None, typer.Option(help="Folder that relative paths in the scenario start at; its own by default.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="What the manifest calls the scenario.", hidden=True)] = None,
    force: Force = False,
) -> None:
    """Run a scenario in this process's Ray: that of RAY_ADDRESS, else one of its own.

    The Ray job of `submit` runs this.
    """
    request = run_request(scenario, None, runs_dir, resume, force=force)
    request = replace(request, base=base or request.base, source=source or request.source, run_id=run_id)
    read_inputs(request.scenario, request.base, here_only=False)
    require_corpus(request.scenario, request.base, here_only=False)
    _settle_own_ray()
    from raybench.driver import run_here

    end(run_here(request, out))


def _settle_own_ray() -> None:
    """Where no RAY_ADDRESS says which Ray to join, one is started for this process."""
    if not os.environ.get("RAY_ADDRESS"):
        from raybench.cluster import auth

        auth.for_own_ray()


def roofline(
    address: Address = None,
    cluster: ClusterFile = None,
    node: Annotated[
        list[str] | None, typer.Option(help="Host or address of a node; all clients by default.")
    ] = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter steps: about half a minute.")] = False,
    error_ms: Annotated[
        float,
        typer.Option(help="Largest stamp error, at P99 and in ms, of a load that counts as carried.", min=0.1),
    ] = 25.0,
    client: Annotated[str, typer.Option(help="auto, or plain: the client for TLS and proxies.")] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(help="Load workers on each node; by default as many as cores and load ask for.", min=1),
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
    from raybench.scenario.schema import Placement

    spec = cluster_of(cluster, address)
    if client not in ("auto", "plain"):
        raise ConfigError("options", ConfigProblem("no such client", "--client", client, "auto or plain"))
    if spec is None:
        _settle_own_ray()
    else:
        auth.for_cluster(spec.token_env)
    from raybench.protocol.roofline import QUICK, Effort, RooflineRequest, Settings

    request = RooflineRequest(
        runs_dir=runs_dir.expanduser().resolve(),
        placement=Placement() if placement is None else Placement.model_validate_json(placement),
        nodes=tuple(node or ()),
        workers_per_node=workers or "auto",
        settings=Settings(error_ms, client, QUICK if quick else Effort()),
    )
    from raybench.roofline import measure_rooflines, submit_rooflines

    if spec is None:
        end(measure_rooflines(request, out, err, as_json=as_json))
    end(submit_rooflines(request, spec, out, err, as_json=as_json))


def status(run: RunName, runs_dir: RunsDir = DEFAULT_RUNS_DIR) -> None:
    """Say how a submitted run stands."""
    from raybench.submission import job_status

    out.print(job_status(run, runs_dir.resolve()), soft_wrap=True)


def logs(
    run: RunName,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
) -> None:
    """Show what a submitted run has printed."""
    from raybench.submission import show_logs

    show_logs(run, runs_dir.resolve(), out, follow=follow)


def stop(run: RunName, runs_dir: RunsDir = DEFAULT_RUNS_DIR) -> None:
    """Stop a submitted run: its load ends, what was committed stays; go on later with --resume."""
    from raybench.submission import stop_run

    out.print(stop_run(run, runs_dir.resolve()), soft_wrap=True)


def fetch(run: RunName, runs_dir: RunsDir = DEFAULT_RUNS_DIR) -> None:
    """Copy the run directory of a submitted run home and print its points."""
    from raybench.submission import fetch_run

    fetch_run(run, runs_dir.resolve(), out)


def export(run: RunPath) -> None:
    """Print a run directory as archive events; the other half of `fetch`."""
    from raybench.cluster.archive import export as export_run

    export_run(run.expanduser(), lambda line: print(line, flush=True))
