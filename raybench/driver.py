"""`raybench run`: one run inside a Ray, from the run directory to the report. The Ray job's entrypoint.

Joins rooms that may not know each other (cluster makes records, report reads them), as only the
command line's own modules may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from rich.console import Console

from raybench.analysis.merge import merge
from raybench.arguments import RunRequest
from raybench.cluster.claims import claimed
from raybench.cluster.events import say, tells_events
from raybench.cluster.run import (
    OnNote,
    OnSnapshot,
    begin_run,
    connected,
    drive,
    new_run_id,
    reopen_run,
    servers_of,
)
from raybench.deploy.keeping import is_back
from raybench.deploying import adopt_probes
from raybench.errors import RaybenchError, RunDirectoryError, ServiceNotBack
from raybench.protocol.invocation import Outcome
from raybench.protocol.progress import Snapshot
from raybench.records.rundir import RunDirectory
from raybench.report.live import LiveDisplay
from raybench.report.service import say_service, service_line, service_of
from raybench.report.source import read_source
from raybench.report.terminal import closing_line, print_points
from raybench.report.write import write_report


def run_here(request: RunRequest, console: Console) -> int:
    """Carry the scenario out and report; the exit code. Raises RaybenchError after reporting what there is."""
    if tells_events():
        return _run_for_submitter(request)
    with connected(), _begun(request) as (run, name):
        console.print(f"run {name} in {run.path}", soft_wrap=True)
        with LiveDisplay(console) as display:

            def show(snapshot: Snapshot) -> None:
                display.show(asdict(snapshot))

            outcome = _carry_out(request, run, name, show, display.note)
    print_points(read_source(run), console)
    console.print(closing_line(asdict(outcome)), soft_wrap=True)
    for path in (run.report_md, run.report_html):
        console.print(f"report: {path}", soft_wrap=True)
    say_service(run, console)
    return outcome.exit_code


def _run_for_submitter(request: RunRequest) -> int:
    """The same, told as events in the job's log."""

    def show(snapshot: Snapshot) -> None:
        say("snapshot", snapshot=asdict(snapshot))

    def note(text: str) -> None:
        say("note", message=text)

    with connected(), _begun(request) as (run, name):
        say("run", run_id=name, path=str(run.path))
        outcome = _carry_out(request, run, name, show, note)
    say("outcome", **asdict(outcome))
    return outcome.exit_code


@contextmanager
def _begun(request: RunRequest) -> Iterator[tuple[RunDirectory, str]]:
    """The run directory, new or of an earlier invocation, and the run's id; its servers are ours for the block.

    A run that is refused leaves no directory behind.
    """
    scenario = request.scenario
    earlier = None if request.resume is None else reopen_run(scenario, request.resume)
    name = earlier[1] if earlier is not None else request.run_id or new_run_id(scenario)
    with claimed(name, servers_of(scenario), force=request.force):
        if earlier is not None:
            yield earlier
            return
        run = begin_run(scenario, name, request.runs_dir, request.source, request.base)
        adopt_probes(run, scenario.name, list(scenario.arms))
        yield run, name


def _carry_out(request: RunRequest, run: RunDirectory, run_id: str, show: OnSnapshot, note: OnNote) -> Outcome:
    """Drive, then merge and report whatever there is, also when the run ended in an error."""
    try:
        outcome = drive(request.scenario, run, run_id, request.base, on_snapshot=show, on_note=note)
    except RaybenchError as error:
        with suppress(RunDirectoryError):  # what ended the run says more than why it cannot be reported now
            _report(run)
        service = service_of(run, lambda _phase: None)
        if service is not None and not is_back(service):
            raise ServiceNotBack(f"{error}\n{service_line(service)}") from error
        raise
    _report(run)
    return outcome


def _report(run: RunDirectory) -> None:
    if run.journal.exists():
        merge(run)
        write_report(read_source(run), run.path)
