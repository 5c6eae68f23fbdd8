"""Submit a run through the Ray Job API, follow it, and bring its run directory home.

Runs on the user's machine. Talks to a cluster only by its Job API; without an address that is the Ray
of `local.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from raybench.cluster.archive import Importer
from raybench.cluster.events import EVENTS_VARIABLE, LineSplitter, read_line
from raybench.cluster.package import stage_source
from raybench.cluster.spec import ClusterSpec
from raybench.errors import EXIT_CLUSTER, EXIT_NOT_ALL_VALID, ClusterError, RunDirectoryError
from raybench.records.strict_json import read_json, write_json

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

OnEvent = Callable[[dict[str, object]], None]
OnText = Callable[[str], None]

SUBMISSIONS = ".submissions"
RECONNECT_S = 1.0
RECONNECT_LIMIT_S = 30.0
STOP_WAIT_S = 20.0
#: What the Job API says while the node's agent has not registered, and how long that may take.
TRY_AGAIN = re.compile("No available agent|status code 5[0-9][0-9]")
TAKEN_BEFORE = "already exists"
AGENT_TIMEOUT_S = 60.0
#: A job runs the `python` that Ray's own environment has first on its PATH.
MODULE_WAY_OUT = (
    "the Python of the cluster lacks raybench's dependencies: run `ray start` in an activated environment that has"
    " them (docs/OPERATIONS.md, A cluster)"
)


@dataclass(frozen=True)
class Submission:
    """How to find a submitted run again. remote_run_path: the run directory on the coordinator's node."""

    run_id: str
    submission_id: str
    remote_run_path: str
    python: str
    cluster: ClusterSpec

    def save(self, runs_dir: Path) -> None:
        told = {**vars(self), "cluster": self.cluster.model_dump(mode="json")}
        write_json(runs_dir / SUBMISSIONS / f"{self.run_id}.json", told)

    @classmethod
    def load(cls, runs_dir: Path, run: str) -> Submission:
        """By run id or by the path of its run directory. Raises RunDirectoryError for an unknown one."""
        run_id = Path(run).name
        path = runs_dir / SUBMISSIONS / f"{run_id}.json"
        if not path.exists():
            known = sorted(entry.stem for entry in path.parent.glob("*.json"))
            text = f"; known here: {', '.join(known[-5:])}" if known else ""
            raise RunDirectoryError(f"no run {run_id} was submitted from {runs_dir}{text}")
        told: Any = read_json(path)
        try:
            return cls(**{**told, "cluster": ClusterSpec.model_validate(told["cluster"])})
        except (KeyError, TypeError, ValidationError):
            raise RunDirectoryError(f"{path}: not a submission of this version of raybench") from None


def connect(cluster: ClusterSpec) -> JobSubmissionClient:
    """A client of the Job API. Raises ClusterError with the way out when nothing answers there."""
    from ray.exceptions import RayError
    from ray.job_submission import JobSubmissionClient

    # Its notes about uploads and closed log connections are ours to judge, and would tear the progress display.
    for name in ("modules.job.sdk", "modules.dashboard_sdk"):
        logging.getLogger(f"ray.dashboard.{name}").setLevel(logging.WARNING)
    logging.getLogger("ray._private.runtime_env.packaging").setLevel(logging.WARNING)
    try:
        return JobSubmissionClient(cluster.address, headers=dict(cluster.headers), verify=cluster.verify)
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ClusterError(
            f"no Ray Job API at {cluster.address}: {first}; the address is the dashboard's, as http://head:8265,"
            " and a cluster with RAY_AUTH_MODE=token needs RAY_AUTH_TOKEN or `token_env` in the cluster file"
        ) from error


def submit_job(
    client: JobSubmissionClient,
    cluster: ClusterSpec,
    arguments: list[str],
    *,
    submission_id: str,
    python: str = "python",
    folder: Path | None = None,
) -> None:
    """Start `python -m raybench ARGUMENTS` as a Ray job, with `folder` as its working directory on the cluster.

    A Ray that has just started refuses jobs until its agent is up, and a busy one may answer late with an error of
    its own (status 5xx): both are tried again. An answer that was lost after the job was taken is no error.
    """
    environment = cluster.runtime_env.as_ray_takes_it()
    variables = {EVENTS_VARIABLE: "1", "RAY_DEDUP_LOGS": "0", "PYTHONUNBUFFERED": "1"}
    environment["env_vars"] = {**environment.get("env_vars", {}), **variables}
    if folder is not None:
        environment["working_dir"] = str(folder)
    end = time.monotonic() + AGENT_TIMEOUT_S
    tried_before = False
    while True:
        try:
            client.submit_job(
                entrypoint=shlex.join([python, "-m", "raybench", *arguments]),
                submission_id=submission_id,
                runtime_env=environment,
                metadata={"raybench": arguments[0]},
            )
        except (RuntimeError, ValueError) as error:
            if tried_before and TAKEN_BEFORE in str(error):
                return
            if TRY_AGAIN.search(str(error)) and time.monotonic() < end:
                tried_before = True
                time.sleep(RECONNECT_S)
                continue
            raise ClusterError(f"the job was not taken: {_last_words(str(error))}") from error
        return


def _last_words(text: str) -> str:
    """The last line that says anything: Ray puts a traceback into its message, and a full stop behind that."""
    said = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    return said[-1] if said else "Ray gives no reason"


@contextmanager
def explained(submission_id: str) -> Iterator[None]:
    """Calls to the Job API about one job: a ClusterError when it does not know the job, or is gone itself."""
    try:
        yield
    except (RuntimeError, OSError) as error:  # requests' own errors are OSErrors
        last = _last_words(str(error))
        raise ClusterError(
            f"the cluster says nothing of the job {submission_id} ({last}); if it was started anew, it has"
            " forgotten its jobs, and what the run had committed lies in the run directory on its head node"
        ) from error


@contextmanager
def source_for(cluster: ClusterSpec) -> Iterator[Path | None]:
    """A folder with our source, for a job that reads nothing else; None where the nodes have raybench."""
    if not cluster.package.ship:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="raybench-") as name:
        stage_source(Path(name))
        yield Path(name)


def log_lines(client: JobSubmissionClient, submission_id: str) -> list[str]:
    """All that the job has printed so far. Raises ClusterError."""
    with explained(submission_id):
        lines: list[str] = client.get_job_logs(submission_id).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def unexplained_end(status: str, said: Sequence[str]) -> dict[str, Any]:
    """What to say of a job that ended without a word of why, as an event of kind `error`. said: its own text."""
    if status == "STOPPED":
        return {"message": "the run was stopped", "exit_code": EXIT_NOT_ALL_VALID}
    tail = "\n".join(said[-15:])
    message = f"the job ended as {status} without an outcome" + (f"; its last words:\n{tail}" if tail else "")
    if "ModuleNotFoundError: " in tail:
        message += f"\n{MODULE_WAY_OUT}"
    return {"message": message, "exit_code": EXIT_CLUSTER}


def follow(client: JobSubmissionClient, submission_id: str, on_event: OnEvent, on_text: OnText) -> str:
    """Pass on the job's log until it ends; the job's last status, as SUCCEEDED.

    The log's connection may break at any time: it is read again and what was seen is skipped. Raises ClusterError
    when the cluster is gone.
    """
    return asyncio.run(_follow(client, submission_id, on_event, on_text))


async def _follow(client: JobSubmissionClient, submission_id: str, on_event: OnEvent, on_text: OnText) -> str:
    seen = 0

    def pass_on(line: str) -> None:
        event = read_line(line)
        if event is not None:
            on_event(event)
        elif line.strip():
            on_text(line)

    while True:
        splitter, number = LineSplitter(), 0
        try:
            async for piece in client.tail_job_logs(submission_id):
                for line in splitter.feed(piece):
                    number += 1
                    if number > seen:
                        pass_on(line)
        except (RuntimeError, OSError):
            pass  # the connection broke; the status below decides whether to go on
        seen = max(seen, number)
        status = await _status(client, submission_id)
        if status.is_terminal():
            break
        await asyncio.sleep(RECONNECT_S)
    # The tail may end before the last lines were delivered; the full log has them.
    for line in (await asyncio.to_thread(log_lines, client, submission_id))[seen:]:
        pass_on(line)
    return str(status.value)


async def _status(client: JobSubmissionClient, submission_id: str) -> Any:
    """The job's status; the cluster may be out of reach for a while. Raises ClusterError."""
    end = time.monotonic() + RECONNECT_LIMIT_S
    while True:
        try:
            with explained(submission_id):
                return await asyncio.to_thread(client.get_job_status, submission_id)
        except ClusterError:
            if time.monotonic() >= end:
                raise
        await asyncio.sleep(RECONNECT_S)


def stop(client: JobSubmissionClient, submission_id: str) -> str:
    """Stop the job and wait for its end; its last status, also of one that had ended before.

    Raises ClusterError.
    """
    with explained(submission_id):
        client.stop_job(submission_id)
        end = time.monotonic() + STOP_WAIT_S
        while time.monotonic() < end:
            status = client.get_job_status(submission_id)
            if status.is_terminal():
                return str(status.value)
            time.sleep(0.2)
    raise ClusterError(f"the job {submission_id} did not end within {STOP_WAIT_S:g} s of being stopped")


def fetch(client: JobSubmissionClient, submission: Submission, target: Path) -> None:
    """Copy the run directory from the coordinator's node to `target`. Raises ClusterError."""
    importer = Importer()
    said: list[str] = []

    def on_event(event: dict[str, object]) -> None:
        if event["kind"] == "archive":
            importer.take(event)
        elif event["kind"] == "error":
            said.append(str(event["message"]))

    cluster, arguments = submission.cluster, ["export", submission.remote_run_path]
    job = f"{submission.submission_id}-fetch-{secrets.token_hex(3)}"
    with source_for(cluster) as folder:
        submit_job(client, cluster, arguments, submission_id=job, python=submission.python, folder=folder)
        status = follow(client, job, on_event, said.append)
    if not importer.complete:
        detail = said[-1] if said else status
        raise ClusterError(f"the run directory {submission.remote_run_path} could not be fetched: {detail}")
    importer.unpack(target)
