"""`raybench probe` against a server that reserves its context at the start and says what is missing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from raybench.deploy.ports import free_ports

LIMIT_S = 300.0

#: Reserves 1 MiB for 100 tokens of context and has 1,000; then answers everything with 200.
SERVER = """
import http.server, sys, time
context, port = int(sys.argv[1]), int(sys.argv[2])
need = context // 100
print("loading", flush=True)
if context == 66:
    raise SystemExit("no such model")
if context == 77:
    time.sleep(60)
if need > 1000:
    raise SystemExit(f"cannot reserve {need:,} MiB: 1,000 MiB are free")
print(f"planned slack {1000 - need:,}.5 MiB", flush=True)
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Ok).serve_forever()
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    [port] = free_ports(1)
    (tmp_path / "server.py").write_text(SERVER)
    launch = {
        "argv": [sys.executable, "-I", "-S", str(tmp_path / "server.py"), "{max_context}", str(port)],
        "parameters": {"max_context": 65536},
        "ready": {"timeout_s": 20},
        "stop": {"grace_s": 2},
        "memory": {
            "shortfall": r"reserve (?P<need_mib>[0-9,]+) MiB: (?P<have_mib>[0-9,]+) MiB",
            "slack": r"planned slack (?P<mib>\S+) MiB",
        },
    }
    content = {
        "name": "probed",
        "arms": {"mine": {"url": f"http://127.0.0.1:{port}", "launch": launch}},
        "workloads": [{"name": "w", "input_tokens": 8, "output_tokens": 1, "concurrency": [1]}],
        "corpus": {"synthetic": {"tokens": "32k"}},
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def command(scenario: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "raybench", "probe", str(scenario), "--arm", "mine", *options],
        cwd=scenario.parent,
        env={**os.environ, "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def servers(scenario: Path) -> list[psutil.Process]:
    program = str(scenario.parent / "server.py")
    return [one for one in psutil.process_iter(["cmdline"]) if program in (one.info["cmdline"] or [])]


def test_a_grid_ends_at_the_first_value_that_starts_with_what_was_short_and_spare(scenario: Path) -> None:
    ended = command(scenario, "--grid", "128k,110000,96k,64k")
    output, _ = ended.communicate(timeout=LIMIT_S)
    assert ended.returncode == 0, output
    rows = [" ".join(line.split()) for line in output.splitlines()]
    assert "131,072 — — 310.0 MiB short" in rows
    assert "110,000 — — 100.0 MiB short" in rows
    assert any(row.startswith("98,304 ") and row.endswith("starts, slack 17.5 MiB") for row in rows), output
    assert not any(row.startswith("65,536") for row in rows)
    assert "mine: largest max_context that starts: 98,304" in rows
    [folder] = (scenario.parent / "runs").iterdir()
    trials = json.loads((folder / "probe.json").read_text())["trials"]
    assert [(trial["value"], trial["started"]) for trial in trials] == [
        *((131072, False), (110000, False), (98304, True))
    ]
    assert "planned slack" in (folder / "98304" / "launch.log").read_text()
    assert servers(scenario) == []


def test_where_nothing_starts_the_exit_code_says_so(scenario: Path) -> None:
    ended = command(scenario, "--minimum", "110000", "--maximum", "128k", "--step", "1k")
    output, _ = ended.communicate(timeout=LIMIT_S)
    assert ended.returncode == 4, output
    assert "mine: no value starts" in output


def test_a_failure_that_is_not_about_memory_ends_the_probe_at_once(scenario: Path) -> None:
    ended = command(scenario, "--grid", "66,50")
    output, _ = ended.communicate(timeout=LIMIT_S)
    assert ended.returncode == 4, output
    assert "max_context 66 did not start, and nothing in its log speaks of memory" in output
    assert "no such model" in output


def test_ctrl_c_ends_what_was_launched_and_shows_what_is_known(scenario: Path) -> None:
    running = command(scenario, "--grid", "128k,77")
    end = time.monotonic() + LIMIT_S
    while not any("77" in server.info["cmdline"] for server in servers(scenario)):
        assert time.monotonic() < end and running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 1, output
    assert "interrupted: what was launched has been ended" in output
    assert "310.0 MiB short" in output
    assert "mine: not finished" in output
    assert servers(scenario) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "1k", "--step", "1"], "either --grid, or all of --minimum, --maximum and --step"),
        (["--grid", "1k,x"], "--grid: not a whole number; got: x"),
        (
            ["--parameter", "other", "--grid", "1k"],
            "--parameter: no such parameter; got: other; allowed: max_context",
        ),
    ],
)
def test_options_that_make_no_sense_are_explained(scenario: Path, options: list[str], message: str) -> None:
    ended = command(scenario, *options)
    output, _ = ended.communicate(timeout=LIMIT_S)
    assert ended.returncode == 2
    assert message in " ".join(output.split())
