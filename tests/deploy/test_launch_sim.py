"""The simulated engine's launch, against a stand-in that prints what the engine prints."""

import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from raybench.deploy.own_servers import launch_sim
from raybench.errors import TargetError
from raybench.scenario.sim_block import Sim


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A program in the place of raybench.sim: notes its pid, prints `line`, and stays."""
    program = tmp_path / "sim.py"
    program.write_text(
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "print(sys.argv[2].replace('PID', str(os.getpid())), flush=True)\n"
        "time.sleep(60)\n"
    )

    def command(sim: Sim, host: str, log_path: Path, preload: object) -> list[str]:
        line = (tmp_path / "line").read_text()
        return [sys.executable, "-I", "-S", str(program), str(tmp_path / "pid"), line]

    monkeypatch.setattr("raybench.deploy.own_servers.sim_command", command)
    return tmp_path


def test_a_launched_engine_has_its_url_and_ends_on_stop(stand_in: Path) -> None:
    (stand_in / "line").write_text('{"ready": true, "url": "http://127.0.0.1:4711", "pid": PID}')
    running = launch_sim(Sim(), "127.0.0.1", stand_in / "engine.log")
    assert running.url == "http://127.0.0.1:4711"
    pid = int((stand_in / "pid").read_text())
    assert psutil.pid_exists(pid)
    assert "ready" in (stand_in / "engine.log.out").read_text()
    running.stop()
    assert not psutil.pid_exists(pid)


def test_a_launch_without_a_url_leaves_no_process(stand_in: Path) -> None:
    (stand_in / "line").write_text('{"ready": true, "url": null}')
    with pytest.raises(TargetError, match="without url"):
        launch_sim(Sim(), "127.0.0.1", stand_in / "engine.log")
    assert not psutil.pid_exists(int((stand_in / "pid").read_text()))


def test_a_launch_that_is_not_ready_in_time_leaves_no_process(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is up as soon as something was printed."""
    looks = iter([0.0])

    def monotonic() -> float:
        return next(looks, 30.0 if "\n" in (stand_in / "engine.log.out").read_text() else 0.0)

    monkeypatch.setattr("raybench.deploy.process.time", SimpleNamespace(monotonic=monotonic))
    (stand_in / "line").write_text('{"ready": false, "error": "port taken"}')
    with pytest.raises(TargetError, match=r"not ready within 30 s(.|\n)*port taken"):
        launch_sim(Sim(), "127.0.0.1", stand_in / "engine.log")
    assert not psutil.pid_exists(int((stand_in / "pid").read_text()))
