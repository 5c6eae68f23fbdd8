"""The simulated ninfer-like engine as a process: its routes, its timings, its log, its refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from raybench.deploy.process import LaunchedProcess
from raybench.engines.request_log import read_request_log

ARTIFACT = Path(__file__).parents[2] / "scenarios" / "artifacts" / "coder-v3.sim-artifact.json"
COMMAND = [sys.executable, "-m", "raybench.sim.ninfer", str(ARTIFACT), "--speed", "2000"]
LIMIT_S = 300.0


@contextmanager
def running(tmp_path: Path, *options: str) -> Iterator[str]:
    """The address of a server that ends with the block."""
    log = tmp_path / "launch.log"

    def ready(process: LaunchedProcess) -> str | None:
        lines = log.read_text().splitlines() if log.exists() else []
        found = [line.removeprefix("listening on ") for line in lines if line.startswith("listening on ")]
        return found[0] if found else None

    with LaunchedProcess.start([*COMMAND, *options], log_path=log, name="ninfer") as process:
        yield process.wait_ready(ready, LIMIT_S)


def call(url: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with build_opener(ProxyHandler({})).open(Request(url, data), timeout=LIMIT_S) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def ask(url: str, text: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 64, **fields}
    return call(f"{url}/v1/chat/completions", body)


def test_an_answer_has_timings_that_its_log_line_repeats(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with running(tmp_path, "--no-prefix-reuse", "--request-log-jsonl", str(log)) as url:
        answers = [ask(url, "größer " * 200)[1] for _ in range(2)]
        logged = list(read_request_log(log.read_bytes().splitlines()))
    assert [one.request_id for one in logged] == ["1", "2"]
    for answer, line in zip(answers, logged, strict=True):
        usage, timings = answer["usage"], answer["timings"]
        assert answer["id"].endswith(line.request_id)
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (line.input_tokens, line.output_tokens)
        assert timings["prompt_n"] == usage["prompt_tokens"]
        assert timings["cache_n"] == line.cached_tokens == 0
        assert line.prefill_s == timings["prompt_ms"] / 1000
        assert line.decode_s == timings["predicted_ms"] / 1000
        assert (timings["draft_n"], timings["draft_n_accepted"]) == (line.draft_tokens, line.accepted_tokens)


def test_with_prefix_reuse_the_same_prompt_is_found_again(tmp_path: Path) -> None:
    with running(tmp_path) as url:
        ask(url, "again " * 100)
        usage = ask(url, "again " * 100)[1]["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_what_it_does_not_have_or_cannot_hold_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, "--max-context", "128") as url:
        assert call(f"{url}/health") == (200, {"status": "ok"})
        assert call(f"{url}/v1/models")[1]["data"][0]["max_model_len"] == 128
        status, told = ask(url, "x" * 1000)
        assert (status, told["error"]["code"]) == (400, "context_length_exceeded")
        assert ask(url, "x", stream=True)[0] == 400
        assert call(f"{url}/v1/chat/completions", {"messages": 3})[0] == 400
        for wrong in ({"max_tokens": "many"}, {"max_tokens": -1}, {"tools": [{}]}):
            assert ask(url, "x", **wrong)[0] == 400
        assert call(f"{url}/sim/gpus")[0] == 200


def test_a_context_that_does_not_fit_ends_it_with_the_shortfall_in_its_log(tmp_path: Path) -> None:
    options = ["--spec", "dflash2", "--draft-tokens", "7", "--max-context", "196608"]
    ended = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == 1
    assert "context reservation failed: short of 893.0 MiB per device" in ended.stdout
