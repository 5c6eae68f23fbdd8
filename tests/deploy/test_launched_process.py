"""Real child processes: start, readiness, early exit, the end of a whole tree, the launcher's death."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from raybench.deploy.guard import PARENT_PID
from raybench.deploy.process import LaunchedProcess, LogPattern, ReadyLine, UrlAnswers
from raybench.errors import TargetError

LIMIT_S = 60.0

READY = 'print(json.dumps({"ready": True, "pid": os.getpid(), "ppid": os.getppid()}), flush=True)'


def python(code: str, *arguments: str) -> list[str]:
    """A small Python program that starts fast."""
    source = "import json, os, signal, subprocess, sys, time\n" + textwrap.dedent(code)
    return [sys.executable, "-I", "-S", "-c", source, *arguments]


def start(argv: list[str], folder: Path, **options: object) -> LaunchedProcess:
    return LaunchedProcess.start(argv, log_path=folder / "child.log", **{"grace_s": LIMIT_S, **options})  # type: ignore[arg-type]


def soon(true: Callable[[], bool]) -> bool:
    """Whether it becomes true within the limit."""
    end = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_ready_line_is_found_among_other_output_and_the_process_runs_on(tmp_path: Path) -> None:
    code = f"""
        print("loading", flush=True)
        print("{{not json", flush=True)
        print(json.dumps({{"ready": False}}), file=sys.stderr, flush=True)
        {READY}
        time.sleep(60)
    """
    with start(python(code), tmp_path) as process:
        ready = process.wait_ready(ReadyLine(), LIMIT_S)
        assert process.exit_code() is None
        assert not gone(int(str(ready["pid"])))
    assert gone(int(str(ready["pid"])))
    assert process.exit_code() == 128 + signal.SIGTERM


def test_the_end_of_the_log_is_whole_lines_unless_one_is_longer(tmp_path: Path) -> None:
    with start(python("print('first\\nsecond', flush=True); time.sleep(60)"), tmp_path) as process:
        process.wait_ready(LogPattern("second"), LIMIT_S)
        assert process.log_tail(9) == "second"
        assert process.log_tail(4) == "ond"
        assert process.log_tail(100) == "first\nsecond"


def test_stdout_and_stderr_go_to_the_log_and_older_content_stays(tmp_path: Path) -> None:
    (tmp_path / "child.log").write_text('{"ready": true, "pid": 1}\n')
    code = "print('out', flush=True); print('err', file=sys.stderr, flush=True); sys.exit(3)"
    process = start(python(code), tmp_path)
    with pytest.raises(TargetError):  # the ready line of an earlier start does not count
        process.wait_ready(ReadyLine(), LIMIT_S)
    assert process.log_path.read_text() == '{"ready": true, "pid": 1}\nout\nerr\n'
    assert process.log_tail() == "out\nerr"


def test_an_early_exit_is_an_error_with_the_exit_code_and_the_end_of_the_log(tmp_path: Path) -> None:
    code = "print('x' * 5000, flush=True); print('CUDA out of memory', file=sys.stderr); sys.exit(7)"
    process = start(python(code), tmp_path, name="engine")
    with pytest.raises(TargetError) as caught:
        process.wait_ready(ReadyLine(), LIMIT_S)
    assert caught.value.step == "launch"
    assert "engine ended with exit code 7" in str(caught.value)
    assert str(caught.value).endswith("ends with:\nCUDA out of memory")
    assert process.stop() == 7


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    process = start(["/nonexistent/engine"], tmp_path)
    with pytest.raises(TargetError, match=r"exit code 127(.|\n)*cannot start /nonexistent/engine: No such file"):
        process.wait_ready(ReadyLine(), LIMIT_S)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="missing"):
        start(python("pass"), tmp_path, cwd=tmp_path / "missing")


def test_a_process_that_is_never_ready_is_an_error_at_the_limit(tmp_path: Path) -> None:
    with start(python("print('still loading', flush=True); time.sleep(60)"), tmp_path) as process:
        process.wait_ready(LogPattern("still"), LIMIT_S)
        with pytest.raises(TargetError, match=r"not ready within 0.1 s(.|\n)*still loading"):
            process.wait_ready(ReadyLine(), 0.1)
        assert process.exit_code() is None


def test_a_log_pattern_gives_its_match(tmp_path: Path) -> None:
    code = "print('listening on port 4711', flush=True); time.sleep(60)"
    with start(python(code), tmp_path) as process:
        match: re.Match[str] = process.wait_ready(LogPattern(r"port (\d+)"), LIMIT_S)
        assert match[1] == "4711"


def test_a_url_is_ready_when_it_answers_with_200(tmp_path: Path) -> None:
    statuses = [503, 200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop(0))
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    def serve_two() -> None:
        server.handle_request()
        server.handle_request()

    with (
        HTTPServer(("127.0.0.1", 0), Handler) as server,
        start(python("time.sleep(60)"), tmp_path) as process,
    ):
        thread = threading.Thread(target=serve_two)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/health"
        assert process.wait_ready(UrlAnswers(url), LIMIT_S) == url
        thread.join()
        assert statuses == []


def test_the_environment_is_ours_with_additions_and_the_folder_is_the_one_given(tmp_path: Path) -> None:
    code = """
        print(json.dumps({"ready": True, "env": dict(os.environ), "cwd": os.getcwd()}), flush=True)
        time.sleep(60)
    """
    with start(python(code), tmp_path, env={"RAYBENCH_TEST": "yes"}, cwd=tmp_path) as process:
        ready = process.wait_ready(ReadyLine(), LIMIT_S)
    assert ready["env"] == {**os.environ, "RAYBENCH_TEST": "yes"}
    assert ready["cwd"] == str(tmp_path)


def test_the_parent_pid_that_is_passed_on_is_the_real_parents(tmp_path: Path) -> None:
    code = """
        print(json.dumps({"ready": True, "told": int(sys.argv[1]), "real": os.getppid()}), flush=True)
        time.sleep(60)
    """
    with start(python(code, PARENT_PID), tmp_path) as process:
        ready = process.wait_ready(ReadyLine(), LIMIT_S)
    assert ready["told"] == ready["real"]


TREE = """
    ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    say = "print('up', flush=True); time.sleep(60)"
    def child(code, **options):
        argv = [sys.executable, "-I", "-S", "-c", code]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, **options)
        process.stdout.readline()
        return process.pid
    pids = [child(ignore + say), child("import time; " + say, start_new_session=True), os.getpid()]
    print(json.dumps({"ready": True, "pids": pids}), flush=True)
"""


def test_stop_ends_the_whole_tree_a_stubborn_child_and_a_daemon_included(tmp_path: Path) -> None:
    process = start(python(TREE + "    time.sleep(60)\n"), tmp_path, grace_s=1.0)
    pids: list[int] = process.wait_ready(ReadyLine(), LIMIT_S)["pids"]  # type: ignore[assignment]
    assert not any(gone(pid) for pid in pids)
    assert process.stop() == 128 + signal.SIGTERM
    assert all(gone(pid) for pid in pids)


def test_what_a_process_leaves_behind_at_its_own_end_is_ended_too(tmp_path: Path) -> None:
    order = tmp_path / "end"
    wait = "    while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    process = start(python(TREE + wait, str(order)), tmp_path, grace_s=0.1)
    pids: list[int] = process.wait_ready(ReadyLine(), LIMIT_S)["pids"]  # type: ignore[assignment]
    order.touch()
    assert soon(lambda: process.exit_code() is not None)
    assert process.exit_code() == 0
    assert all(gone(pid) for pid in pids)


def test_a_process_gets_its_grace_to_end_in_order(tmp_path: Path) -> None:
    code = f"""
        def end(*_):
            print("saved", flush=True)
            sys.exit(5)
        signal.signal(signal.SIGTERM, end)
        {READY}
        time.sleep(60)
    """
    process = start(python(code), tmp_path)
    process.wait_ready(ReadyLine(), LIMIT_S)
    assert process.stop() == 5
    assert process.log_tail().endswith("saved")
    assert process.stop() == 5


def test_nothing_is_left_when_the_launcher_is_killed(tmp_path: Path) -> None:
    code = f"""
        import sys, time
        from pathlib import Path
        from raybench.deploy.process import LaunchedProcess, ReadyLine
        argv, log = {python(TREE + "    time.sleep(60)")!r}, Path({str(tmp_path / "child.log")!r})
        process = LaunchedProcess.start(argv, log_path=log, grace_s=0.1)
        print(process.wait_ready(ReadyLine(), {LIMIT_S})["pids"], flush=True)
        time.sleep(60)
    """
    launcher = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert launcher.stdout is not None
    pids = json.loads(launcher.stdout.readline())
    assert not any(gone(pid) for pid in pids)
    launcher.kill()
    launcher.communicate()
    assert soon(lambda: all(gone(pid) for pid in pids))


def test_an_order_to_end_that_comes_before_the_command_runs_is_not_lost() -> None:
    code = """
        from raybench.deploy import guard
        signal.signal(signal.SIGTERM, lambda *_: None)
        guard._prctl = lambda *_: os.kill(os.getpid(), signal.SIGTERM)  # behind the fork, before exec
        _, status = os.waitpid(guard._spawn(["sleep", "600"]), 0)
        print(os.waitstatus_to_exitcode(status))
    """
    source = "import os, signal\n" + textwrap.dedent(code)
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.stdout == f"-{signal.SIGTERM:d}\n", ended.stderr


def test_a_guard_that_is_killed_takes_the_process_with_it_and_stop_says_so(tmp_path: Path) -> None:
    process = start(python(READY + "\ntime.sleep(60)"), tmp_path)
    ready = process.wait_ready(ReadyLine(), LIMIT_S)
    os.kill(int(str(ready["ppid"])), signal.SIGKILL)
    assert soon(lambda: gone(int(str(ready["pid"]))))
    with pytest.raises(TargetError, match="may still be running"):
        process.stop()


def test_a_process_that_nobody_holds_any_more_is_ended(tmp_path: Path) -> None:
    process = start(python(READY + "\ntime.sleep(60)"), tmp_path)
    pid = int(str(process.wait_ready(ReadyLine(), LIMIT_S)["pid"]))
    del process
    assert soon(lambda: gone(pid))
