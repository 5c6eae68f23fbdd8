"""Which node does what, from node lists alone; what cannot be placed is said at once (case O-R3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.cluster.layout import Layout, Node, able_nodes, lay_out, seat_workers
from raybench.errors import EXIT_CLUSTER, ClusterError
from raybench.scenario.schema import Load, Placement


def node(number: int, *, resources: dict[str, float] | None = None, labels: dict[str, str] | None = None) -> Node:
    return Node(f"id{number}", f"10.0.0.{number}", f"host{number}", resources or {"CPU": 4.0}, labels or {})


def chosen(nodes: list[Node], placement: Placement | None = None, load: Load | None = None) -> Layout:
    return lay_out(nodes, "id1", placement or Placement(), load or Load())


def clients(layout: Layout) -> list[str]:
    return [client.node_id for client in layout.clients]


def test_one_machine_is_client_and_target() -> None:
    layout = chosen([node(1)])
    assert (clients(layout), layout.target.node_id, layout.notes) == (["id1"], "id1", ())


def test_without_a_named_target_it_is_the_coordinator_s_own_node_and_all_carry_load() -> None:
    layout = chosen([node(2), node(1), node(3)])
    assert (clients(layout), layout.target.node_id) == (["id1", "id2", "id3"], "id1")


def test_a_named_target_host_carries_no_load_unless_it_is_alone() -> None:
    placement = Placement(target_resource="gpu_host")
    gpu = node(3, resources={"gpu_host": 1.0})
    layout = chosen([node(1), node(2), gpu], placement)
    assert (clients(layout), layout.target.node_id) == (["id1", "id2"], "id3")
    assert clients(chosen([gpu], placement)) == ["id3"]


def test_the_nodes_that_may_carry_load_are_known_without_a_scenario() -> None:
    host = node(1, resources={"CPU": 1.0, "gpu_host": 1.0})
    nodes = [node(3), host, node(2)]
    assert able_nodes(nodes, Placement()) == [host, nodes[2], nodes[0]]
    assert able_nodes(nodes, Placement(target_resource="gpu_host")) == [nodes[2], nodes[0]]
    assert able_nodes(nodes, Placement(client_resource="gpu_host")) == [host]
    assert able_nodes([host], Placement(target_resource="gpu_host")) == [host]
    assert able_nodes(nodes, Placement(client_resource="none has it")) == []


def test_a_target_host_that_is_named_as_a_client_too_may_carry_load() -> None:
    placement = Placement(target_resource="gpu_host", client_resource="bench")
    both = node(2, resources={"gpu_host": 1.0, "bench": 1.0})
    layout = chosen([node(1), both], placement)
    assert (clients(layout), layout.target.node_id) == (["id2"], "id2")


def test_labels_choose_as_resources_do_and_all_must_fit() -> None:
    placement = Placement(client_labels={"role": "client", "zone": "a"}, target_labels={"role": "target"})
    nodes = [
        node(1, labels={"role": "head"}),
        node(2, labels={"role": "client", "zone": "a"}),
        node(3, labels={"role": "client", "zone": "b"}),
        node(4, labels={"role": "target"}),
    ]
    layout = chosen(nodes, placement)
    assert (clients(layout), layout.target.node_id) == (["id2"], "id4")


def test_a_resource_that_is_used_up_does_not_carry() -> None:
    placement = Placement(client_resource="bench")
    layout = chosen([node(1, resources={"bench": 0.0}), node(2, resources={"bench": 0.5})], placement)
    assert clients(layout) == ["id2"]


def test_as_many_client_nodes_as_asked_and_no_more() -> None:
    layout = chosen([node(number) for number in range(1, 7)], load=Load(client_nodes=2))
    assert (clients(layout), layout.notes) == (["id1", "id2"], ())


def test_o_r3_fewer_client_nodes_than_asked_is_said_with_both_numbers() -> None:
    with pytest.raises(ClusterError, match="asked 4 client nodes, 1 available") as caught:
        chosen([node(1)], load=Load(client_nodes=4))
    assert caught.value.exit_code == EXIT_CLUSTER
    assert "load.client_nodes_min" in str(caught.value)


def test_o_r3_a_target_host_that_is_not_there_is_said_with_what_is_there() -> None:
    with pytest.raises(
        ClusterError, match=r"the target host with resource 'gpu-host' is not in the cluster"
    ) as caught:
        chosen([node(1), node(2)], Placement(target_resource="gpu-host"))
    text = str(caught.value)
    assert "2 nodes: host1 (10.0.0.1), host2 (10.0.0.2)" in text
    assert """--resources '{"gpu-host": 1}'""" in text


def test_o_r3_both_are_said_at_once() -> None:
    with pytest.raises(ClusterError) as caught:
        chosen([node(1)], Placement(target_resource="gpu-host"), Load(client_nodes=4))
    first, second = str(caught.value).splitlines()
    assert "'gpu-host' is not in the cluster" in first
    assert "asked 4 client nodes, 1 available" in second


def test_the_way_out_for_labels_names_them() -> None:
    with pytest.raises(ClusterError, match="label raybench=target") as caught:
        chosen([node(1)], Placement(target_labels={"raybench": "target"}))
    assert "--labels raybench=target" in str(caught.value)


def test_no_node_with_the_client_resource_is_an_error_that_names_it() -> None:
    with pytest.raises(ClusterError, match="asked 1 client nodes with resource 'bench', 0 available"):
        chosen([node(1)], Placement(client_resource="bench"))


def test_o_r3_fewer_nodes_are_taken_only_where_the_scenario_allows_it_and_noted() -> None:
    load = Load(client_nodes=4, client_nodes_min=2)
    layout = chosen([node(1), node(2), node(3)], load=load)
    assert clients(layout) == ["id1", "id2", "id3"]
    assert layout.notes == ("asked 4 client nodes, goes on with 3 (load.client_nodes_min 2)",)
    with pytest.raises(ClusterError, match="asked 4 client nodes, 1 available"):
        chosen([node(1)], load=load)


def test_o_r3_the_least_number_alone_is_what_was_asked_where_there_are_fewer() -> None:
    with pytest.raises(ClusterError, match="asked 3 client nodes, 2 available"):
        chosen([node(1), node(2)], load=Load(client_nodes_min=3))
    layout = chosen([node(number) for number in range(1, 5)], load=Load(client_nodes_min=3))
    assert (clients(layout), layout.notes) == (["id1", "id2", "id3", "id4"], ())


def test_an_own_node_that_is_not_listed_is_an_error() -> None:
    with pytest.raises(ClusterError, match="own node"):
        chosen([node(2)])


placements = st.builds(
    Placement,
    client_resource=st.sampled_from([None, "bench"]),
    target_resource=st.sampled_from([None, "gpu"]),
    client_labels=st.sampled_from([{}, {"zone": "a"}]),
)
node_kinds = st.tuples(st.booleans(), st.booleans(), st.sampled_from(["a", "b"]))


@given(
    kinds=st.lists(node_kinds, min_size=1, max_size=6),
    placement=placements,
    asked=st.none() | st.integers(1, 6),
    least=st.none() | st.integers(1, 6),
)
def test_a_layout_keeps_what_was_asked_or_there_is_none(
    kinds: list[tuple[bool, bool, str]], placement: Placement, asked: int | None, least: int | None
) -> None:
    nodes = []
    for number, (bench, gpu, zone) in enumerate(kinds, start=1):
        resources = {name: 1.0 for name, there in (("bench", bench), ("gpu", gpu)) if there}
        nodes.append(node(number, resources=resources, labels={"zone": zone}))
    if asked is not None and least is not None and least > asked:
        least = asked
    load = Load(client_nodes=asked, client_nodes_min=least)
    try:
        layout = chosen(nodes, placement, load)
    except ClusterError:
        return
    wanted: Any = asked if asked is not None else len(layout.clients)
    assert len(layout.clients) == len(set(clients(layout))) >= 1
    assert len(layout.clients) <= wanted
    assert len(layout.clients) >= min(wanted, least or wanted)
    assert bool(layout.notes) == (len(layout.clients) < wanted)
    for client in layout.clients:
        assert placement.client_resource is None or placement.client_resource in client.resources
        assert placement.client_labels.items() <= dict(client.labels).items()
    assert placement.target_resource is None or placement.target_resource in layout.target.resources


def test_workers_are_seated_by_number_or_by_the_streams_and_cores_of_a_node() -> None:
    two = [node(1, resources={"CPU": 2.0}), node(2, resources={"CPU": 8.0})]
    assert [n.node_id for n in seat_workers(two, 2, 1)] == ["id1", "id1", "id2", "id2"]
    assert [n.node_id for n in seat_workers(two, "auto", 64)] == ["id1", "id2"]
    assert [n.node_id for n in seat_workers(two, "auto", 2048)] == ["id1", "id1", *["id2"] * 4]
    assert len(seat_workers([node(3, resources={"other": 1.0})], "auto", 4096)) == 1
