"""`raybench roofline`: measured in a Ray of this process, or by a job on a cluster; stored, and shown."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.console import Console

from raybench.cluster import submit as jobs
from raybench.cluster.events import say, tells_events
from raybench.cluster.roofline import choose_nodes, measure_nodes
from raybench.cluster.run import connected
from raybench.cluster.spec import ClusterSpec
from raybench.errors import EXIT_OK
from raybench.protocol.roofline import QUICK, RooflineRequest
from raybench.records.roofline import Roofline, Step, store_roofline
from raybench.records.rundir import make_writable
from raybench.report.roofline import print_rooflines, print_step

OnStep = Callable[[str, Step], None]
OnRoofline = Callable[[Roofline], None]


def measure_rooflines(request: RooflineRequest, console: Console, progress: Console, *, as_json: bool) -> int:
    """`raybench roofline` inside a Ray: measure, store, show; the exit code."""
    if tells_events():
        _measure(
            request,
            lambda host, step: say("roofline_step", host=host, step=asdict(step)),
            lambda roofline: say("roofline", roofline=roofline.as_record()),
        )
        return EXIT_OK
    make_writable(request.runs_dir)
    found: list[Roofline] = []
    progress.print(f"measuring, {request.settings.effort.told()}", style="dim")
    try:
        _measure(request, lambda host, step: print_step(host, step, progress), found.append)
    finally:
        print_rooflines(found, console, as_json=as_json)
    return EXIT_OK


def _measure(request: RooflineRequest, on_step: OnStep, on_done: OnRoofline) -> None:
    """Measure nodes of the current Ray (or of one of our own) and store each result in `runs_dir`."""

    def store(roofline: Roofline) -> None:
        store_roofline(request.runs_dir, roofline)
        on_done(roofline)

    with connected():
        nodes = choose_nodes(request.placement, request.nodes)
        measure_nodes(nodes, request.workers_per_node, request.settings, on_step=on_step, on_done=store)


def submit_rooflines(
    request: RooflineRequest, cluster: ClusterSpec, console: Console, progress: Console, *, as_json: bool
) -> int:
    """`raybench roofline` on a running cluster, as a Ray job; results are stored there and here. The exit code."""
    found: list[Roofline] = []
    errors: list[dict[str, Any]] = []
    said: list[str] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["kind"] == "roofline_step":
            print_step(event["host"], Step(**event["step"]), progress)
        elif event["kind"] == "roofline":
            found.append(Roofline.of_record(event["roofline"], "the job's log"))
            store_roofline(request.runs_dir, found[-1])
        elif event["kind"] == "error":
            errors.append(event)

    make_writable(request.runs_dir)
    with jobs.source_for(cluster) as folder:
        client = jobs.connect(cluster)
        job = f"roofline-{secrets.token_hex(4)}"
        jobs.submit_job(client, cluster, _roofline_arguments(request, cluster), submission_id=job, folder=folder)
        progress.print(f"job {job}: measuring, {request.settings.effort.told()}", style="dim")
        try:
            status = jobs.follow(client, job, on_event, said.append)
        except KeyboardInterrupt:
            jobs.stop(client, job)
            raise
        finally:
            print_rooflines(found, console, as_json=as_json)
    if not errors and status != "SUCCEEDED":
        errors.append(jobs.unexplained_end(status, said))
    for error in errors:
        progress.print(f"raybench: {error['message']}", style="red", soft_wrap=True)
    return int(errors[0]["exit_code"]) if errors else EXIT_OK


def _roofline_arguments(request: RooflineRequest, cluster: ClusterSpec) -> list[str]:
    """The command that the job runs on the head node."""
    settings = request.settings
    arguments = ["roofline", "--runs-dir", cluster.runs_dir, "--placement", cluster.placement.model_dump_json()]
    arguments += ["--client", settings.client, "--error-ms", str(settings.stamp_error_ms_max)]
    arguments += ["--quick"] if settings.effort == QUICK else []
    arguments += [] if request.workers_per_node == "auto" else ["--workers", str(request.workers_per_node)]
    for node in request.nodes:
        arguments += ["--node", node]
    return arguments
