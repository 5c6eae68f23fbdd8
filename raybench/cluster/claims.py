"""No two loads on one server, and no run twice at a time (case O-R2): claims that Ray grants to one driver only.

A claim is an actor whose name is derived from what is claimed. Ray registers a name once, also when two drivers
ask for it in the same instant; the actor belongs to its driver and dies with it, so that no claim outlives its
run. Runs in the driver.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util import list_named_actors

from raybench.cluster.calls import own_node, pinned
from raybench.errors import ClusterError

NAMESPACE = "raybench"
#: All our named actors begin so; what does so and cannot describe itself is left over from something else.
PREFIX = "raybench-"
#: How long an actor under our name may take to say whose it is.
DESCRIBE_TIMEOUT_S = 10.0
#: Ray frees the name of a dead actor a moment after its death.
FREED_WITHIN_S = 15.0
FREED_POLL_S = 0.2

_DEFAULT_PORTS = {"http": 80, "https": 443}


class ClaimActor:
    """Holds a name as long as it lives."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def describe(self) -> dict[str, object]:
        return {"run_id": self._run_id}


@contextmanager
def claimed(run_id: str, urls: Sequence[str], *, force: bool) -> Iterator[None]:
    """The run and the servers at these URLs are this driver's for the time of the block.

    Raises ClusterError with the other run's id when another driver has one of them. force: loads servers that
    another run loads too; the same run is never under way twice.
    """
    remove_leftovers()
    with ExitStack() as stack:
        other = _claim(f"run-{run_id}", run_id, stack)
        if other is not None:
            raise ClusterError(f"run {run_id} is under way; follow it with `raybench logs --follow {run_id}`")
        for url in dict.fromkeys(urls):
            other = _claim(f"target-{server_key(url)}", run_id, stack)
            if other is not None and not force:
                raise ClusterError(
                    f"run {other} is loading {url} right now; two loads on one server spoil both: wait for it,"
                    f" end it with `raybench stop {other}`, or insist with --force"
                )
        yield


def server_key(url: str) -> str:
    """One name for all ways to write a server's address: its host and port, as a digest that fits a name."""
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    return hashlib.sha256(f"{(parts.hostname or '').rstrip('.')}:{port}".encode()).hexdigest()[:16]


def remove_leftovers() -> None:
    """End actors under our names that are none of ours; those of living runs describe themselves."""
    for entry in list_named_actors(all_namespaces=True):
        if not entry["name"].startswith(PREFIX):
            continue
        try:
            actor = ray.get_actor(entry["name"], namespace=entry["namespace"])
        except ValueError:
            continue  # it ended meanwhile
        if not hasattr(actor, "describe"):
            ray.kill(actor)


def _claim(what: str, run_id: str, stack: ExitStack) -> str | None:
    """Take the claim until the stack is closed, or say which run has it."""
    name = PREFIX + what
    end = time.monotonic() + FREED_WITHIN_S
    while True:
        try:
            actor = pinned(ClaimActor, own_node(), name=name, namespace=NAMESPACE).remote(run_id)
        except ValueError:  # the name is taken; Ray has a class of its own for it, but not in all versions
            holder = _holder(name)
            if holder is not None:
                return holder
            if time.monotonic() >= end:
                raise ClusterError(f"Ray does not free the name {name} of an actor that is gone") from None
            time.sleep(FREED_POLL_S)
        else:
            stack.callback(ray.kill, actor)
            return None


def _holder(name: str) -> str | None:
    """The run that has the claim; None when its actor is gone or is dying."""
    try:
        actor: Any = ray.get_actor(name, namespace=NAMESPACE)
        told: dict[str, Any] = ray.get(actor.describe.remote(), timeout=DESCRIBE_TIMEOUT_S)
    except GetTimeoutError:
        return "(one that does not answer)"
    except (ValueError, RayError):
        return None
    return str(told["run_id"])
