"""The blocks `load` and `placement`: how requests are sent, and on which nodes everything runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from raybench.scenario.values import Count, IpAddress, Misfit, Model, Seconds, refuse_repeats


class RequestLimits(Model):
    """Explicit limits of one request. None means no limit; all are written into the results."""

    connect_timeout_s: Seconds = 30.0
    idle_timeout_s: Seconds | None = 1800.0
    request_timeout_s: Seconds | None = None
    event_bytes_max: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024


def check_client_nodes(nodes: int | None, least: int | None) -> None:
    """The least number of client nodes to go on with cannot exceed the number that is asked."""
    if nodes is not None and least is not None and least > nodes:
        raise Misfit(f"more than client_nodes, which is {nodes}", "client_nodes_min")


class Load(Model):
    """How the concurrency is spread.

    client_nodes: None means every node that may carry load. client_nodes_min: go on with as few as
    these, and record it; None insists on client_nodes (at least one node). starts_per_ms: streams that
    one worker starts in a millisecond, so that a burst does not keep it from reading. client: `plain` sends
    through aiohttp also where the cheaper client could. source_addresses: a node sends from those that are
    its own; each has its own range of local ports.
    """

    client_nodes: Count | None = None
    client_nodes_min: Count | None = None
    workers_per_node: Count | Literal["auto"] = "auto"
    starts_per_ms: Count = 8
    client: Literal["auto", "plain"] = "auto"
    source_addresses: Annotated[list[IpAddress], AfterValidator(refuse_repeats)] = []
    request: RequestLimits = RequestLimits()
    keep_chunks: bool = True

    @model_validator(mode="after")
    def _nodes_fit(self) -> Load:
        check_client_nodes(self.client_nodes, self.client_nodes_min)
        return self


class Placement(Model):
    """Which Ray nodes do what, by node label or custom resource (`key: value` / `resource: name`).

    client / target None: clients may be any node; the target is the coordinator's own node.
    """

    client_resource: str | None = None
    client_labels: dict[str, str] = {}
    target_resource: str | None = None
    target_labels: dict[str, str] = {}
    start_timeout_s: Seconds = 60.0
