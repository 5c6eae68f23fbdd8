"""Which client carries an order: the cheap one wherever it can, the plain one elsewhere.

Runs in a load worker. The choice is written into the records' metadata (`client`), since stamps of the
plain client are taken when a task wakes and not where bytes arrive.
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import urlsplit

from raybench.engines.contract import Decoder
from raybench.load.exchange import Exchange
from raybench.load.order import Order
from raybench.load.plain_client import PlainClient
from raybench.load.wire_client import WireClient
from raybench.records.clock import Clock


class Client(Protocol):
    """Sends the requests of one order."""

    name: str

    async def open(self, count: int) -> None:
        """Do ahead of the start what can be done: open `count` connections."""

    async def send(self, path: str, body: bytes, decoder: Decoder) -> Exchange:
        """One request, to its end (`exchange.send_with_retry`). Never raises for what network or server do."""

    def unread(self) -> list[int]:
        """Bytes that wait in the receive queues of a sample of the requests under way; empty = not known."""

    async def close(self) -> None: ...


def make_client(order: Order, clock: Clock) -> Client:
    """`wire` for http URLs, `plain` for https and where the order asks for it."""
    if order.load.client == "plain" or urlsplit(order.endpoint.url).scheme != "http":
        return PlainClient(order, clock)
    return WireClient(order, clock)
