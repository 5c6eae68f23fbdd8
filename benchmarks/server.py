"""The load that is measured, the mock server that answers it, and the two clients beside raybench.

Used by `bench.py`, `peers.py` and `coordinator.py`; no Ray here. The server keeps the truth: how many streams
were open, when each token left it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent
INPUT_TOKENS = 128


@dataclass(frozen=True)
class Work:
    """One load: `streams` at once, `requests` in all, each of `tokens`; pacing in ms; raybench workers.

    ttft_ms and gap_ms both 0: the server sends as fast as it can. api: `completions` (OpenAI), or `generate`
    (SGLang's own route, whose events repeat all text and ids so far).
    """

    streams: int
    requests: int
    tokens: int
    ttft_ms: float
    gap_ms: float
    workers: int = 1
    api: Literal["completions", "generate"] = "completions"

    @property
    def total_tokens(self) -> int:
        return self.requests * self.tokens


@contextmanager
def mock_server(work: Work) -> Iterator[int]:
    """A fresh server with the work's pacing; its port."""
    port = 21000 + os.getpid() % 2000
    command = [HERE / "mockserver" / "mockserver", "--port", str(port), "--quiet"]
    command += ["--ttft", str(work.ttft_ms), "--itl", str(work.gap_ms)]
    with subprocess.Popen([str(word) for word in command]) as server:
        try:
            for _ in range(100):
                try:
                    truth(port)
                    break
                except OSError:
                    time.sleep(0.05)
            yield port
        finally:
            server.terminate()


def truth(port: int) -> dict[str, Any]:
    """What the server knows: `done`, `tokens`, `bytes`, `max_running`, and percentiles in ms as sent."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/mock/truth", timeout=10) as reply:
        return dict(json.loads(reply.read()))


def bare(work: Work, port: int) -> dict[str, float]:
    """The C client: CPU seconds per million tokens, and its own view of the latencies."""
    command = [str(HERE / "bareclient" / "bareclient"), "--port", str(port), "--words", str(INPUT_TOKENS)]
    command += ["--conns", str(work.streams), "--requests", str(work.requests), "--tokens", str(work.tokens)]
    command += ["--api", work.api]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    cpu_s = told["user"] + told["sys"]
    return {"cpu_s": cpu_s, "cpu_s_per_million": cpu_s / work.total_tokens * 1e6, **told}


def common_loop(work: Work, port: int) -> dict[str, float]:
    """`lines.py`: what most tools do, a task that reads lines and parses each."""
    command = [sys.executable, str(HERE / "lines.py"), str(port), str(work.streams), str(work.requests)]
    command += [str(work.tokens), str(INPUT_TOKENS)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"cpu_s_per_million": told["cpu_s"] / work.total_tokens * 1e6, **told}


def raise_open_files() -> None:
    """As many file handles as the system allows: each stream is one, here and in processes started from here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
