"""`raybench` as its users start it: processes of their own, watched through what they write.

Used by the tests of this folder. Nothing here imports Ray: whatever a test learns, it learns from exit
codes, output, run directories and the process table.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import OpenerDirector, ProxyHandler, build_opener

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from raybench.deploy.process import LaunchedProcess, ReadyLine
from raybench.records.journal import read_journal
from raybench.records.rundir import RunDirectory
from raybench.records.stream import read_part

T = TypeVar("T")
Event = dict[str, Any]

#: The longest that any one thing may take here, a whole command on a machine with much else to do included; only a
#: failing test takes that long.
LIMIT_S = 300.0
POLL_S = 0.05
#: In the environment of a command and of everything that it starts, however far removed.
MARK = "RAYBENCH_TEST_MARK"

STEPS = ["alive", "idle", "prewarm", "idle", "flush", "counters_before", "load", "counters_after"]


def scenario(
    name: str,
    *,
    sim: Mapping[str, object] | None = None,
    url: str | None = None,
    workloads: Sequence[Mapping[str, object]] = (),
    **sections: Mapping[str, object],
) -> dict[str, Any]:
    """The content of a scenario file: one arm `small` (a simulated engine, or a URL), one or more workloads."""
    arm = {"url": url} if url else {"sim": {"time_compression": 20, **(sim or {})}}
    return {
        "name": name,
        "arms": {"small": arm},
        "workloads": [{"name": "tiny", "input_tokens": 64, "output_tokens": 16, **one} for one in workloads]
        or [{"name": "tiny", "input_tokens": 64, "output_tokens": 16, "concurrency": [2], "requests": 6}],
        "corpus": {"synthetic": {"tokens": "32k"}},
        "guards": {
            "idle_stable_s": 0.1,
            "prewarm_requests": 1,
            "start_lead_s": 0.1,
            **sections.pop("guards", {}),
        },
        "monitors": {"gpu": {"interval_s": 0.1}, "server": {"interval_s": 0.2}, **sections.pop("monitors", {})},
        **sections,
    }


#: One that goes on for some seconds, so that a test can break in: four at once, 24 requests.
SLOW = {"name": "slow", "input_tokens": 64, "output_tokens": 256, "concurrency": [4], "requests": 24}
SLOW_SIM = {"time_compression": 3}


def write_scenario(folder: Path, content: Mapping[str, object]) -> Path:
    path = folder / f"{content['name']}.yaml"
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
    return path


@contextmanager
def engine(folder: Path, time_compression: float) -> Iterator[str]:
    """A simulated engine that is nobody's: its URL."""
    command = [sys.executable, "-m", "raybench.sim", "--time-compression", str(time_compression)]
    with LaunchedProcess.start(command, log_path=folder / "engine.log", grace_s=1) as process:
        yield str(process.wait_ready(ReadyLine(), LIMIT_S)["url"])


def arrivals(url: str) -> list[Any]:
    """Every request that the engine has seen, by its own account."""
    with opener().open(f"{url}/sim/state", timeout=30) as answer:
        seen: list[Any] = json.load(answer)["arrivals"]
    return seen


def opener() -> OpenerDirector:
    """No proxy of the surroundings is meant for an engine on loopback."""
    return build_opener(ProxyHandler({}))


def streams_of(url: str) -> int:
    """How many requests the engine has in hand, running or queued, by its own metrics."""
    with opener().open(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    names = ("sglang:num_running_reqs", "sglang:num_queue_reqs")
    return round(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(names)))


@dataclass(frozen=True)
class Ended:
    """A command that has ended: what its user sees."""

    exit_code: int
    output: str


class Running:
    """A command under way. `mark` finds everything that it started."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, mark: str) -> None:
        self.process = process
        self.mark = mark
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text()

    def end(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for the end."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"raybench still runs after {limit_s:g} s:\n{self.output}") from None
        return Ended(code, self.output)

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT to the whole process group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def left_over(self) -> list[str]:
        """What still runs of all that the command started."""
        return [_title(one) for one in marked(self.mark)]


@contextmanager
def start(
    *arguments: object, folder: Path, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> Iterator[Running]:
    """Start `raybench ARGUMENTS` in `folder`, which is also its home; nothing of it outlives the block.

    prefix: a command in front, as `ip netns exec head`.
    """
    mark = secrets.token_hex(8)
    log = folder / f"raybench-{mark}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "raybench", *map(str, arguments)],
            cwd=folder,
            env={**environment(folder), **(env or {}), MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Running(process, log, mark)
    finally:
        for one in marked(mark):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def run(
    *arguments: object, folder: Path, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> Ended:
    """`raybench ARGUMENTS` to its end."""
    with start(*arguments, folder=folder, env=env, prefix=prefix) as running:
        return running.end()


def environment(home: Path) -> dict[str, str]:
    """Ours, with the `python` and `raybench` under test first and an empty home folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(home), "COLUMNS": "200"}


def marked(mark: str) -> list[psutil.Process]:
    """Living processes with this mark in their environment."""
    return [one for one in psutil.process_iter() if _environment_of(one).get(MARK) == mark]


def _environment_of(process: psutil.Process) -> dict[str, str]:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return process.environ()
    return {}


def _title(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    return f"{process.pid} (ended)"


def is_gone(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def until(look: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
    """The first thing other than None and False that `look` gives."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(POLL_S)
    raise AssertionError(f"not within {limit_s:g} s: {what}")


def only_run(runs_dir: Path) -> RunDirectory | None:
    """The one run directory in `runs_dir`; None before there is one."""
    found = [RunDirectory(path.parent) for path in runs_dir.glob("*/manifest.json")]
    assert len(found) <= 1, f"one run expected in {runs_dir}: {found}"
    return found[0] if found else None


def wait_for_run(runs_dir: Path, running: Running) -> RunDirectory:
    return while_running(running, lambda: only_run(runs_dir), f"a run directory in {runs_dir}")


def while_running(running: Running, look: Callable[[], T | None], what: str) -> T:
    """Like `until`, and at once an error when the command ends before."""

    def look_or_fail() -> T | None:
        found = look()
        if found is None and running.process.poll() is not None:
            raise AssertionError(f"raybench ended before there was {what}:\n{running.output}")
        return found

    return until(look_or_fail, what)


def events(run_directory: RunDirectory, event: str | None = None) -> list[Event]:
    """The journal so far, or its lines of one kind."""
    if not run_directory.journal.exists():
        return []
    return [line for line in read_journal(run_directory.journal) if event in (None, line["event"])]


def wait_for_event(run_directory: RunDirectory, running: Running, event: str, **fields: object) -> Event:
    """The first journal line of that kind with these values."""

    def look() -> Event | None:
        lines = events(run_directory, event)
        return next((line for line in lines if fields.items() <= line.items()), None)

    return while_running(running, look, f"{event} {fields} in {run_directory.journal}")


def wait_for_load(run_directory: RunDirectory, running: Running, point_id: str, attempt: int = 1) -> Event:
    """Until the point's load is under way and has left records; the `fleet_ready` of this invocation."""

    def look() -> bool | None:
        folder = run_directory.attempt(point_id, attempt)
        parts = [part for part in folder.glob("*.arrows") if part.name.count(".") == 1]
        return any(rows_of_part(part) for part in parts) or None

    while_running(running, look, f"records of {point_id}")
    return events(run_directory, "fleet_ready")[-1]


def rows_of_part(path: Path) -> int:
    if not path.stat().st_size:
        return 0
    return read_part(path).table.num_rows


def steps(run_directory: RunDirectory, point_id: str, attempt: int) -> list[str]:
    lines = events(run_directory, "step")
    return [line["step"] for line in lines if (line["point_id"], line["attempt"]) == (point_id, attempt)]


def points(run_directory: RunDirectory) -> dict[str, dict[str, Any]]:
    """The rows of points.parquet by id."""
    return {row["point_id"]: row for row in pq.read_table(run_directory.points_parquet).to_pylist()}


def requests(run_directory: RunDirectory, **fields: object) -> pa.Table:
    """The rows of requests.parquet with these values."""
    table = pq.read_table(run_directory.requests_parquet)
    for name, value in fields.items():
        table = table.filter(pa.compute.equal(table[name], value))
    return table
