"""`raybench submit` and what goes with it: a scenario becomes a Ray job, and its results come home.

Runs on the user's machine. Joins the cluster room (Job API) with the report room (display, table).
"""

from __future__ import annotations

import re
import secrets
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from raybench.analysis.merge import merge
from raybench.cluster import auth
from raybench.cluster import submit as jobs
from raybench.cluster.events import read_line
from raybench.cluster.local import local_ray
from raybench.cluster.package import SCENARIO_FILE, stage, stage_scenario, stage_source
from raybench.cluster.spec import ClusterSpec
from raybench.errors import (
    EXIT_CLUSTER,
    EXIT_NOT_ALL_VALID,
    EXIT_OK,
    EXIT_SERVICE,
    ClusterError,
    ConfigError,
    ConfigProblem,
    RunDirectoryError,
)
from raybench.protocol.roofline import QUICK, RooflineRequest
from raybench.records.roofline import Roofline, Step, store_roofline
from raybench.records.rundir import RunDirectory, make_writable
from raybench.report.live import LiveDisplay
from raybench.report.roofline import print_rooflines, print_step
from raybench.report.service import say_service
from raybench.report.source import read_source
from raybench.report.terminal import closing_line, print_points
from raybench.report.write import write_report
from raybench.scenario.schema import Scenario


@dataclass(frozen=True)
class Request:
    """What the user asked `submit` to do. cluster: None = a local Ray of our own. Paths are absolute."""

    scenario: Scenario
    source: str
    base: Path
    cluster: ClusterSpec | None
    runs_dir: Path
    resume: Path | None
    no_wait: bool
    force: bool


@dataclass
class Listener:
    """Collects what the job's events say, and shows it."""

    display: LiveDisplay
    outcome: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    said: list[str] = field(default_factory=list)

    def on_event(self, event: dict[str, Any]) -> None:
        if event["kind"] == "snapshot":
            self.display.show(event["snapshot"])
        elif event["kind"] == "note":
            self.display.note(event["message"])
        elif event["kind"] == "outcome":
            self.outcome = event
        elif event["kind"] == "error":
            self.error = event

    def on_text(self, line: str) -> None:
        self.said.append(line)

    def on_last_line(self, line: str) -> None:
        """A line of the whole log, read after the end: only how the run ended is news."""
        event = read_line(line)
        if event is not None and event["kind"] in ("outcome", "error"):
            self.on_event(event)


def submit_run(request: Request, console: Console) -> int:
    """The whole of `raybench submit`; the exit code."""
    cluster = request.cluster
    if request.no_wait and cluster is None:
        raise ConfigError(
            "options",
            ConfigProblem(
                "--no-wait needs a running cluster: the local Ray ends with this command",
                way_out="give --address or --cluster, or leave --no-wait out",
            ),
        )
    make_writable(request.runs_dir)
    with ExitStack() as stack:
        if cluster is None:
            console.print("starting a local Ray", style="dim")
            address = stack.enter_context(local_ray())
        else:
            address = cluster.address
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raybench-")))
        client = _connect(cluster, address)
        submission = _submit(client, request, address, folder)
        console.print(f"run {submission.run_id}", highlight=False, soft_wrap=True)
        if request.no_wait:
            console.print(f"submitted; see `raybench status {submission.run_id}`", highlight=False, soft_wrap=True)
            return EXIT_OK
        listener = _follow(client, submission, console)
        run = _bring_home(client, submission, request.runs_dir)
        return _conclude(run, listener, console)  # before the local Ray is stopped, which takes seconds


def _connect(cluster: ClusterSpec | None, address: str) -> Any:
    return jobs.connect(address) if cluster is None else jobs.connect(address, cluster.headers, cluster.verify)


def _submit(client: Any, request: Request, address: str, folder: Path) -> jobs.Submission:
    """Stage and start the job; how to find it again is saved before anything else happens."""
    from raybench.cluster.run import new_run_id

    run_id = new_run_id(request.scenario) if request.resume is None else request.resume.name
    submission_id = _next_submission_id(request.runs_dir, run_id)
    environment: dict[str, Any] = {}
    if (cluster := request.cluster) is None:  # everything is read where it lies
        stage_scenario(request.scenario, folder)
        path = str(request.resume or request.runs_dir / run_id)
        arguments = ["run", str(folder / SCENARIO_FILE), "--base", str(request.base)]
        submission = jobs.Submission(run_id, address, submission_id, path, sys.executable)
    else:
        ship, bytes_max = cluster.package.ship, cluster.package.max_bytes
        stage(request.scenario, request.base, folder, ship_source=ship, bytes_max=bytes_max)
        path = f"{cluster.runs_dir}/{run_id}"
        arguments = ["run", SCENARIO_FILE]
        environment = cluster.runtime_env.as_ray_takes_it()
        headers, token_env = dict(cluster.headers), cluster.token_env
        submission = jobs.Submission(
            run_id, address, submission_id, path, "python", token_env, headers, cluster.verify
        )
        submission.save(request.runs_dir)
    fresh = ["--runs-dir", str(Path(path).parent), "--run-id", run_id]
    arguments += ["--resume", path] if request.resume else fresh
    arguments += ["--source", request.source, *(["--force"] if request.force else [])]
    jobs.submit_job(
        client,
        arguments,
        submission_id=submission_id,
        python=submission.python,
        working_dir=None if cluster is None else folder,
        runtime_env=environment,
    )
    return submission


def _next_submission_id(runs_dir: Path, run_id: str) -> str:
    """The run id, with a number behind it from the second submission on: the Job API takes an id once."""
    try:
        last = jobs.Submission.load(runs_dir, run_id).submission_id
    except RunDirectoryError:
        return run_id
    match = re.search(r"\.([0-9]+)$", last.removeprefix(run_id))
    return f"{run_id}.{int(match[1]) + 1 if match else 2}"


def _follow(client: Any, submission: jobs.Submission, console: Console) -> Listener:
    """Show progress until the job ends; Ctrl-C stops the job first."""
    with LiveDisplay(console) as display:
        listener = Listener(display)
        try:
            status = jobs.follow(client, submission.submission_id, listener.on_event, listener.on_text)
        except KeyboardInterrupt:
            display.note("stopping the run; what is committed stays")
            status = jobs.stop(client, submission.submission_id)
            for line in client.get_job_logs(submission.submission_id).splitlines():
                listener.on_last_line(line)
    if listener.outcome is None and listener.error is None:
        listener.error = _unexplained_end(status, listener.said)
    return listener


def _unexplained_end(status: str, said: list[str]) -> dict[str, Any]:
    """What to say of a job that ended before its driver could say how the run ended."""
    if status == "STOPPED":
        return {"message": "the run was stopped", "exit_code": EXIT_NOT_ALL_VALID}
    tail = "\n".join(said[-15:])
    message = f"the job ended as {status} without an outcome" + (f"; its last words:\n{tail}" if tail else "")
    return {"message": message, "exit_code": EXIT_CLUSTER}


def _bring_home(client: Any, submission: jobs.Submission, runs_dir: Path) -> RunDirectory | None:
    """The run directory on this machine; None when the run did not get so far as to make one."""
    path = Path(submission.remote_run_path).expanduser()
    here = RunDirectory(path)
    if here.manifest.is_file() and here.read_manifest().get("run_id") == submission.run_id:
        return here
    home = runs_dir / submission.run_id
    try:
        jobs.fetch(client, submission, home)
    except ClusterError:
        return RunDirectory(home) if (home / "manifest.json").is_file() else None
    return RunDirectory(home)


def _conclude(run: RunDirectory | None, listener: Listener, console: Console) -> int:
    """Table, closing line, report path; the exit code."""
    if run is not None and run.journal.is_file():
        if listener.outcome is None:  # the driver may have been ended before it came to this
            with suppress(RunDirectoryError):  # as on a full disk; what ended the run is said below
                merge(run)
                write_report(read_source(run), run.path)
        if run.points_parquet.is_file():
            print_points(read_source(run), console)
    if listener.outcome is not None:
        console.print(closing_line(listener.outcome), highlight=False, markup=False, soft_wrap=True)
    if listener.error is not None:
        console.print(f"raybench: {listener.error['message']}", style="red", markup=False, soft_wrap=True)
    ended_well = listener.outcome is not None and listener.outcome["exit_code"] == EXIT_OK
    if run is not None:
        if run.report_md.is_file():
            for path in (run.report_md, run.report_html):
                console.print(f"report: {path}", highlight=False, soft_wrap=True)
        if not ended_well:
            console.print(f"go on with: raybench submit --resume {run.path}", highlight=False, soft_wrap=True)
    if run is not None and not say_service(run, console):
        return EXIT_SERVICE
    told = listener.outcome or listener.error or {}
    return int(told.get("exit_code", EXIT_CLUSTER))


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
    with tempfile.TemporaryDirectory(prefix="raybench-") as folder:
        client = _connect(cluster, cluster.address)
        if cluster.package.ship:
            stage_source(Path(folder))
        job = f"roofline-{secrets.token_hex(4)}"
        jobs.submit_job(
            client,
            _roofline_arguments(request, cluster),
            submission_id=job,
            python="python",
            working_dir=Path(folder),
            runtime_env=cluster.runtime_env.as_ray_takes_it(),
        )
        progress.print(f"job {job}: measuring, {request.settings.effort.told()}", style="dim", highlight=False)
        try:
            status = jobs.follow(client, job, on_event, said.append)
        except KeyboardInterrupt:
            jobs.stop(client, job)
            raise
    print_rooflines(found, console, as_json=as_json)
    if not found and not errors:
        errors.append(_unexplained_end(status, said))
    for error in errors:
        progress.print(f"raybench: {error['message']}", style="red", markup=False, soft_wrap=True)
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


def _reconnect(run: str, runs_dir: Path) -> tuple[Any, jobs.Submission]:
    submission = jobs.Submission.load(runs_dir, run)
    auth.for_cluster(submission.token_env)
    return jobs.connect(submission.address, submission.headers, submission.verify), submission


def job_status(run: str, runs_dir: Path) -> str:
    """One line: the job's status, and where the run is by its last snapshot."""
    from raybench.report.live import plain_line

    client, submission = _reconnect(run, runs_dir)
    with jobs.explained(submission.submission_id):
        state = client.get_job_status(submission.submission_id)
        lines = client.get_job_logs(submission.submission_id).splitlines()
    events = [event for event in map(read_line, lines) if event is not None]
    last: Any = next((event for event in reversed(events) if event["kind"] not in ("run", "note")), None)
    text = f"{submission.run_id}: {state.value}"
    if last is None:
        return text
    if last["kind"] == "snapshot":
        return f"{text}; {plain_line(last['snapshot'])}"
    told = closing_line(last) if last["kind"] == "outcome" else last["message"]
    return f"{text}; {told}; bring it home with `raybench fetch {submission.run_id}`"


def show_logs(run: str, runs_dir: Path, console: Console, *, follow: bool) -> None:
    """The job's own text; with `follow`, progress too, until it ends."""
    client, submission = _reconnect(run, runs_dir)
    if follow:
        _follow(client, submission, console)
        return
    with jobs.explained(submission.submission_id):
        lines = client.get_job_logs(submission.submission_id).splitlines()
    for line in lines:
        if read_line(line) is None:
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def stop_run(run: str, runs_dir: Path) -> str:
    """Stop the job; what to say about it."""
    client, submission = _reconnect(run, runs_dir)
    state = jobs.stop(client, submission.submission_id)
    return f"{submission.run_id}: {state}; bring it home with `raybench fetch {submission.run_id}`"


def fetch_run(run: str, runs_dir: Path, console: Console) -> None:
    """Copy the run directory home and print its points. Raises ClusterError."""
    client, submission = _reconnect(run, runs_dir)
    home = RunDirectory(runs_dir / submission.run_id)
    if Path(submission.remote_run_path).expanduser() != home.path:
        jobs.fetch(client, submission, home.path)
    if home.points_parquet.is_file():
        print_points(read_source(home), console)
    console.print(f"run directory: {home.path}", highlight=False, soft_wrap=True)
