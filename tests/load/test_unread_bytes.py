"""What lies in the receive queues when the client looks, over real sockets."""

from __future__ import annotations

import asyncio
import os

from fault_server import DONE, Asked, FaultServer, Wire, generate_event
from rig import order, run, send, until

from raybench.load.client import make_client
from raybench.load.wire_client import UNREAD_SAMPLE
from raybench.records.clock import AnchoredClock


def test_bytes_that_nobody_has_read_are_found_and_gone_once_they_are_read(each_client: str) -> None:
    def unread_of(count: int) -> list[int]:
        return [count] if each_client == "wire" else []

    async def scene() -> None:
        read = unread_of(0)
        fd, first_sent, go_on = [0], asyncio.Event(), asyncio.Event()

        async def script(_asked: Asked, wire: Wire) -> None:
            await wire.head()
            await wire.chunk(generate_event(1))
            fd[0] = wire._writer.get_extra_info("socket").fileno()
            first_sent.set()
            await go_on.wait()
            await wire.chunk(generate_event(2, finish="length") + DONE)
            await wire.end()

        async with FaultServer(script) as server:
            one = order(server.url)
            client = make_client(one, AnchoredClock())
            assert client.unread() == []
            sending = asyncio.ensure_future(send(client, one))
            await first_sent.wait()
            await until(lambda: client.unread() == read)
            # Written past the loop, which has no turn between this and the look.
            comment = b": nothing\n\n"
            os.write(fd[0], f"{len(comment):x}\r\n".encode() + comment + b"\r\n")
            framed = len(comment) + len(b"b\r\n\r\n")
            looks = (client.unread() for _ in range(100_000))  # until the kernel has brought it over
            assert next((found for found in looks if found != read), read) == unread_of(framed)
            await until(lambda: client.unread() == read)
            go_on.set()
            _, row = await sending
            assert row["outcome"] == "ok"
            assert client.unread() == []
            await client.close()

    run(scene())


def test_all_streams_are_looked_at_by_turns(each_client: str) -> None:
    count = UNREAD_SAMPLE + 5

    async def scene() -> None:
        go_on = asyncio.Event()

        async def script(_asked: Asked, wire: Wire) -> None:
            await go_on.wait()
            await wire.plain("503 Busy", b"later")

        async with FaultServer(script) as server:
            one = order(server.url, requests=count, slots=count)
            client = make_client(one, AnchoredClock())
            sending = [asyncio.ensure_future(send(client, one, ticket)) for ticket in range(count)]
            await until(lambda: server.in_flight == count)
            looks = [len(client.unread()) for _ in range(2)]
            assert looks == ([UNREAD_SAMPLE] * 2 if each_client == "wire" else [0, 0])
            go_on.set()
            await asyncio.gather(*sending)
            await client.close()

    run(scene())
