"""`make chaos`: a matrix on a three-host Ray that is struck again and again, resumed until it ends.

Needs root, iproute2 and tc (network namespaces, a memory disk). Last line: one JSON object. The exit code is
0 only when every planned point was accepted, none wrongly, no record was lost or doubled, and nothing is left.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import network
import own_ray
import ray_product as product
from chaos_verdict import Fault, accepted, lost_or_doubled, wrongly_accepted
from faults import DECK, END_LIMIT_S, Striker, shuffled
from hosts import Hosts, hosts, wait_gone

from raybench.analysis.merge import merge
from raybench.errors import EXIT_CLUSTER, EXIT_NOT_ALL_VALID, EXIT_OK, EXIT_TARGET, EXIT_USAGE
from raybench.records.rundir import RunDirectory
from raybench.report.source import read_source
from raybench.report.write import write_report

FAULTS_MIN = 50
#: A run that has not ended after so many resumes without a fault does not end at all.
CALM_RESUMES_MAX = 4
GONE_LIMIT_S = 30.0
LEVELS = [2, 3, 4, 5, 6, 8]


def scenario() -> dict[str, object]:
    """Points of a few seconds; a void one does not end the run."""
    return product.scenario(
        "chaos",
        sim={"time_compression": 8},
        workloads=[
            {"name": name, "output_tokens": 256, "concurrency": LEVELS, "requests": 32, "prewarm_requests": 2}
            for name in ("first", "second")
        ],
        guards={"on_void": "next", "alive_timeout_s": 1, "idle_timeout_s": 20, "counters_settle_s": 2},
        monitors={"gpu": {"interval_s": 0.1}},
        corpus={"synthetic": {"tokens": "512k"}},
    )


class Matrix:
    """One run, carried on through any number of deaths."""

    def __init__(self, made: Hosts, folder: Path, chance: random.Random, say: Callable[[str], None]) -> None:
        self._hosts = made
        self._folder = folder
        self._chance = chance
        self._say = say
        self._invocations = 0
        self._lines_before = 0
        self._parts: dict[str, dict[str, str]] = {}
        self._rows: dict[str, dict[str, object]] = {}
        self.changed: list[str] = []
        self.run: RunDirectory | None = None

    def carry_on(self, striker: Striker, deck: list[str], until_s: float) -> bool:
        """One command, struck while it lives; True when it ended the matrix."""
        self._invocations += 1
        self._lines_before = 0 if self.run is None else len(product.events(self.run))
        striker.mend()
        with product.start(*self._command(), folder=self._folder, **self._how) as running:
            while running.process.poll() is None:
                if deck and time.monotonic() < until_s and self._fleet_is_up():
                    self._strike_one(striker, deck, running)
                elif not deck or time.monotonic() >= until_s:
                    running.end(END_LIMIT_S)
                time.sleep(0.05)
            ended = running.end()
        self.run = product.only_run(self._hosts.runs_dir) or self.run
        self._look_at(ended)
        return ended.exit_code == EXIT_OK

    def _strike_one(self, striker: Striker, deck: list[str], running: product.Running) -> None:
        time.sleep(self._chance.choice([self._chance.uniform(0, 1), self._chance.uniform(1, 4)]))
        if running.process.poll() is None and self._fleet_is_up():
            kind = deck.pop()
            done = striker.strike(kind, running)
            self._say(f"{kind} {striker.victim}" if done else f"({kind}: nobody there)")
            if not done:
                deck.insert(0, kind)

    def _command(self) -> list[object]:
        """The cluster's driver by hand, or a job: a resumed run may go either way."""
        run = self.run
        target: list[object] = [self._folder / "chaos.yaml"] if run is None else ["--resume", run.path]
        if self._by_job:
            return ["submit", "--cluster", self._folder / "cluster.yaml", *target]
        return ["run", *target, "--runs-dir", self._hosts.runs_dir]

    @property
    def _by_job(self) -> bool:
        return self._invocations % 3 == 0

    @property
    def _how(self) -> dict[str, object]:
        cluster = self._hosts.cluster
        env = {"TEST_RAY_TOKEN": cluster.token} if self._by_job else cluster.inside
        return {"env": env, "prefix": self._hosts.net.inside("head")}

    def _fleet_is_up(self) -> bool:
        """From the first attempt of this command on, in its attempts and in the pauses between them."""
        run = product.only_run(self._hosts.runs_dir)
        if run is None:
            return False
        own = product.events(run)[self._lines_before :]
        return any(line["event"] == "attempt_started" for line in own)

    def _look_at(self, ended: product.Ended) -> None:
        """The run directory is readable, and what was accepted stays as it is."""
        lines = ended.output.strip().splitlines()
        said = next((line for line in reversed(lines) if line.startswith("raybench:")), (lines or [""])[-1])
        self._say(f"exit {ended.exit_code}: {said[:300]}")
        known = (EXIT_OK, EXIT_NOT_ALL_VALID, EXIT_CLUSTER, EXIT_TARGET, EXIT_USAGE, -9)
        if ended.exit_code not in known or "Traceback" in ended.output:
            self._say(f"UNEXPLAINED END:\n{ended.output[-6000:]}")
            self.changed.append("a command ended without an explanation")
        if self.run is None or not self.run.journal.is_file():
            return
        merge(self.run)
        write_report(read_source(self.run), self.run.path)
        rows = product.points(self.run)
        for one in accepted(product.events(self.run)):
            parts = {path.name: _digest(path) for path in self.run.parts_of(one.point_id, one.attempt)}
            for kept, now in ((self._parts, parts), (self._rows, rows[one.point_id])):
                if kept.setdefault(one.point_id, now) != now:  # type: ignore[attr-defined]
                    self.changed.append(f"{one.point_id}: accepted, and changed afterwards")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Tally:
    """What all matrices of a chaos run came to."""

    def __init__(self) -> None:
        self.planned = 0
        self.accepted = 0
        self.problems: list[str] = []
        self.wrong = 0
        self.lost = 0

    def add(self, matrix: Matrix, faults: list[Fault]) -> None:
        run = matrix.run
        assert run is not None
        commits = accepted(product.events(run))
        rows = product.points(run)
        self.planned += len(rows)
        self.accepted += sum(row["verdict"] == "accepted" for row in rows.values())
        wrong = wrongly_accepted(commits, faults)
        self.wrong += len(wrong)
        self.problems += [f"wrongly accepted: {one} met {fault}" for one, fault in wrong]
        twice = [point for point, count in Counter(one.point_id for one in commits).items() if count > 1]
        self.problems += [f"accepted twice: {point}" for point in twice]
        self.lost += len(twice) + len(matrix.changed)
        self.problems += matrix.changed
        for one in commits:
            rids = product.requests(run, point_id=one.point_id, attempt=one.attempt, phase="load")
            lost = lost_or_doubled(rids["ticket"].to_pylist(), int(rows[one.point_id]["requests_planned"]))
            self.lost += lost
            self.problems += [f"{one.point_id} attempt {one.attempt}: {lost} records lost or doubled"] * bool(lost)


def main() -> int:
    options = _options()
    for number in (signal.SIGINT, signal.SIGTERM):  # also in the background, where a shell has SIGINT ignored
        signal.signal(number, lambda *_: sys.exit(EXIT_NOT_ALL_VALID))
    chance = random.Random(options.seed)
    tally, began = Tally(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="rbc", dir="/tmp"))

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    with ExitStack() as stack:
        if not options.keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            made = stack.enter_context(hosts(folder))
        except network.Unavailable as why:
            print(f"make chaos needs root, iproute2 and network namespaces: {why}", file=sys.stderr)
            return EXIT_USAGE
        prepare(folder, made)
        striker = Striker(made, chance)
        deck = shuffled(chance, DECK)
        until_s = began + options.limit_s
        while deck and time.monotonic() < until_s:
            matrix = Matrix(made, folder, chance, say)
            to_its_end(matrix, striker, deck, until_s)
            tally.add(matrix, striker.faults)
            assert matrix.run is not None
            shutil.move(matrix.run.path, folder / f"done-{matrix.run.path.name}")
        left = wait_gone(made.ours, GONE_LIMIT_S)
        for process in left:
            say(f"left over: {process}")
        made_everything = made.everything
        for host in ("client", "target"):
            made.leave(host)
        made.cluster.process.stop()
        left += wait_gone(made_everything, GONE_LIMIT_S)
    return conclude(tally, striker.faults, {process.pid for process in left}, say)


def prepare(folder: Path, made: Hosts) -> None:
    product.write_scenario(folder, {**scenario(), **placement()})
    own_ray.cluster_file(folder, made.cluster, runs_dir=str(made.runs_dir))


def placement() -> dict[str, object]:
    return {
        "placement": {"client_resource": "bench_client", "target_resource": "gpu_host", "start_timeout_s": 20},
        "load": {"client_nodes": 2},
    }


def to_its_end(matrix: Matrix, striker: Striker, deck: list[str], until_s: float) -> None:
    calm = 0
    while calm <= CALM_RESUMES_MAX:
        before = len(striker.faults)
        if matrix.carry_on(striker, deck, until_s):
            return
        calm = calm + 1 if len(striker.faults) == before else 0
    matrix.changed.append("the matrix does not end")


def conclude(tally: Tally, faults: list[Fault], left: set[int], say: Callable[[str], None]) -> int:
    for kind, count in sorted(Counter(fault.kind for fault in faults).items()):
        say(f"{count:3} x {kind}")
    for problem in tally.problems:
        say(problem)
    result = {
        "faults": len(faults),
        "points_planned": tally.planned,
        "points_accepted": tally.accepted,
        "wrong_accepted": tally.wrong,
        "records_lost": tally.lost,
        "leftover_processes": len(left),
    }
    print(json.dumps(result), flush=True)
    flawless = not (tally.wrong or tally.lost or left or tally.problems) and tally.accepted == tally.planned
    return EXIT_OK if flawless and len(faults) >= FAULTS_MIN else EXIT_NOT_ALL_VALID


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="order, moments and victims of the faults")
    parser.add_argument("--limit-s", type=float, default=540.0, help="no fault is begun after that")
    parser.add_argument("--keep", action="store_true", help="leave the run directories where they are")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
