"""A Ray of our own on loopback, for a run without a cluster.

Runs on the user's machine. A process group under a guard (`deploy/process.py`), so that nothing of it
outlives the command, whatever ends the command.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from raybench.cluster.spec import ClusterSpec, Package
from raybench.cluster.submit import connect
from raybench.deploy.ports import free_ports
from raybench.deploy.process import LaunchedProcess
from raybench.errors import ClusterError, TargetError

START_TIMEOUT_S = 90.0
#: Ray's own orderly end takes ten seconds, and nothing of ours is left to save when it begins.
GRACE_S = 1.0


@contextmanager
def local_ray() -> Iterator[ClusterSpec]:
    """Start it and say how it is reached; end it with the block. `auth.for_own_ray` was called before.

    All its ports are its own, also the job agent's, which a second Ray on the machine would otherwise
    find taken and then refuse jobs. Its files lie in a private folder, so that it neither joins nor
    disturbs another Ray, and does not become the machine's recorded one.
    """
    folder = Path(tempfile.mkdtemp(prefix="rb"))
    gcs, dashboard, agent, client = free_ports(4)
    own = ClusterSpec(name="local", address=f"http://127.0.0.1:{dashboard}", package=Package(ship=False))
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += ["--node-ip-address=127.0.0.1", f"--port={gcs}", f"--temp-dir={folder}"]
    command += ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
    command += [f"--dashboard-agent-listen-port={agent}", f"--ray-client-server-port={client}"]
    command += ["--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]

    def answers(_process: LaunchedProcess) -> ClusterSpec | None:
        try:
            connect(own)
        except ClusterError:
            return None
        return own

    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            process = LaunchedProcess.start(
                command,
                log_path=folder / "ray-start.log",
                env={"RAY_TMPDIR": str(folder)},
                grace_s=GRACE_S,
                name="the local Ray",
            )
            stack.callback(process.stop)
            ready = process.wait_ready(answers, START_TIMEOUT_S)
        except TargetError as error:
            raise ClusterError(f"a local Ray could not be started: {error}") from error
        yield ready
