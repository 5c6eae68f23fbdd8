"""What the coordinator keeps of what happens on the target's host."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_fakes import scenario

from raybench.cluster import target_host
from raybench.cluster.calls import RemoteDesk
from raybench.cluster.layout import Layout, Node
from raybench.cluster.target_host import RayTargetHost
from raybench.monitors.gpu import GpuDevice, GpuStatus
from raybench.records.clock import AnchoredClock
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import read_json, write_json

NODE = Node("id1", "10.0.0.1", "host1", {}, {})


def method(answer: Any) -> Any:
    """What a call to an actor looks like."""

    async def remote(*_: object) -> Any:
        return answer

    return SimpleNamespace(remote=remote)


class FakeGpuWatch:
    """Finds this on the host."""

    found: GpuStatus

    def __init__(self, *_: object) -> None: ...

    async def start(self) -> GpuStatus:
        return self.found


Make = Callable[..., RayTargetHost]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A target host on this node whose actor answers so."""

    def made(node: Node = NODE, **answers: Any) -> RayTargetHost:
        actor = SimpleNamespace(**{name: method(answer) for name, answer in answers.items()})
        monkeypatch.setattr(target_host, "pinned", lambda *_: SimpleNamespace(remote=lambda *_: actor))
        monkeypatch.setattr(target_host, "GpuWatch", FakeGpuWatch)
        run = RunDirectory(tmp_path)
        return RayTargetHost(Layout((node,), node), RemoteDesk(None), run, AnchoredClock(), scenario(), tmp_path)

    return made


def test_the_devices_of_all_hosts_of_an_arm_are_kept(tmp_path: Path, make: Make) -> None:
    device = GpuDevice("GPU-a", 0, "NVIDIA Test", 80, "580.1")
    for host, found in (
        ("one", GpuStatus(True, devices=(device,), warnings=("w",))),
        ("two", GpuStatus(False, "nvmlInit: Driver Not Loaded")),
    ):
        FakeGpuWatch.found = found
        reason = asyncio.run(make(replace(NODE, hostname=host)).watch_gpus("a", "nvml", "http://h:1", 0.5))
        assert reason == found.reason
    assert read_json(RunDirectory(tmp_path).arm("a") / "gpus.json") == {
        "one": {
            "available": True,
            "reason": None,
            "devices": [
                {
                    "uuid": "GPU-a",
                    "index": 0,
                    "name": "NVIDIA Test",
                    "memory_total_bytes": 80,
                    "driver_version": "580.1",
                    "parent_uuid": None,
                }
            ],
            "warnings": ["w"],
        },
        "two": {"available": False, "reason": "nvmlInit: Driver Not Loaded", "devices": [], "warnings": []},
    }


def test_a_resumed_run_tells_of_its_own_keeper_where_that_writes_on_another_host(
    tmp_path: Path, make: Make
) -> None:
    run = RunDirectory(tmp_path)
    write_json(run.service_json, {"phase": "verified", "problems": [], "pid": 1})
    down, back = ({"phase": phase, "problems": [], "pid": 2} for phase in ("down", "verified"))
    host = make(take_service_down=down, bring_service_back=back)

    async def both() -> None:
        await host.take_service_down(None)  # type: ignore[arg-type]
        assert read_json(run.service_json) == down
        await host.bring_service_back()
        assert read_json(run.service_json) == back

    asyncio.run(both())
