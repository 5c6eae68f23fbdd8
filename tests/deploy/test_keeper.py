"""A real service, a real keeper: down and back, after orders, deaths and half-done steps."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import service_in_use
from service_in_use import CONFIGURATION, InUse, report_of

from raybench.deploy.keeper import Keeper, note_path
from raybench.deploy.keeping import Keeping, Phase, last_report
from raybench.deploy.process import LaunchedProcess, LogPattern
from raybench.scenario.schema import Service

LIMIT_S = 300.0
GIB = 1024**3


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notes of these tests are nobody else's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def in_use(tmp_path: Path) -> Iterator[InUse]:
    with service_in_use.service(tmp_path / "service") as started:
        yield started


def started(in_use: InUse, folder: Path, **options: Any) -> tuple[Service, Keeping]:
    only_restore = options.pop("only_restore", False)
    given = Service.model_validate(in_use.block(**options))
    folder.mkdir(exist_ok=True)
    return given, Keeping.start(given, in_use.folder, folder, only_restore=only_restore)


def soon(true: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def assert_as_before(in_use: InUse, given: Service) -> None:
    assert in_use.answers()
    assert in_use.configuration == CONFIGURATION
    assert not note_path(given).exists()


def test_a_service_goes_down_and_comes_back_verified(in_use: InUse, tmp_path: Path) -> None:
    before = in_use.pid
    given, keeping = started(in_use, tmp_path / "run")
    report = keeping.wait_down()
    assert report["phase"] == "down", report
    assert note_path(given).exists()
    assert (in_use.pid, in_use.configuration, in_use.answers()) == (None, None, False)
    report = keeping.bring_back()
    assert (report["phase"], report["problems"]) == ("verified", [])
    assert [step["exit_code"] for step in report["steps"]] == [0] * 4
    assert report["before"]["max_running_requests"] == 12
    assert_as_before(in_use, given)
    assert in_use.pid != before
    assert keeping.bring_back() == report


def test_a_service_that_is_not_up_is_not_touched(in_use: InUse, tmp_path: Path) -> None:
    in_use.run_script("stop")
    given, keeping = started(in_use, tmp_path / "run")
    report = keeping.wait_down()
    assert report["phase"] == "refused"
    assert "does not answer" in report["problems"][0]
    assert report["steps"] == []
    assert in_use.configuration == CONFIGURATION
    assert not note_path(given).exists()


def test_a_step_down_that_fails_brings_the_service_back(in_use: InUse, tmp_path: Path) -> None:
    given, keeping = started(
        in_use, tmp_path / "run", take_down=[f"{in_use.folder}/service.sh stop", "echo no such container; false"],
        bring_back=[f"{in_use.folder}/service.sh start"],
    )  # fmt: skip
    assert keeping.wait_down()["phase"] == "verified"
    report = keeping.bring_back()
    assert report["phase"] == "verified"
    assert report["problems"] == ["taking the service down failed; it is brought back"]
    assert "no such container" in report["steps"][1]["output"]
    assert_as_before(in_use, given)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (b'{"time_compression": 50, "max_running_requests": 11}', "max_running_requests was 12, is 11"),
        (CONFIGURATION + b"\n", "is another than before"),
    ],
)
def test_a_service_that_came_back_as_another_is_not_verified(
    in_use: InUse, tmp_path: Path, spoil: bytes, problem: str
) -> None:
    given, keeping = started(in_use, tmp_path / "run")
    assert keeping.wait_down()["phase"] == "down"
    (in_use.folder / "service.json.aside").write_bytes(spoil)
    report = keeping.bring_back()
    assert report["phase"] == "not_verified"
    assert any(problem in told for told in report["problems"]), report["problems"]
    assert note_path(given).exists()

    # somebody puts it right by hand; `raybench restore` verifies it against what was before
    in_use.run_script("stop")
    (in_use.folder / "service.json.aside").write_bytes(CONFIGURATION)
    _, again = started(in_use, tmp_path / "again", only_restore=True)
    report = again.bring_back()
    assert (report["phase"], report["recovered"]) == ("verified", True)
    assert_as_before(in_use, given)


def test_a_service_that_does_not_come_back_is_told_within_its_limit(in_use: InUse, tmp_path: Path) -> None:
    given, keeping = started(in_use, tmp_path / "run", bring_back=["true"], ready_timeout_s=1)
    assert keeping.wait_down()["phase"] == "down"
    report = keeping.bring_back()
    assert report["phase"] == "not_verified"
    assert "does not answer within 1 s" in report["problems"][0]
    assert note_path(given).exists()


def test_a_keeper_that_is_killed_leaves_a_note_by_which_the_next_one_restores_first(
    in_use: InUse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, keeping = started(in_use, tmp_path / "run")
    report = keeping.wait_down()
    os.kill(report["pid"], signal.SIGKILL)
    told = keeping.bring_back()
    assert told["phase"] == "not_verified"
    assert "ended before its time" in told["problems"][-1]
    assert last_report(tmp_path / "run" / "service.json", lambda _: None)["phase"] == "not_verified"
    assert in_use.configuration is None

    phases: list[str] = []
    tell = Keeper._tell

    def telling(keeper: Keeper, phase: Phase, **more: object) -> None:
        phases.append(phase)
        tell(keeper, phase, **more)

    monkeypatch.setattr(Keeper, "_tell", telling)
    second = Keeper(given, in_use.folder, tmp_path / "second")
    assert second.keep(lambda: False, lambda: None)
    assert report_of(tmp_path / "second")["recovered"] is True
    # Nothing on the way looks like an end.
    back, down = ["bringing_back"], ["looking", "taking_down", "down"]
    assert phases == ["waiting", *back, *down, *back, "verified"]
    assert_as_before(in_use, given)


def test_the_service_waits_for_the_memory_of_what_was_launched(
    in_use: InUse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held by nobody that a guard could end, as by a container whose client was killed."""
    held = tmp_path / "held"
    given = Service.model_validate(in_use.block())
    keeper = Keeper(given, in_use.folder, tmp_path / "told", lambda: {"a": 8 * GIB if not held.exists() else GIB})
    looked: list[bool] = []

    def ended() -> None:
        held.touch()
        letting_go = threading.Timer(0.5, lambda: (looked.append(in_use.answers()), held.unlink()))
        letting_go.start()

    assert keeper.keep(lambda: False, ended)
    assert looked == [False]
    assert report_of(tmp_path / "told")["problems"] == []
    assert_as_before(in_use, given)

    monkeypatch.setattr("raybench.deploy.keeper.GPU_RELEASE_LIMIT_S", 0.0)
    assert keeper.keep(lambda: False, held.touch)
    [problem] = report_of(tmp_path / "told")["problems"]
    assert problem == "GPU memory was still held when it was brought back: a 7,168 MiB"
    assert_as_before(in_use, given)


def test_the_service_waits_for_the_end_of_what_was_launched(in_use: InUse, tmp_path: Path) -> None:
    """An arm that takes its time to end holds the GPUs: forgetting everything does not start the service early."""
    given, keeping = started(in_use, tmp_path / "run")
    assert keeping.wait_down()["phase"] == "down"
    stubborn = LaunchedProcess.start(
        [
            "/bin/sh",
            "-c",
            f"trap 'sleep 2; touch {tmp_path}/ended; exit' TERM; echo set; while :; do sleep 0.05; done",
        ],
        log_path=tmp_path / "arm.log",
        grace_s=20,
        hold=[keeping.lifeline],
    )
    stubborn.wait_ready(LogPattern("set"), LIMIT_S)
    path = tmp_path / "run" / "service.json"
    os.close(keeping.lifeline)  # as the kernel does when raybench is killed
    stubborn._lifeline.close()
    soon(lambda: report_of(path)["phase"] != "down")
    assert (tmp_path / "ended").exists()
    soon(lambda: report_of(path)["phase"] == "verified")
    stubborn.stop()
    assert_as_before(in_use, given)
