"""Which node does what: client nodes and the target's node, from Ray's node list. Pure, no Ray.

Decided once, before any actor exists, so that what cannot be placed is said at once (case O-R3)
instead of pending for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from raybench.errors import ClusterError
from raybench.scenario.schema import Load, Placement

#: How many streams `workers_per_node: auto` gives one process before it takes another core.
STREAMS_PER_WORKER = 256


@dataclass(frozen=True)
class Node:
    """One live Ray node."""

    node_id: str
    address: str
    hostname: str
    resources: Mapping[str, float]
    labels: Mapping[str, str]

    @property
    def title(self) -> str:
        return f"{self.hostname} ({self.address})"


@dataclass(frozen=True)
class Layout:
    """Where load workers go, in order, and where the target's monitors and launcher go."""

    clients: tuple[Node, ...]
    target: Node
    notes: tuple[str, ...] = ()


def lay_out(nodes: Sequence[Node], own_node_id: str, placement: Placement, load: Load) -> Layout:
    """Choose nodes by resource and label.

    Raises ClusterError with all that was asked and is not there, and the way out.
    """
    target = _target(nodes, own_node_id, placement)
    able = _able(nodes, target, placement)
    least = load.client_nodes_min or load.client_nodes or 1
    wanted = load.client_nodes or max(len(able), least)
    problems = [] if target is not None else [_missing_target(nodes, placement)]
    if len(able) < least:
        kind = _describe(placement.client_resource, placement.client_labels)
        problems.append(
            f"asked {wanted} client nodes{kind}, {len(able)} available;"
            " start more nodes with `ray start`, or ask for fewer by load.client_nodes or load.client_nodes_min"
        )
    if target is None or problems:
        raise ClusterError("\n".join(problems))
    notes = []
    if len(able) < wanted:
        notes.append(f"asked {wanted} client nodes, goes on with {len(able)} (load.client_nodes_min {least})")
    return Layout(tuple(able[:wanted]), target, tuple(notes))


def able_nodes(nodes: Sequence[Node], placement: Placement) -> list[Node]:
    """Nodes that may carry load, by address; the target's own only where it is alone, or asked for."""
    target = _target(nodes, "", placement) if _names_target(placement) else None
    return _able(nodes, target, placement)


def _able(nodes: Sequence[Node], target: Node | None, placement: Placement) -> list[Node]:
    """Nodes that may carry load, by address."""
    able = [n for n in nodes if _carries(n, placement.client_resource, placement.client_labels)]
    if placement.client_resource is None and not placement.client_labels and _names_target(placement):
        # Load beside the engine would disturb what is measured, so its node is used only if alone.
        able = [n for n in able if n is not target] or able
    return sorted(able, key=lambda n: n.address)


def seat_workers(clients: Sequence[Node], workers_per_node: int | Literal["auto"], concurrency: int) -> list[Node]:
    """The node of each load worker, in order; node by node, as many on each.

    `auto`: one worker for each STREAMS_PER_WORKER streams of a node, at most one for each of its CPUs. Engines
    emit a decode batch at once, so that the last of n simultaneous chunks waits n times the cost of one:
    streams are spread over all cores before there are more of them in a process.
    """
    if workers_per_node != "auto":
        return [node for node in clients for _ in range(workers_per_node)]
    streams = -(-concurrency // len(clients))
    wanted = max(1, -(-streams // STREAMS_PER_WORKER))
    return [node for node in clients for _ in range(min(wanted, max(1, int(node.resources.get("CPU", 1)))))]


def _target(nodes: Sequence[Node], own_node_id: str, placement: Placement) -> Node | None:
    if _names_target(placement):
        fitting = [n for n in nodes if _carries(n, placement.target_resource, placement.target_labels)]
    else:
        fitting = [n for n in nodes if n.node_id == own_node_id]
    return min(fitting, key=lambda n: n.address, default=None)


def _missing_target(nodes: Sequence[Node], placement: Placement) -> str:
    if not _names_target(placement):
        return "the coordinator's own node is not in the cluster's node list"
    kind = _describe(placement.target_resource, placement.target_labels)
    return (
        f"the target host{kind} is not in the cluster ({len(nodes)} nodes: "
        f"{', '.join(sorted(n.title for n in nodes))}); join it with `ray start --address HEAD:6379"
        f" --num-cpus 1 --num-gpus 0{_start_options(placement)}`"
    )


def _names_target(placement: Placement) -> bool:
    return placement.target_resource is not None or bool(placement.target_labels)


def _carries(node: Node, resource: str | None, labels: Mapping[str, str]) -> bool:
    if resource is not None and node.resources.get(resource, 0) <= 0:
        return False
    return all(node.labels.get(key) == value for key, value in labels.items())


def _describe(resource: str | None, labels: Mapping[str, str]) -> str:
    kinds = [f"resource {resource!r}"] if resource is not None else []
    kinds += [f"label {key}={value}" for key, value in labels.items()]
    return f" with {' and '.join(kinds)}" if kinds else ""


def _start_options(placement: Placement) -> str:
    text = ""
    if placement.target_resource is not None:
        text += " --resources '{\"" + placement.target_resource + "\": 1}'"
    if placement.target_labels:
        text += " --labels " + ",".join(f"{key}={value}" for key, value in placement.target_labels.items())
    return text
