"""`raybench submit`, and the commands about a submitted run: a scenario becomes a Ray job, its results come home.

Runs on the user's machine. Joins the cluster room (Job API) with the report room (display, table).
"""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from raybench.analysis.merge import merge
from raybench.arguments import RunRequest
from raybench.cluster import auth
from raybench.cluster import submit as jobs
from raybench.cluster.events import read_line
from raybench.cluster.local import local_ray
from raybench.cluster.package import SCENARIO_FILE, stage, stage_scenario
from raybench.cluster.spec import ClusterSpec
from raybench.errors import EXIT_CLUSTER, EXIT_OK, EXIT_SERVICE, ClusterError, RunDirectoryError
from raybench.records.rundir import RunDirectory, make_writable
from raybench.report.live import LiveDisplay
from raybench.report.service import say_service
from raybench.report.source import read_source
from raybench.report.terminal import closing_line, print_points
from raybench.report.write import write_report


@dataclass
class Listener:
    """Collects what the job's events say, and shows it. begun: the run has a directory where the job runs."""

    display: LiveDisplay
    begun: bool = False
    outcome: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    def on_event(self, event: dict[str, Any]) -> None:
        if event["kind"] == "snapshot":
            self.display.show(event["snapshot"])
        elif event["kind"] == "note":
            self.display.note(event["message"])
        elif event["kind"] == "run":
            self.begun = True
        elif event["kind"] == "outcome":
            self.outcome = event
        elif event["kind"] == "error":
            self.error = event

    def ended(self, status: str, said: list[str]) -> None:
        """The job has, with this status. said: its own text, for one that could not say how the run ended."""
        if self.outcome is None and self.error is None:
            self.error = jobs.unexplained_end(status, said)

    def say_end(self, console: Console) -> None:
        if self.outcome is not None:
            console.print(closing_line(self.outcome), soft_wrap=True)
        if self.error is not None:
            console.print(f"raybench: {self.error['message']}", style="red", soft_wrap=True)


def submit_run(request: RunRequest, spec: ClusterSpec | None, console: Console, *, no_wait: bool) -> int:
    """The whole of `raybench submit`; the exit code. spec: None = a local Ray of our own."""
    make_writable(request.runs_dir)
    with ExitStack() as stack:
        if spec is None:
            console.print("starting a local Ray", style="dim")
        cluster = spec or stack.enter_context(local_ray())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raybench-")))
        submission, arguments = _staged(request, cluster, folder, here=spec is None)
        client = jobs.connect(cluster)
        if spec is not None:  # found again by later commands, whatever becomes of this one
            submission.save(request.runs_dir)
        jobs.submit_job(
            client,
            cluster,
            arguments,
            submission_id=submission.submission_id,
            python=submission.python,
            folder=None if spec is None else folder,
        )
        console.print(f"run {submission.run_id}", soft_wrap=True)
        if no_wait:
            console.print(f"submitted; see `raybench status {submission.run_id}`", soft_wrap=True)
            return EXIT_OK
        listener = _follow(client, submission, console)
        run = _bring_home(client, submission, request.runs_dir, listener, console)
        again = "" if spec is None else ", and --cluster or --address as now"
        return _conclude(run, listener, console, again)  # before the local Ray is stopped, which takes seconds


def _staged(
    request: RunRequest, cluster: ClusterSpec, folder: Path, *, here: bool
) -> tuple[jobs.Submission, list[str]]:
    """The run as a job whose files are in `folder`: how to find it again, and the arguments of its command.

    here: the job runs on this machine, and reads everything where it lies.
    """
    from raybench.cluster.run import new_run_id

    run_id = new_run_id(request.scenario) if request.resume is None else request.resume.name
    if here:
        stage_scenario(request.scenario, folder)
        path, python = str(request.resume or request.runs_dir / run_id), sys.executable
        arguments = ["run", str(folder / SCENARIO_FILE), "--base", str(request.base)]
    else:
        ship, bytes_max = cluster.package.ship, cluster.package.max_bytes
        stage(request.scenario, request.base, folder, ship_source=ship, bytes_max=bytes_max)
        path, python = f"{cluster.runs_dir}/{run_id}", "python"
        arguments = ["run", SCENARIO_FILE]
    fresh = ["--runs-dir", str(Path(path).parent), "--run-id", run_id]
    arguments += fresh if request.resume is None else ["--resume", path]
    arguments += ["--source", request.source, *(["--force"] if request.force else [])]
    submission_id = _next_submission_id(request.runs_dir, run_id)
    return jobs.Submission(run_id, submission_id, path, python, cluster), arguments


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
    said: list[str] = []
    with LiveDisplay(console) as display:
        listener = Listener(display)
        try:
            status = jobs.follow(client, submission.submission_id, listener.on_event, said.append)
        except KeyboardInterrupt:
            display.note("stopping the run; what is committed stays")
            status = jobs.stop(client, submission.submission_id)
            for event in filter(None, map(read_line, jobs.log_lines(client, submission.submission_id))):
                if event["kind"] not in ("snapshot", "note"):  # those are no news any more
                    listener.on_event(event)
    listener.ended(status, said)
    return listener


def _bring_home(
    client: Any, submission: jobs.Submission, runs_dir: Path, listener: Listener, console: Console
) -> RunDirectory | None:
    """The run directory on this machine; None when there is none, or when it cannot be fetched, which is said."""
    here = RunDirectory(Path(submission.remote_run_path).expanduser())
    if here.manifest.is_file() and here.read_manifest().get("run_id") == submission.run_id:
        return here
    if not listener.begun:
        return None
    home = RunDirectory(runs_dir / submission.run_id)
    try:
        jobs.fetch(client, submission, home.path)
    except ClusterError as error:
        way_out = f"try again with `raybench fetch {submission.run_id}`"
        console.print(f"raybench: {error}; {way_out}", style="red", soft_wrap=True)
        return None
    return home


def _conclude(run: RunDirectory | None, listener: Listener, console: Console, again: str) -> int:
    """Table, closing line, report path; the exit code. again: what `--resume` needs beside the path."""
    if run is not None and run.journal.is_file():
        if listener.outcome is None:  # the driver may have been ended before it came to this
            with suppress(RunDirectoryError):  # as on a full disk; what ended the run is said below
                merge(run)
                write_report(read_source(run), run.path)
        if run.points_parquet.is_file():
            print_points(read_source(run), console)
    listener.say_end(console)
    told: Any = listener.outcome or listener.error
    code = int(told["exit_code"])
    if run is None:
        return code or EXIT_CLUSTER  # a run that went well, whose records are not here
    if run.report_md.is_file():
        for path in (run.report_md, run.report_html):
            console.print(f"report: {path}", soft_wrap=True)
    if code != EXIT_OK:
        console.print(f"go on with: raybench submit --resume {run.path}{again}", soft_wrap=True)
    return code if say_service(run, console) else EXIT_SERVICE


def _reconnect(run: str, runs_dir: Path) -> tuple[Any, jobs.Submission]:
    submission = jobs.Submission.load(runs_dir, run)
    auth.for_cluster(submission.cluster.token_env)
    return jobs.connect(submission.cluster), submission


def job_status(run: str, runs_dir: Path) -> str:
    """One line: the job's status, and where the run is by its last snapshot."""
    from raybench.report.live import plain_line

    client, submission = _reconnect(run, runs_dir)
    with jobs.explained(submission.submission_id):
        state = client.get_job_status(submission.submission_id)
    events = list(filter(None, map(read_line, jobs.log_lines(client, submission.submission_id))))
    last: Any = next((event for event in reversed(events) if event["kind"] not in ("run", "note")), None)
    text = f"{submission.run_id}: {state.value}"
    if last is None:
        return text
    if last["kind"] == "snapshot":
        return f"{text}; {plain_line(last['snapshot'])}"
    told = closing_line(last) if last["kind"] == "outcome" else last["message"]
    return f"{text}; {told}; bring it home with `raybench fetch {submission.run_id}`"


def show_logs(run: str, runs_dir: Path, console: Console, *, follow: bool) -> None:
    """The job's own text; with `follow` progress too, until its end, and how it ended. Ctrl-C stops nothing."""
    client, submission = _reconnect(run, runs_dir)
    if follow:
        with LiveDisplay(console) as display:
            listener = Listener(display)
            status = jobs.follow(client, submission.submission_id, listener.on_event, display.note)
        listener.ended(status, [])
        listener.say_end(console)
        return
    for line in jobs.log_lines(client, submission.submission_id):
        if read_line(line) is None:
            console.print(line, soft_wrap=True)


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
    console.print(f"run directory: {home.path}", soft_wrap=True)
