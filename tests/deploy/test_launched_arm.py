"""An arm that is launched, from its start to its end: real processes, what is kept of them, why they ended."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from raybench.deploy.arms import LaunchedArm
from raybench.deploy.gpu_memory import FreeMemory
from raybench.errors import TargetError
from raybench.scenario.launch import Launch

GIB = 1024**3
HERE = [sys.executable, "-I", "-S", "-c"]
LIMIT_S = 60.0
STAYS = "import time; print('ready to roll', flush=True); time.sleep(60)"
#: Ends once the file that it is given is there.
WAITS = "import os, sys, time; print('ready', flush=True)\n"
WAITS += "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"


def arm(folder: Path, free: Any = lambda: None, **block: Any) -> LaunchedArm:
    known = {
        "argv": [*HERE, STAYS],
        "stop": {"grace_s": LIMIT_S},
        "ready": {"log_pattern": "ready", "timeout_s": LIMIT_S},
    }
    return LaunchedArm("mine", Launch.model_validate({**known, **block}), "http://h:1", folder, free=free)


def never() -> bool:
    raise AssertionError("the engine is not asked where the launch says how to tell")


def test_what_is_kept_of_a_process_that_was_started_and_stopped(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv[1:], os.environ['CONTEXT'], flush=True)\n" + STAYS
    given = arm(
        tmp_path,
        argv=[*HERE, code, "--context", "{context}", "--hf-token", "sk-secret-123456", "{folder}/own.jsonl"],
        env={"CONTEXT": "{context}", "URL": "http://me:secret@h"},
        parameters={"context": 4096},
    )
    given.wait_ready(never)
    record = given.stop()
    assert "['--context', '4096', '--hf-token', 'sk-secret-123456'" in (tmp_path / "launch.log").read_text()
    assert record.argv[-5:] == ["--context", "4096", "--hf-token", "<redacted>", f"{tmp_path}/own.jsonl"]
    assert record.env == {"CONTEXT": "4096", "URL": "http://<redacted>@h"}
    assert (record.reason, record.exit_code, record.parameters) == ("stopped", 143, {"context": 4096})
    assert record.load_s is not None and record.process_s is not None
    assert 0 < record.load_s <= record.process_s
    assert given.stop() == record
    json.dumps(record.__dict__)


def test_a_launch_that_runs_out_of_memory_says_so_with_the_shortfall(tmp_path: Path) -> None:
    code = "print('need 5323270656 B, have 4386459648 B'); print('CUDA out of memory'); raise SystemExit(3)"
    shortfall = r"need (?P<need_bytes>\d+) B, have (?P<have_bytes>\d+)"
    given = arm(tmp_path, argv=[*HERE, code], memory={"shortfall": shortfall})
    with pytest.raises(TargetError, match=r"launch: out of memory, 893.4 MiB short: mine ended with exit code 3"):
        given.wait_ready(never)
    record = given.record
    assert (record.reason, record.evidence, record.exit_code) == ("out_of_memory", "CUDA out of memory", 3)
    assert record.shortfall_mib == pytest.approx(893.41, abs=0.01)
    assert record.load_s is None


def test_a_server_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    given = arm(tmp_path, ready={"log_pattern": "never said", "timeout_s": 1.0})
    with pytest.raises(TargetError, match="not ready within 1 s"):
        given.wait_ready(never)
    assert given.record.reason == "not_ready"
    assert not [child for child in psutil.Process().children(recursive=True) if STAYS in child.cmdline()]


def test_a_launch_that_is_given_up_ends_at_once_and_was_stopped(tmp_path: Path) -> None:
    given = arm(tmp_path, ready={"log_pattern": "never said", "timeout_s": 600.0})
    threading.Timer(0.5, given.give_up).start()
    with pytest.raises(TargetError):
        given.wait_ready(never)
    assert given.stop().reason == "stopped"


def test_a_process_that_ended_while_it_was_measured_was_not_stopped_by_us(tmp_path: Path) -> None:
    code = WAITS + "print('CUDA out of memory')"
    given = arm(tmp_path, argv=[*HERE, code, "{folder}/asked"])
    given.wait_ready(never)
    (tmp_path / "asked").touch()
    given._process._guard.wait(LIMIT_S)
    assert (given.stop().reason, given.record.exit_code) == ("out_of_memory", 0)


def test_the_next_arm_waits_for_the_memory_of_this_one(tmp_path: Path) -> None:
    looks: Iterator[FreeMemory] = iter([{"a": 8 * GIB}, {"a": GIB}, {"a": GIB}, {"a": 8 * GIB}])
    given = arm(tmp_path, free=lambda: next(looks))
    given.wait_ready(never)
    record = given.stop()
    assert (record.gpu_free_bytes, record.gpu_free_bytes_ready) == ({"a": 8 * GIB}, {"a": GIB})
    assert (record.gpu_release_s is not None, record.gpu_held) == (True, ())


def test_memory_that_does_not_come_back_is_told(tmp_path: Path) -> None:
    looks: Iterator[FreeMemory] = iter([{"a": 8 * GIB}, {"a": GIB}, {"a": GIB}])
    given = arm(tmp_path, free=lambda: next(looks), stop={"grace_s": LIMIT_S, "gpu_release_timeout_s": 0.0})
    given.wait_ready(never)
    assert given.stop().gpu_held == ("a 7,168 MiB",)


def test_a_stop_command_comes_before_the_signal(tmp_path: Path) -> None:
    stop = {"command": "touch {folder}/asked", "grace_s": LIMIT_S, "signal": "SIGKILL"}
    given = arm(tmp_path, argv=[*HERE, WAITS, "{folder}/asked"], stop=stop)
    given.wait_ready(never)
    record = given.stop()
    assert (tmp_path / "asked").exists()
    assert record.reason == "stopped"


#: What `docker run` is to a container: neither its parent nor its end. Each takes its orders by files.
CONTAINER = "until [ -e run ]; do sleep 0.02; done; touch held; "
CONTAINER += "until [ -e stop ]; do sleep 0.02; done; sleep 0.5; rm held"
CLIENT = "touch {folder}/run; until [ -e {folder}/held ]; do sleep 0.02; done; echo ready; exec sleep 60"


@pytest.mark.parametrize("client_is_killed", [False, True])
def test_memory_of_a_container_is_waited_for_also_when_its_client_was_killed(
    tmp_path: Path, client_is_killed: bool
) -> None:
    held = tmp_path / "held"
    stop = {"command": "touch {folder}/stop", "grace_s": LIMIT_S, "gpu_release_timeout_s": LIMIT_S}
    with subprocess.Popen(["/bin/sh", "-c", CONTAINER], cwd=tmp_path) as container:
        given = arm(
            tmp_path,
            argv=["/bin/sh", "-c", CLIENT],
            stop=stop,
            free=lambda: {"a": GIB if held.exists() else 8 * GIB},
        )
        given.wait_ready(never)
        if client_is_killed:
            [client] = [
                one for one in psutil.Process().children(recursive=True) if one.cmdline() == ["sleep", "60"]
            ]
            client.kill()
            given._process._guard.wait(LIMIT_S)
        record = given.stop()
        assert not held.exists()
        container.wait(LIMIT_S)
    assert (record.gpu_free_bytes_ready, record.gpu_held) == ({"a": GIB}, ())
    assert record.exit_code == (137 if client_is_killed else 143)
    assert (record.reason == "stopped") is not client_is_killed


def test_a_log_that_the_server_writes_itself_is_read_and_kept(tmp_path: Path) -> None:
    own, folder = tmp_path / "elsewhere.log", tmp_path / "arm"
    folder.mkdir()
    own.write_text("ready, said an earlier run\n")
    code = "import sys, time; open(sys.argv[1], 'a').write('slack 5.1 MiB\\nready\\n'); time.sleep(60)"
    given = arm(
        folder, argv=[*HERE, code, str(own)], log=str(own), memory={"slack": r"slack (?P<mib>[0-9.]+) MiB"}
    )
    given.wait_ready(never)
    assert given.record.slack_mib == 5.1
    given.stop()
    assert "slack 5.1 MiB" in (folder / "server.log").read_text()


def test_a_url_and_the_engine_itself_tell_that_it_is_ready(tmp_path: Path) -> None:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        by_url = arm(
            tmp_path, ready={"url": f"http://127.0.0.1:{server.server_port}/health", "timeout_s": LIMIT_S}
        )
        by_url.wait_ready(never)
        by_url.stop()
    finally:
        server.shutdown()
        server.server_close()
    answers = iter([False, True])
    by_engine = arm(tmp_path, ready={"timeout_s": LIMIT_S})
    by_engine.wait_ready(lambda: next(answers))
    assert by_engine.stop().load_s is not None


def test_a_launched_process_sees_the_gpus_that_ray_hides_from_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code = "import os; print('ready', os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)\n" + STAYS
    given = arm(tmp_path, argv=[*HERE, code], ready={"log_pattern": "ready None", "timeout_s": LIMIT_S})
    given.wait_ready(never)
    given.stop()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    shown = arm(tmp_path, argv=[*HERE, code], ready={"log_pattern": "ready 0,1", "timeout_s": LIMIT_S})
    shown.wait_ready(never)
    shown.stop()


def test_held_files_stay_open_until_the_process_has_ended(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    launch = Launch.model_validate({"argv": [*HERE, STAYS], "ready": {"log_pattern": "ready"}})
    given = LaunchedArm("mine", launch, "http://h:1", tmp_path, hold=[writer], free=lambda: None)
    os.close(writer)
    given.wait_ready(never)
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    given.stop()
    assert os.read(reader, 1) == b""
    os.close(reader)
