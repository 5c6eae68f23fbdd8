#!/usr/bin/env python3
"""Real serving engines on this machine's CPU: for the engine tests, for `make demo-real`, and by hand.

    real_engines.py demo               the main job on a real SGLang, and the records against its counters
    real_engines.py serve llamacpp     one engine in the foreground, for runs of your own
    real_engines.py prepare sglang     only make its environment

Runs in raybench's environment. Each engine has one of its own under .venv-engines, made at the first use:
their pins clash with ours and with each other's. All of them serve one tiny random model that is made
here, so nothing is downloaded but packages.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raybench.deploy.ports import free_ports
from raybench.deploy.process import LaunchedProcess, UrlAnswers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = ROOT / ".venv-engines"
MODEL = HOME / "model"
#: The same with more layers, for comparisons of artifacts.
DEEP_MODEL = MODEL / "deep"
RAYBENCH = Path(sys.executable).with_name("raybench")
START_LIMIT_S = 300.0
ANSWER_LIMIT_S = 10.0
#: Installed without bytecode: where the surroundings forbid to write it, each start would compile all of it.
WRITE_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}

Say = Callable[[str], object]


@dataclass(frozen=True)
class Recipe:
    """How one engine is started and asked. The counters are names in its /metrics.

    ready_path: a passive probe that is answered with 200 once the server's own warm-up is over.
    input_counters: their sum counts all prompt tokens, cached ones included.
    """

    title: str
    install: str
    script: str
    model: tuple[str, ...]
    port: int
    ready_path: str
    request_counter: str | None
    input_counters: tuple[str, ...]
    output_counter: str
    cached_counter: str


RECIPES = {
    "sglang": Recipe(
        title="SGLang",
        install="about 80 s, 1.3 GB",
        script="sglang_server.py",
        model=("--model-path", str(MODEL / "hf")),
        port=18010,
        ready_path="/ready",
        request_counter="sglang:num_requests_total",
        input_counters=("sglang:prompt_tokens_total",),
        output_counter="sglang:generation_tokens_total",
        cached_counter="sglang:cached_tokens_total",
    ),
    "llamacpp": Recipe(
        title="llama.cpp",
        install="about 10 s, 0.2 GB",
        script="llamacpp_server.py",
        model=(str(MODEL / "tiny.gguf"),),
        port=18020,
        ready_path="/health",
        request_counter=None,
        input_counters=("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
        output_counter="llamacpp:tokens_predicted_total",
        cached_counter="llamacpp:prompt_tokens_cached_total",
    ),
    "vllm": Recipe(
        title="vLLM",
        install="about 90 s, 2 GB",
        script="vllm_cpu.py",
        model=("--model", str(MODEL / "hf")),
        port=18000,
        ready_path="/health",
        request_counter="vllm:request_success_total",
        input_counters=("vllm:prompt_tokens_total",),
        output_counter="vllm:generation_tokens_total",
        cached_counter="vllm:prompt_tokens_cached_total",
    ),
}


@dataclass(frozen=True)
class Tally:
    """Sums over requests, as the server counted them or as the records say. None = it does not count that."""

    requests: float | None
    input_tokens: float
    output_tokens: float
    cached_tokens: float

    def since(self, before: Tally) -> Tally:
        requests = None
        if self.requests is not None and before.requests is not None:
            requests = self.requests - before.requests
        return Tally(
            requests,
            self.input_tokens - before.input_tokens,
            self.output_tokens - before.output_tokens,
            self.cached_tokens - before.cached_tokens,
        )


@dataclass(frozen=True)
class Server:
    """A running engine."""

    engine: str
    url: str
    log_path: Path

    def get(self, path: str) -> str:
        with build_opener(ProxyHandler({})).open(self.url + path, timeout=ANSWER_LIMIT_S) as answer:
            return str(answer.read(), "utf-8")

    def tally(self) -> Tally:
        """What it counted since its start, read here without raybench's own reader of metrics."""
        text = self.get("/metrics")
        recipe = RECIPES[self.engine]
        return Tally(
            None if recipe.request_counter is None else counter(text, recipe.request_counter),
            sum(counter(text, name) for name in recipe.input_counters),
            counter(text, recipe.output_counter),
            counter(text, recipe.cached_counter),
        )


def counter(metrics: str, name: str) -> float:
    """Sum over the series of one counter; a labelled series does not exist before its first use."""
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE))


def recorded(rows: pa.Table) -> Tally:
    """The same sums over request records; what failed counts with the tokens seen before it did."""

    def total(column: str) -> float:
        return float(pc.sum(rows[column]).as_py() or 0)

    output_tokens = total("output_tokens") + total("partial_output_tokens")
    return Tally(rows.num_rows, total("input_tokens"), output_tokens, total("cached_tokens"))


def prepare(engine: str, say: Say = print) -> Path:
    """The Python of the engine's environment; environment and model are made where they are missing.

    Either counts as made once it is complete, and is made anew when what it is made from has changed.
    """
    venv = HOME / engine
    python = venv / "bin/python"
    HOME.mkdir(exist_ok=True)
    with (HOME / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pins = sorted(HERE.glob("requirements-*.txt"))
        with _made_from([HERE / "install_engine.sh", *pins], venv) as missing:
            if missing:
                say(f"installing {RECIPES[engine].title} into {venv} ({RECIPES[engine].install}, once) ...")
                begin_s = time.monotonic()
                command = ["bash", str(HERE / "install_engine.sh"), engine, str(venv)]
                subprocess.run(command, check=True, env={**os.environ, "PYTHON": sys.executable})
                say(f"installed in {time.monotonic() - begin_s:.0f} s")
        maker = HERE / "make_tiny_model.py"
        with _made_from([maker], MODEL) as missing:
            if missing:
                for folder, layers in ((MODEL, 2), (DEEP_MODEL, 8)):
                    command = [str(python), str(maker), str(folder), "--layers", str(layers)]
                    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return python


@contextmanager
def _made_from(sources: Sequence[Path], folder: Path) -> Iterator[bool]:
    """Whether the block must make the folder; without an error, it is stamped as made from these sources."""
    stamp = folder / ".made-from"
    sha256 = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    missing = not stamp.exists() or stamp.read_text() != sha256
    if missing:
        shutil.rmtree(folder, ignore_errors=True)
    yield missing
    stamp.write_text(sha256)


@contextmanager
def serving(
    engine: str, log_path: Path, *, port: int | None = None, options: Sequence[str] = (), say: Say = print
) -> Iterator[Server]:
    """A ready server on 127.0.0.1, on a free port unless one is given; its whole process tree ends with the block.

    Raises TargetError, with the end of its log, when it does not come up.
    """
    python, recipe = prepare(engine, say), RECIPES[engine]
    port = port or free_ports(1)[0]
    argv = [str(python), str(HERE / recipe.script), *recipe.model, "--port", str(port), *options]
    if engine == "llamacpp":
        slots = log_path.with_suffix(".slots")
        slots.mkdir(parents=True, exist_ok=True)
        argv += ["--slot-save-path", f"{slots}/"]
    url = f"http://127.0.0.1:{port}"
    with LaunchedProcess.start(argv, log_path=log_path, name=recipe.title, env=WRITE_BYTECODE) as process:
        process.wait_ready(UrlAnswers(url + recipe.ready_path), START_LIMIT_S)
        yield Server(engine, url, log_path)


def is_free(port: int) -> bool:
    """Whether nothing listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def pointed_at(scenario: Path, server: Server, folder: Path) -> Path:
    """The scenario if it names this server's address, else a copy of it that does."""
    text = scenario.read_text()
    changed = text.replace(f"http://127.0.0.1:{RECIPES[server.engine].port}", server.url)
    if changed == text:
        return scenario
    copy = folder / scenario.name
    copy.write_text(changed)
    return copy


def difference(server: Tally, records: Tally) -> list[str]:
    """The names of the sums that differ."""
    return [
        name for name, counted in vars(server).items() if counted is not None and counted != getattr(records, name)
    ]


def reconciliation(title: str, server: Tally, records: Tally) -> str:
    """A table of both books, for people."""
    lines = [f"{'':16}{title:>14}{'records':>14}"]
    for name, counted in vars(server).items():
        told = "-" if counted is None else f"{counted:,.0f}"
        ours = getattr(records, name)
        verdict = "not counted" if counted is None else "equal" if counted == ours else "DIFFERENT"
        lines.append(f"{name.replace('_', ' '):16}{told:>14}{ours:>14,.0f}   {verdict}")
    return "\n".join(lines)


def demo(runs_dir: Path) -> int:
    """The main job on a real SGLang; raybench's exit code, or 1 when the two books differ."""
    log_path = HOME / "demo-sglang.log"
    log_path.unlink(missing_ok=True)
    prepare("sglang")
    print(f"starting SGLang on the CPU (15 to 40 s), log {log_path} ...", flush=True)
    known = RECIPES["sglang"].port
    with serving("sglang", log_path, port=known if is_free(known) else None) as server:
        scenario = pointed_at(ROOT / "scenarios" / "local_sglang.yaml", server, HOME)
        earlier = set(runs_dir.glob("*/manifest.json"))
        before = server.tally()
        job = subprocess.run([str(RAYBENCH), "submit", str(scenario), "--runs-dir", str(runs_dir)], check=False)
        counted = server.tally().since(before)
    made = set(runs_dir.glob("*/manifest.json")) - earlier
    if len(made) != 1:
        return job.returncode or 1
    records = recorded(pq.read_table(made.pop().with_name("requests.parquet")))
    print("\nwhole run, prewarm included, as counted by the server and as recorded:")
    print(reconciliation("SGLang", counted, records))
    return job.returncode or (1 if difference(counted, records) else 0)


def serve(engine: str, port: int | None, options: Sequence[str]) -> int:
    """One engine until Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    log_path = HOME / f"serve-{engine}.log"
    with serving(engine, log_path, port=port or RECIPES[engine].port, options=options) as server:
        print(f"{RECIPES[engine].title} at {server.url}, log {log_path}; Ctrl-C ends it", flush=True)
        stop.wait()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    demo_parser = commands.add_parser("demo", help="the main job on a real SGLang")
    demo_parser.add_argument("--runs-dir", type=Path, default=ROOT / "runs")
    serve_parser = commands.add_parser("serve", help="one engine; further options go to its server")
    serve_parser.add_argument("engine", choices=RECIPES)
    serve_parser.add_argument("--port", type=int)
    prepare_parser = commands.add_parser("prepare", help="make the environments of engines")
    prepare_parser.add_argument("engines", nargs="+", choices=RECIPES)
    options, rest = parser.parse_known_args()
    if rest and options.command != "serve":
        parser.error(f"unknown options: {' '.join(rest)}")
    if options.command == "demo":
        return demo(options.runs_dir.resolve())
    if options.command == "serve":
        return serve(options.engine, options.port, rest)
    for engine in options.engines:
        prepare(engine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
