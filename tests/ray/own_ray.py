"""Ray nodes that a test starts for itself, as an operator would: `ray start`, token, ports, private folder."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ray_product import LIMIT_S, environment, opener

from raybench.deploy.ports import free_ports
from raybench.deploy.process import LaunchedProcess, LogPattern

OBJECT_STORE_BYTES = 100_000_000
GRACE_S = 1.0


@dataclass(frozen=True)
class OwnRay:
    """A head node. gcs: what `ray start --address` and RAY_ADDRESS take. job_api: the dashboard."""

    gcs: str
    job_api: str
    token: str
    folder: Path
    process: LaunchedProcess

    @property
    def outside(self) -> dict[str, str]:
        """Environment of a command that reaches the cluster by its Job API."""
        return _auth(self.token)

    @property
    def inside(self) -> dict[str, str]:
        """Environment of a driver."""
        return {**self.outside, "RAY_ADDRESS": self.gcs, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

    def actors(self, state: str = "ALIVE") -> list[dict[str, Any]]:
        """What `ray list actors` says."""
        answer = self.get("/api/v0/actors?limit=10000")
        return [actor for actor in answer["data"]["result"]["result"] if actor["state"] == state]

    def job(self, submission_id: str) -> dict[str, Any]:
        job: dict[str, Any] = self.get(f"/api/jobs/{submission_id}")
        return job

    def get(self, path: str) -> Any:
        return get_json(self.job_api + path, {"Authorization": f"Bearer {self.token}"})


def cluster_file(folder: Path, cluster: OwnRay, **keys: object) -> Path:
    """A cluster file for it, whose head node keeps runs in `folder`/on-head; the token is in TEST_RAY_TOKEN."""
    path = folder / "cluster.yaml"
    content = {
        "name": "test",
        "address": cluster.job_api,
        "token_env": "TEST_RAY_TOKEN",
        "runs_dir": str(folder / "on-head"),
        **keys,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def get_json(url: str, headers: Mapping[str, str] | None = None) -> Any:
    with opener().open(urllib.request.Request(url, headers=dict(headers or {})), timeout=30) as answer:
        return json.load(answer)


@contextmanager
def head(
    address: str = "127.0.0.1",
    *,
    prefix: Sequence[str] = (),
    resources: Mapping[str, int] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[OwnRay]:
    """A head node with a dashboard on `address`; it ends with the block.

    prefix: a command in front, as `ip netns exec head`. variables: more of Ray's environment.
    """
    token = secrets.token_hex(16)
    gcs, dashboard, agent, client = free_ports(4)
    options = ["--head", f"--port={gcs}", "--include-dashboard=true", f"--dashboard-host={address}"]
    options += [f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"]
    options += [f"--ray-client-server-port={client}"]
    with _node(address, options, prefix, resources, {**(variables or {}), **_auth(token)}) as (process, folder):
        yield OwnRay(f"{address}:{gcs}", f"http://{address}:{dashboard}", token, folder, process)


@contextmanager
def worker(
    cluster: OwnRay, address: str, *, prefix: Sequence[str] = (), resources: Mapping[str, int] | None = None
) -> Iterator[LaunchedProcess]:
    """One more node of `cluster`; it ends with the block."""
    with _node(address, [f"--address={cluster.gcs}"], prefix, resources, _auth(cluster.token)) as (process, _):
        yield process


def _auth(token: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


@contextmanager
def _node(
    address: str,
    options: Sequence[str],
    prefix: Sequence[str],
    resources: Mapping[str, int] | None,
    variables: Mapping[str, str],
) -> Iterator[tuple[LaunchedProcess, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="rbt", dir="/tmp"))  # short: sockets in it have a limited path
    command = [*prefix, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options]
    command += [f"--node-ip-address={address}", f"--temp-dir={folder}", "--disable-usage-stats"]
    command += ["--num-cpus=1", "--num-gpus=0", f"--object-store-memory={OBJECT_STORE_BYTES}"]
    command += ["--min-worker-port=0", "--max-worker-port=0", f"--resources={json.dumps(dict(resources or {}))}"]
    # the last of these decides whether 127.0.0.1 may stay a node's address (see cluster/auth.py)
    env = {**environment(folder), **variables, "RAY_TMPDIR": str(folder)}
    env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = str(int(address != "127.0.0.1"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        process = LaunchedProcess.start(
            command, log_path=folder / "start.log", env=env, grace_s=GRACE_S, name=f"Ray on {address}"
        )
        stack.callback(process.stop)
        process.wait_ready(LogPattern("This command will now block forever"), LIMIT_S)
        yield process, folder
