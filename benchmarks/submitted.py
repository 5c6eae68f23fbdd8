"""`raybench submit`, the whole command with its Ray, job, merge and report, as `peers.py` runs a peer."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from peer_clients import Asked, Peer, Reported
from server import HERE, INPUT_TOKENS


def submit(asked: Asked) -> list[str]:
    """A scenario of one point on the mock server, whose metrics and routes are those of SGLang."""
    work = asked.work
    workload = {
        "name": "w",
        "input_tokens": INPUT_TOKENS,
        "output_tokens": work.tokens,
        "concurrency": [work.streams],
        "requests": work.requests,
        "prewarm_requests": 0,
    }
    scenario = {
        "name": "peers",
        "arms": {"mock": {"url": asked.url, "route": "completions", "model": "mock"}},
        "workloads": [workload],
        "corpus": {"synthetic": {"tokens": "1m"}},
        "guards": {"idle_stable_s": 0.1},
        "monitors": {"gpu": {"source": "none"}},
    }
    path = asked.folder / "scenario.yaml"
    path.write_text(json.dumps(scenario))  # JSON is YAML
    return [
        asked.program("python"),
        "-m",
        "raybench",
        "submit",
        str(path),
        "--runs-dir",
        str(asked.folder / "runs"),
    ]


def read_submitted(folder: Path) -> Reported:
    point = pq.read_table(next(folder.rglob("points.parquet"))).to_pylist()[0]
    return Reported(point["requests_ok"], point["ttft_ms_p50"], point["ttft_ms_p99"])


SUBMIT = Peer(
    "raybench submit", None, submit, read_submitted, (("PYTHONPATH", str(HERE.parent)),), cpu_is_charged=False
)
