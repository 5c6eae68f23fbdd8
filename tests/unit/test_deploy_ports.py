"""Ports that are still free when a server comes to take them."""

import socket

import pytest

from raybench.deploy import ports
from raybench.deploy.ports import free_ports


def test_ports_are_distinct_and_none_that_the_system_gives_away_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "local_ports", lambda: [10_400, 65_400])
    found = free_ports(100)
    assert len(set(found)) == 100
    assert not [port for port in found if 10_400 <= port <= 65_400]


def test_a_port_that_somebody_has_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        taken = held.getsockname()[1]
        monkeypatch.setattr(ports, "_PORTS", range(taken, taken + 1))
        assert free_ports(1) == []


def test_where_the_system_may_give_away_every_port_any_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "local_ports", lambda: [1024, 65_535])
    assert len(free_ports(4)) == 4
