"""Calls to actors: what raybench explains comes as it was raised, a dead or silent actor is told with its name."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
import ray
from ray.exceptions import RayTaskError

from raybench.cluster.calls import RemoteDesk, told
from raybench.cluster.fleet import RayFleet
from raybench.errors import ClusterError, ConfigError
from raybench.records.clock import AnchoredClock

NO_KEY = ConfigError("environment", "the variable KEY is not set on this node")


async def raising(error: Exception) -> Any:
    """A remote call that ends in this error, as Ray raises it here."""
    raise RayTaskError("arm", "ray::LoadWorkerActor.arm() ... Traceback ...", error).as_instanceof_cause()


def outcome(call: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await call

    return asyncio.run(run())


def test_what_raybench_explains_comes_without_rays_traceback() -> None:
    with pytest.raises(ConfigError) as caught:
        outcome(told(raising(NO_KEY), "arming"))
    assert str(caught.value) == "environment: the variable KEY is not set on this node"
    assert not isinstance(caught.value, RayTaskError)


def test_a_bug_of_the_other_side_keeps_its_traceback() -> None:
    with pytest.raises(RayTaskError, match="Traceback"):
        outcome(told(raising(KeyError("x")), "arming"))


def test_no_answer_within_the_limit_is_a_cluster_error_with_both() -> None:
    with pytest.raises(ClusterError, match=r"the monitor: no answer within 0\.01 s"):
        outcome(told(asyncio.Event().wait(), "the monitor", 0.01))


def test_a_key_that_a_client_node_does_not_have_is_told_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its worker is not taken for lost: another attempt would end in the same way."""
    monkeypatch.setattr(ray, "put", lambda value: value)
    fleet = RayFleet([], RemoteDesk(None), {}, AnchoredClock(), 1.0, lambda _worker: None)
    with pytest.raises(ConfigError) as caught:
        outcome(fleet._call("w000", raising(NO_KEY)))
    assert not isinstance(caught.value, RayTaskError)
