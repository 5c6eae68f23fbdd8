"""raybench beside the tools that others use, on one machine, in one run: what a token costs, how wrong TTFT is.

    make bench-peers      (or: python benchmarks/peers.py [--full] [--rounds 3] [--only "aiperf,guidellm"])

Each peer gets a virtual environment of its own under `.venv-peers` (about 8 GB in all), made by the first run and
kept; one that cannot be installed or fails is named below the table. Order within a round: bare C, the common
loop, raybench, the peers; a fresh mock server each. CPU is user + system time: of a peer, of its whole tree of
processes, less that of the same command with one request of one token (its start-up); of raybench, of its workers
and of the desk that leases and keeps records. `raybench submit`, the whole command with its Ray, is a row of its
own for its stamps, without CPU. TTFT error: the percentile that the tool reports less the server's. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import ours
from peer_clients import PEERS, Asked, Peer, Reported
from peer_setup import NotInstalled, prepare
from peer_tokenizer import write_tokenizer
from server import HERE, Work, bare, common_loop, mock_server, raise_open_files, truth
from submitted import SUBMIT

from raybench.cluster.run import connected

WORKS = {
    "64": Work(64, 128, 32, 100, 10),  # a rehearsal: too short for true costs
    "1024": Work(1024, 2048, 128, 200, 20),
    "4096": Work(4096, 4096, 64, 200, 100),
}
LIMIT_S = 420
#: A tool may leave its threads idle, not spin: numerics have no part in this.
ENVIRON = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Row:
    """One run of one client. reached: most streams that the server saw at once."""

    cpu_s_per_million: float | None
    ttft_error_ms_p50: float | None
    ttft_error_ms_p99: float | None
    reached: int
    completed: int


Client = Callable[[Work], Row]


class Failed(Exception):
    """A peer did not do the work; the text says what is known."""


def judge(work: Work, cpu_s: float | None, told: Reported, true: dict[str, Any]) -> Row:
    """Against the server's truth; CPU by the tokens that the server really sent."""

    def error_ms(mine: float | None, name: str) -> float | None:
        return None if mine is None else mine - true["ttft"][name]

    return Row(
        None if cpu_s is None else cpu_s / true["tokens"] * 1e6,
        error_ms(told.ttft_ms_p50, "p50_ms"),
        error_ms(told.ttft_ms_p99, "p99_ms"),
        true["max_running"],
        true["done"],
    )


def run_bare(work: Work) -> Row:
    with mock_server(work) as port:
        told = bare(work, port)
        return judge(work, told["cpu_s"], Reported(told["done"], told["ttft_p50"], told["ttft_p99"]), truth(port))


def run_common(work: Work) -> Row:
    with mock_server(work) as port:
        told = common_loop(work, port)
        mine = Reported(told["completed"], told["ttft_ms_p50"], told["ttft_ms_p99"])
        return judge(work, told["cpu_s"], mine, truth(port))


def run_ours(work: Work) -> Row:
    with connected(), mock_server(work) as port:  # no Ray beside the others
        told = ours.raybench_client(work, port)
        mine = Reported(told["completed"], told["ttft_ms_p50"], told["ttft_ms_p99"])
        return judge(work, told["cpu_s"] + told["desk_cpu_s"], mine, truth(port))


def no_report(_folder: Path) -> Reported:
    return Reported(None, None, None)


class Runner:
    """Runs peers against fresh servers; their start-up is measured once a work's pacing."""

    def __init__(self, environments: Path, tokenizer: Path) -> None:
        self._environments = environments
        self._tokenizer = tokenizer
        self._startup_s: dict[str, float] = {}

    def run(self, peer: Peer, work: Work) -> Row:
        """Raises Failed or NotInstalled."""
        environment = Path(sys.prefix)
        if peer.environment is not None:
            environment = prepare(peer.environment, self._environments)
        if not peer.cpu_is_charged:
            _, told, true = self._once(peer, work, environment)
            return judge(work, None, told, true)
        if peer.name not in self._startup_s:
            small, silent = replace(work, streams=1, requests=1, tokens=1), replace(peer, read=no_report)
            self._startup_s[peer.name] = min(self._once(silent, small, environment)[0] for _ in range(2))
        cpu_s, told, true = self._once(peer, work, environment)
        return judge(work, cpu_s - self._startup_s[peer.name], told, true)

    def _once(self, peer: Peer, work: Work, environment: Path) -> tuple[float, Reported, dict[str, Any]]:
        """CPU seconds of the whole tree, what it reports, the server's truth."""
        with mock_server(work) as port, tempfile.TemporaryDirectory(prefix="peer-") as name:
            folder = Path(name)
            asked = Asked(work, f"http://127.0.0.1:{port}", environment, self._tokenizer, folder)
            result, log = folder / "tree.json", folder / "log"
            command = [sys.executable, str(HERE / "process_tree.py"), str(result), str(LIMIT_S)]
            environ = {key: value for key, value in os.environ.items() if key.lower() not in PROXIES}
            with log.open("w") as out:
                subprocess.run(
                    [*command, *peer.command(asked)],
                    env={**environ, **ENVIRON, **dict(peer.environ), "NO_PROXY": "127.0.0.1"},
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    check=True,
                    cwd=folder,
                )
            tree, true = json.loads(result.read_text()), truth(port)
            if tree["code"] != 0 or not true["tokens"]:
                why = f"ran into the limit of {LIMIT_S} s" if tree["code"] is None else f"exit {tree['code']}"
                raise Failed(f"{why}, {true['done']} streams done: {log.read_text()[-300:]!r}")
            try:
                told = peer.read(folder)
            except (LookupError, StopIteration, TypeError, ValueError, OSError) as error:
                raise Failed(f"its report cannot be read ({error!r}): {log.read_text()[-300:]!r}") from error
        return tree["cpu_s"], told, true


def measure(work: Work, rounds: int, clients: Mapping[str, Client]) -> dict[str, list[Row] | str]:
    """The rows of each client, or why it has none. A client that failed once is not tried again."""
    found: dict[str, list[Row] | str] = {name: [] for name in clients}
    for number in range(rounds):
        for name, client in clients.items():
            rows = found[name]
            if isinstance(rows, str):
                continue
            try:
                rows.append(client(work))
                print(f"{work.streams} streams, round {number + 1}, {name}: {rows[-1]}", flush=True)
            except (Failed, NotInstalled) as error:
                found[name] = f"{type(error).__name__}: {error}"
                print(f"{work.streams} streams, round {number + 1}, {name}: {found[name]}", flush=True)
    return found


def medians(rows: list[Row], floor: list[Row], own: list[Row]) -> dict[str, float | None]:
    """Over the rounds; ratios are taken within a round."""
    told: dict[str, float | None] = {}
    for name, base in (("bare", floor), ("raybench", own)):
        pairs = zip(rows, base, strict=True)
        told[f"cpu_x_{name}"] = middle(
            [ratio(mine.cpu_s_per_million, one.cpu_s_per_million) for mine, one in pairs]
        )
    for name in ("cpu_s_per_million", "ttft_error_ms_p50", "ttft_error_ms_p99", "reached", "completed"):
        told[name] = middle([getattr(row, name) for row in rows])
    return told


def ratio(mine: float | None, other: float | None) -> float | None:
    return None if mine is None or other is None else mine / other


def middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 2) if known else None


def written(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def table(work: Work, results: dict[str, dict[str, float | None] | str]) -> str:
    """Markdown, cheapest first; clients without a result below it."""
    lines = [
        f"| {work.streams:,} streams x {work.gap_ms:g} ms | CPU x bare C | x raybench | CPU s / M tokens"
        " | TTFT error P50 / P99, ms | reached | completed |",
        "|---|---|---|---|---|---|---|",
    ]
    good = {name: told for name, told in results.items() if not isinstance(told, str)}
    for name, told in sorted(good.items(), key=lambda item: item[1]["cpu_x_bare"] or 0):
        costs = [written(told[key], ".1f") for key in ("cpu_x_bare", "cpu_x_raybench", "cpu_s_per_million")]
        errors = " / ".join(written(told[f"ttft_error_ms_{p}"], "+,.0f") for p in ("p50", "p99"))
        streams = [written(told[key], ",.0f") for key in ("reached", "completed")]
        lines.append("| " + " | ".join([name, *costs, errors, *streams]) + " |")
    bad = [f"- {name}: {why}" for name, why in results.items() if isinstance(why, str)]
    return "\n".join([*lines, *([""] if bad else []), *bad])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", choices=[*WORKS], default="1024")
    parser.add_argument("--full", action="store_true", help="1,024 and 4,096 streams")
    parser.add_argument("--only", help="peers by name, with commas between; raybench and bare C always run")
    parser.add_argument("--environments", type=Path, default=HERE.parent / ".venv-peers")
    arguments = parser.parse_args()
    raise_open_files()
    chosen = [peer for peer in (SUBMIT, *PEERS) if not arguments.only or peer.name in arguments.only.split(",")]
    told: dict[str, Any] = {"rounds": arguments.rounds, "cores": os.cpu_count()}
    environments = arguments.environments.resolve()
    runner = Runner(environments, write_tokenizer(environments / "tokenizer"))
    for name in ("1024", "4096") if arguments.full else (arguments.streams,):
        clients: dict[str, Client] = {"bare C": run_bare, "common loop": run_common, "raybench": run_ours}
        clients |= {peer.name: partial(runner.run, peer) for peer in chosen}
        found = measure(WORKS[name], arguments.rounds, clients)
        floor, own = found["bare C"], found["raybench"]
        assert not isinstance(floor, str) and not isinstance(own, str)
        results = {n: rows if isinstance(rows, str) else medians(rows, floor, own) for n, rows in found.items()}
        told[name] = results
        print("\n" + table(WORKS[name], results) + "\n", flush=True)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
