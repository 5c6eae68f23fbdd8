"""The parts of the benchmarks that decide what is counted, run as the commands that they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BURN = "import time; [None for _ in iter(time.process_time, -1) if time.process_time() > 0.3 and exit()]"
#: A process that leaves its parent, and writes down who it is.
DETACHED = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]], {}).pid)"


def tree(folder: Path, limit_s: str, *command: str) -> tuple[dict[str, float | None], str]:
    """What `process_tree.py` counted, and what the command printed."""
    result = folder / "result.json"
    script = str(BENCHMARKS / "process_tree.py")
    told = subprocess.run(
        [sys.executable, script, str(result), limit_s, *command], check=True, capture_output=True, text=True
    )
    return json.loads(result.read_text()), told.stdout


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_cpu_of_a_process_that_outlives_the_command_is_counted(tmp_path: Path) -> None:
    start = DETACHED.format("start_new_session=True")
    counted, _ = tree(tmp_path, "60", sys.executable, "-c", start, BURN)
    assert counted["code"] == 0
    assert counted["cpu_s"] is not None
    assert counted["cpu_s"] >= 0.3


def test_what_still_runs_after_the_command_is_ended(tmp_path: Path) -> None:
    start = DETACHED.format("start_new_session=True, stdout=subprocess.DEVNULL")
    counted, printed = tree(tmp_path, "60", sys.executable, "-c", start, "import time; time.sleep(600)")
    assert counted["code"] == 0
    assert not lives(int(printed))


def test_a_command_that_reaches_its_limit_has_no_exit_code(tmp_path: Path) -> None:
    counted, _ = tree(tmp_path, "0.2", sys.executable, "-c", "import time; time.sleep(600)")
    assert counted["code"] is None


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    """The last lines of the two measurements, with round numbers."""
    bench = {
        "cpu_s_per_million_10000": 17.5,
        "bytes_per_token_1024": 234,
        "worker_rss_mb_10000": 200 + 3976 * 0.05,
        "worker_rss_mb_1024": 200,
    }
    desk = {
        "idle_cpu_ms_per_s": 0,
        "call_cpu_us": 100,
        "record_mb_cpu_ms": 0,
        "judge_mb_per_million_records": 5000,
        "record_bytes_1_token": 400,
        "record_bytes_128_tokens": 400 + 127 * 12,
    }
    paths = []
    for name, told in (("bench.log", bench), ("coordinator.log", desk)):
        (tmp_path / name).write_text(f"round 1: anything\n{json.dumps(told)}\n")
        paths.append(str(tmp_path / name))
    return paths


def test_a_fleet_is_the_arithmetic_of_what_was_measured(logs: list[str]) -> None:
    command = [sys.executable, str(BENCHMARKS / "fleet.py"), *logs, "--tokens-per-s", "20", "--targets", "2"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = {
        line.split("|")[1].strip(): line.split("|")[-2].strip() for line in printed.splitlines() if "|" in line
    }
    assert rows["streams a worker"] == "2,000"  # 0.7 / (20 x 17.5 us)
    assert rows["workers"] == "500"
    assert rows["client nodes by cores"] == "8"
    assert rows["client nodes by ports"] == "19"  # 10^6 / (2 x 27,720)
    assert rows["network into the clients"].startswith("48.0 Gbit/s")  # 2 x 10^7 x 300 bytes
    assert rows["signs of life, health, records"] == "3,000 calls/s, 0.30 cores"
    assert rows["leases"] == "39 calls/s, 0.00 cores"  # 10^6 x 20 / 512 requests/s, two calls a worker's 2,000
    assert rows["orders of a point"] == "16.0 GB"
    # A slot costs its 2,000th of 6 calls a second and of two leases a request of 512 / 20 s, 100 us each.
    assert f"full at {1 / ((6 + 2 * 20 / 512) / 2000 * 1e-4):,.0f} streams" in printed
