"""More source addresses and more targets, over real sockets, with both clients."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fault_server import Asked, FaultServer, Script, Wire, answer
from rig import Fleet, order, run

from raybench.errors import ConfigError
from raybench.load.order import Order

SOURCES = ("127.0.0.2", "127.0.0.3")


def sending_from(whole: Order, *sources: str) -> Order:
    return replace(whole, load=whole.load.model_copy(update={"source_addresses": list(sources)}))


class Gate:
    """Answers nobody until `count` requests are open over all its servers: so all connections are in use."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._arrived = 0
        self._open = asyncio.Event()
        self.first = FaultServer(self._script_of(0))
        self.second = FaultServer(self._script_of(1))

    def _script_of(self, number: int) -> Script:
        async def script(_asked: Asked, wire: Wire) -> None:
            self._arrived += 1
            if self._arrived >= self._count:
                self._open.set()
            await self._open.wait()
            await answer((self.first, self.second)[number], wire)

        return script


@pytest.mark.parametrize("workers", [1, 3, 12])
def test_requests_are_spread_evenly_over_sources_and_targets(tmp_path: Path, workers: int) -> None:
    async def scene() -> Counter[tuple[str, str]]:
        gate = Gate(12)
        async with gate.first as first, gate.second as second:
            fleet = Fleet(tmp_path, workers)
            whole = order(first.url, requests=12)
            endpoint = replace(whole.endpoint, load_urls=(second.url,))
            await fleet.carry_out(sending_from(replace(whole, endpoint=endpoint), *SOURCES), 12)
            assert {row["outcome"] for row in fleet.rows()} == {"ok"}
            return Counter((server.url, asked.peer) for server in (first, second) for asked in server.asked)

    counted = run(scene())
    assert sorted(counted.values()) == [3, 3, 3, 3]
    assert {peer for _, peer in counted} == set(SOURCES)


def test_each_target_is_asked_under_its_own_name(tmp_path: Path) -> None:
    async def scene() -> None:
        gate = Gate(2)
        async with gate.first as first, gate.second as second:
            fleet = Fleet(tmp_path, 1)
            whole = order(first.url, requests=2)
            endpoint = replace(whole.endpoint, load_urls=(second.url + "/behind",))
            await fleet.carry_out(replace(whole, endpoint=endpoint), 2)
            for server, path in ((first, "/generate"), (second, "/behind/generate")):
                assert [asked.path for asked in server.asked] == [path]
                assert [f"http://{asked.headers['host']}" for asked in server.asked] == [server.url]

    run(scene())


def test_a_source_that_is_not_this_hosts_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async def scene() -> int:
        gate = Gate(1)
        async with gate.first as server:
            fleet = Fleet(tmp_path, 1)
            with pytest.raises(ConfigError, match=r"none of these is an address of"):
                await fleet.carry_out(sending_from(order(server.url), "203.0.113.7"), 1)
            return server.connections

    assert run(scene()) == 0


def test_a_target_that_refuses_fails_its_own_requests_only(tmp_path: Path) -> None:
    async def scene(deaf: str) -> Counter[str]:
        async with Gate(2).first as server:
            fleet = Fleet(tmp_path, 1)
            whole = order(server.url, requests=4)
            endpoint = replace(whole.endpoint, load_urls=(deaf,))
            await fleet.carry_out(sending_from(replace(whole, endpoint=endpoint), *SOURCES), 4)
            return Counter(str(row["outcome"]) for row in fleet.rows())

    with socket.socket() as held:  # bound, so that nobody else takes the port; nobody listens
        held.bind(("127.0.0.1", 0))
        deaf = f"http://127.0.0.1:{held.getsockname()[1]}"
        assert run(scene(deaf)) == {"ok": 2, "connect_error": 2}
