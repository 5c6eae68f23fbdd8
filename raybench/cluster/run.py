"""Drive one run inside a Ray: make the coordinator, show its progress, wait for its end.

This is the driver of the Ray job (`raybench run`). It owns the coordinator's actor; when it dies, all
actors of the run die.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import ray
from ray.exceptions import RayActorError

import raybench
from raybench.cluster.calls import own_node, pinned
from raybench.cluster.claims import NAMESPACE, PREFIX
from raybench.cluster.coordinator_actor import CoordinatorActor
from raybench.cluster.fleet import COORDINATOR_CONCURRENCY
from raybench.errors import ClusterError, RaybenchError, RunDirectoryError
from raybench.protocol.invocation import Outcome
from raybench.protocol.progress import Snapshot
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import write_json
from raybench.scenario.load import effective, scenario_sha256
from raybench.scenario.plan import make_plan
from raybench.scenario.schema import Scenario

POLL_S = 0.5
CONNECT_S = 5.0
ADDRESS_WAY_OUT = "RAY_ADDRESS has to name one that runs, RAY_AUTH_TOKEN its token; unset, one is started"

OnSnapshot = Callable[[Snapshot], None]
OnNote = Callable[[str], None]


def new_run_id(scenario: Scenario) -> str:
    """Readable, sortable, unique: name, UTC time, eight hex digits (which also mark the request ids)."""
    return f"{scenario.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def begin_run(scenario: Scenario, run_id: str, runs_dir: Path, source: str, base: Path) -> RunDirectory:
    """Make the run directory and its manifest. Raises RunDirectoryError when it exists."""
    run = RunDirectory(runs_dir / run_id)
    run.create()
    write_json(
        run.manifest,
        {
            "run_id": run_id,
            "raybench_version": raybench.__version__,
            "python_version": sys.version.split()[0],
            "ray_version": ray.__version__,
            "scenario_source": source,
            "base": str(base),
            "scenario_sha256": scenario_sha256(scenario),
            "scenario": effective(scenario),
            "points": [asdict(point) for point in make_plan(scenario).points],
            "created_unix_ns": time.time_ns(),
        },
    )
    return run


def reopen_run(scenario: Scenario, run_path: Path) -> tuple[RunDirectory, str]:
    """An existing run to go on with, and its id. Raises RunDirectoryError if the scenario changed."""
    run = RunDirectory(run_path)
    manifest = run.read_manifest()
    was, now = manifest["scenario_sha256"], scenario_sha256(scenario)
    if was != now:
        raise RunDirectoryError(
            f"{run_path}: was measured with another scenario (sha256 {was[:12]}, now {now[:12]}); points of two"
            " scenarios are not one matrix: resume with the scenario of its manifest, or start a new run"
        )
    return run, str(manifest["run_id"])


def servers_of(scenario: Scenario) -> list[str]:
    """URLs of the servers that the scenario loads; those that it starts itself are nobody else's."""
    urls = [arm.url for arm in scenario.arms.values() if arm.url is not None]
    return urls + [url for arm in scenario.arms.values() for url in arm.load_urls]


def drive(
    scenario: Scenario, run: RunDirectory, run_id: str, base: Path, *, on_snapshot: OnSnapshot, on_note: OnNote
) -> Outcome:
    """Run the scenario in the connected Ray to its end; its servers are claimed (`claims.claimed`).

    on_note: what to tell the user of the fleet, once. Raises what the coordinator could not do as the
    RaybenchError that it is.
    """
    coordinator = pinned(
        CoordinatorActor,
        own_node(),
        name=f"{PREFIX}coordinator-{run_id}",
        namespace=NAMESPACE,
        max_concurrency=COORDINATOR_CONCURRENCY,
    ).remote(scenario, run_id, str(run.path), str(base))
    result = coordinator.run.remote()
    with _stop_on_signal(coordinator):
        try:
            outcome = _follow(coordinator, result, on_snapshot, on_note)
        except RayActorError as error:
            raise ClusterError(f"the coordinator died: {error}; go on with --resume {run.path}") from error
        finally:
            ray.kill(coordinator)
    if isinstance(outcome, RaybenchError):
        raise outcome
    return outcome


def _follow(coordinator: Any, result: Any, on_snapshot: OnSnapshot, on_note: OnNote) -> Outcome | RaybenchError:
    noted = False
    while True:
        done, _ = ray.wait([result], timeout=POLL_S)
        snapshot = ray.get(coordinator.snapshot.remote())
        if snapshot is not None:
            if not noted:
                noted = True
                for note in ray.get(coordinator.notes.remote()):
                    on_note(note)
            on_snapshot(snapshot)
        if done:
            outcome: Outcome | RaybenchError = ray.get(done[0])
            return outcome


@contextmanager
def _stop_on_signal(coordinator: Any) -> Iterator[None]:
    """SIGTERM and SIGINT end the run in order: the journal says so and no load is left behind.

    A second signal ends the process at once.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        coordinator.stop.remote()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refuse_unreachable(address: str) -> None:
    """Raises ClusterError where nobody listens: Ray itself would try for minutes. `auto` is left to it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise ClusterError(f"no Ray at {address}: {error.strerror or error}; {ADDRESS_WAY_OUT}") from None


@contextmanager
def connected() -> Iterator[None]:
    """Join the Ray of the environment (as a job's driver does), else start one for this process alone.

    `auth.for_own_ray` was called in the second case, before Ray was imported.
    """
    joins = os.environ.get("RAY_ADDRESS")
    if joins:
        _refuse_unreachable(joins)
    folder = None if joins else tempfile.mkdtemp(prefix="rb")
    settings: dict[str, Any] = {"address": joins}
    if not joins:
        settings = {
            "address": "local",
            "include_dashboard": False,
            "_temp_dir": folder,
            "_node_ip_address": "127.0.0.1",
        }
    try:
        try:
            ray.init(namespace=NAMESPACE, log_to_driver=False, logging_level="WARNING", **settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            told = str(error).strip()
            if told.startswith("Version mismatch"):
                versions = " ".join(told.split())
                raise ClusterError(f"{joins}: {versions} Ray and Python have to be the same everywhere") from error
            first = told.splitlines()[0]
            raise ClusterError(f"no Ray at {joins or 'this machine'}: {first}; {ADDRESS_WAY_OUT}") from error
        yield
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
