"""What a user sees of a run that is a job: how it ended, where its records are, and what only looks at it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_fakes import scenario
from rich.console import Console
from test_protocol_client_checks import roofline

from raybench import submission
from raybench.arguments import RunRequest
from raybench.cluster import submit as jobs
from raybench.cluster.events import event_line
from raybench.cluster.spec import ClusterSpec, Package, RuntimeEnv, cluster_at
from raybench.errors import EXIT_CLUSTER, EXIT_NOT_ALL_VALID, ClusterError, RunDirectoryError
from raybench.protocol.roofline import Effort, RooflineRequest, Settings
from raybench.roofline import submit_rooflines
from raybench.scenario.schema import Placement

BEGUN = event_line("run", run_id="r", path="/on/the/head")
COMPLETE = event_line(
    "outcome", status="complete", exit_code=0, accepted=1, void=0, skipped=0, missing=0, reason=None
)
REFUSED = event_line("error", message="run other is loading http://h:1", exit_code=3)


class Api:
    """A Job API with one job, which has printed these lines and ended."""

    def __init__(self, *lines: str, status: str = "SUCCEEDED", interrupted: bool = False) -> None:
        self.log = "".join(f"{line}\n" for line in lines)
        self.status = status
        self.interrupted = interrupted
        self.submitted: list[str] = []
        self.environments: list[dict[str, Any]] = []
        self.with_source: list[bool] = []
        self.stopped = False

    def submit_job(self, *, submission_id: str, runtime_env: dict[str, Any], **_: object) -> None:
        self.submitted.append(submission_id)
        self.environments.append(runtime_env)
        self.with_source.append((Path(runtime_env.get("working_dir", "none")) / "raybench" / "cli.py").is_file())

    async def tail_job_logs(self, _job: str) -> AsyncIterator[str]:
        yield self.log
        if self.interrupted:
            raise KeyboardInterrupt

    def get_job_logs(self, _job: str) -> str:
        return self.log

    def get_job_status(self, _job: str) -> Any:
        return SimpleNamespace(value=self.status, is_terminal=lambda: True)

    def stop_job(self, _job: str) -> None:
        self.stopped = True


@pytest.fixture
def console() -> Console:
    return Console(width=200, force_terminal=False)


def use(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "connect", lambda *_: api)


def submitted(api: Api, folder: Path, console: Console, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `raybench submit` on a cluster."""
    use(api, monkeypatch)
    request = RunRequest(scenario(), "s.yaml", folder, folder / "runs", resume=None, force=False)
    return submission.submit_run(request, cluster_at("http://head:8265"), console, no_wait=False)


def test_records_that_do_not_come_home_are_told_and_are_no_success(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Api(BEGUN, COMPLETE)  # the job that exports the run directory prints no archive
    assert submitted(api, tmp_path, console, monkeypatch) == EXIT_CLUSTER
    told = capsys.readouterr().out
    assert "could not be fetched" in told
    assert f"try again with `raybench fetch {api.submitted[0]}`" in told
    assert "complete: 1 accepted" in told


def test_a_run_that_was_refused_has_no_records_to_fetch(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Api(REFUSED, status="FAILED")
    assert submitted(api, tmp_path, console, monkeypatch) == 3
    assert len(api.submitted) == 1
    assert "raybench: run other is loading http://h:1" in capsys.readouterr().out


@pytest.mark.parametrize("ship", [True, False])
def test_the_job_that_brings_records_home_finds_raybench_where_the_run_found_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ship: bool
) -> None:
    """On nodes without raybench that is the source that travels, in the environment of the cluster file."""
    api = Api()
    cluster = ClusterSpec(
        name="c",
        address="http://head:8265",
        runtime_env=RuntimeEnv(pip=["typer"], env_vars={"A": "b"}),
        package=Package(ship=ship),
    )
    jobs.Submission("r", "r", "/on/the/head", "python", cluster).save(tmp_path)
    with pytest.raises(ClusterError, match="could not be fetched: SUCCEEDED"):
        jobs.fetch(api, jobs.Submission.load(tmp_path, "r"), tmp_path / "home")  # type: ignore[arg-type]
    [environment] = api.environments
    assert (environment["pip"], environment["env_vars"]["A"]) == (["typer"], "b")
    assert api.with_source == [ship]


def known(runs_dir: Path) -> str:
    jobs.Submission("r", "r", "/on/the/head", "python", cluster_at("http://head:8265")).save(runs_dir)
    return "r"


def test_logs_followed_to_the_end_tell_the_jobs_text_and_how_the_run_ended(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Api("Traceback: something", REFUSED, status="FAILED"), monkeypatch)
    submission.show_logs(known(tmp_path), tmp_path, console, follow=True)
    told = capsys.readouterr().out
    assert told.splitlines() == ["Traceback: something", "raybench: run other is loading http://h:1"]


def test_ctrl_c_while_logs_are_followed_stops_nothing(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(BEGUN, status="RUNNING", interrupted=True)
    use(api, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        submission.show_logs(known(tmp_path), tmp_path, console, follow=True)
    assert not api.stopped


def test_ctrl_c_while_a_run_is_submitted_stops_it(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Api(status="STOPPED", interrupted=True)
    assert submitted(api, tmp_path, console, monkeypatch) == EXIT_NOT_ALL_VALID
    assert api.stopped
    assert "raybench: the run was stopped" in capsys.readouterr().out


def test_a_roofline_job_that_dies_after_its_first_host_is_no_success(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = event_line("roofline", roofline=roofline(host="client-1").as_record())
    use(Api(first, "Killed", status="FAILED"), monkeypatch)
    request = RooflineRequest(tmp_path, Placement(), (), "auto", Settings(25.0, "auto", Effort()))
    cluster = cluster_at("http://head:8265")
    assert submit_rooflines(request, cluster, console, console, as_json=False) == EXIT_CLUSTER
    told = capsys.readouterr().out
    assert "client-1" in told
    assert "the job ended as FAILED without an outcome; its last words:\nKilled" in told


@pytest.mark.parametrize("content", ["{}", "[1]", "{"])
def test_a_submission_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    known(tmp_path)
    (tmp_path / ".submissions" / "r.json").write_text(content)
    with pytest.raises(RunDirectoryError, match=r"r\.json"):
        jobs.Submission.load(tmp_path, "r")


def test_a_run_is_found_again_by_its_id_or_its_path(tmp_path: Path) -> None:
    known(tmp_path)
    assert jobs.Submission.load(tmp_path, "runs/r").remote_run_path == "/on/the/head"
    with pytest.raises(RunDirectoryError, match=r"no run x was submitted from .*; known here: r"):
        jobs.Submission.load(tmp_path, "x")
