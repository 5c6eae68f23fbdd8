"""What the coordinator keeps of what happens on the target's host."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_fakes import scenario

from raybench.cluster import target_host
from raybench.cluster.calls import RemoteDesk
from raybench.cluster.layout import Layout, Node
from raybench.cluster.target_host import RayTargetHost
from raybench.records.clock import AnchoredClock
from raybench.records.rundir import RunDirectory, read_json, write_json

NODE = Node("id1", "10.0.0.1", "host1", {}, {})


def method(answer: Any) -> Any:
    """What a call to an actor looks like."""

    async def remote(*_: object) -> Any:
        return answer

    return SimpleNamespace(remote=remote)


def test_a_resumed_run_tells_of_its_own_keeper_where_that_writes_on_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path)
    write_json(run.service_json, {"phase": "verified", "problems": [], "pid": 1})
    down, back = ({"phase": phase, "problems": [], "pid": 2} for phase in ("down", "verified"))
    actor = SimpleNamespace(take_service_down=method(down), bring_service_back=method(back))
    monkeypatch.setattr(target_host, "pinned", lambda *_: SimpleNamespace(remote=lambda *_: actor))
    host = RayTargetHost(Layout((NODE,), NODE), RemoteDesk(None), run, AnchoredClock(), scenario(), tmp_path)

    async def both() -> None:
        await host.take_service_down(None)  # type: ignore[arg-type]
        assert read_json(run.service_json) == down
        await host.bring_service_back()
        assert read_json(run.service_json) == back

    asyncio.run(both())
