"""Puts the simulated engine together and serves it: one event loop, SGLang's routes over aiohttp, SGLang's log."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TextIO

from aiohttp import web
from aiohttp.typedefs import Handler

from raybench.scenario.sim_block import Sim
from raybench.sim.answers import Answers
from raybench.sim.clock import VirtualClock
from raybench.sim.control import Control
from raybench.sim.driver import Driver
from raybench.sim.engine import Engine
from raybench.sim.faults import Faults, Preload
from raybench.sim.info import Identity
from raybench.sim.process import BACKLOG
from raybench.sim.profiles import Profile, make_profile
from raybench.sim.replies import json_reply
from raybench.sim.request import Request
from raybench.sim.tokens import tokenize

#: As uvicorn under SGLang: a connection that idles longer is closed.
KEEPALIVE_S = 5.0
BODY_BYTES_MAX = 256 * 1024 * 1024
#: The type that aiohttp gives to an answer of which nothing was said.
UNNAMED = "application/octet-stream"
#: Answers under way are given this long when the server is told to stop.
SHUTDOWN_S = 0.2


class ServerLog:
    """The engine's log. Scheduler lines come once for each pipeline stage, with the tags of the ranks that do."""

    def __init__(self, stream: TextIO, profile: Profile, dp_ranks: int = 1) -> None:
        self._stream = stream
        tensor = " TP0" if profile.tensor_parallel > 1 else ""
        stages = profile.pipeline_stages
        self._tags = [f" PP{stage}{tensor}" for stage in range(stages)] if stages > 1 else [tensor]
        self._groups = [f" DP{rank}" for rank in range(dp_ranks)] if dp_ranks > 1 else [""]

    def scheduler(self, line: str, rank: int = 0) -> None:
        """A line of the scheduler of one data-parallel rank, from each of its ranks that print statistics."""
        self._write([self._groups[rank] + tag for tag in self._tags], line)

    def front(self, line: str) -> None:
        """A line of the HTTP side."""
        self._write([""], line)

    def _write(self, tags: list[str], line: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self._stream.write("".join(f"[{stamp}{tag}] {line}\n" for tag in tags))
        self._stream.flush()


@asynccontextmanager
async def serving(
    sim: Sim, host: str = "127.0.0.1", *, preload: Preload | None = None, log: TextIO = sys.stderr
) -> AsyncIterator[str]:
    """A simulated engine on the running event loop while the block lasts; gives its URL.

    Raises OSError if the address (`sim.port` 0: a free port) cannot be bound, ConfigError as `make_profile`.
    """
    began_s = time.monotonic()
    profile, faults = make_profile(sim), Faults(sim.faults, preload)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, sim.port), family=family, backlog=BACKLOG)
    port = listener.getsockname()[1]
    server_log = ServerLog(log, profile, faults.dp_ranks)
    compression = sim.time_compression
    engine = Engine(profile, faults, seed=sim.seed, compression=compression, log=server_log.scheduler)
    driver = Driver(engine, VirtualClock(compression))
    driver.warm_up(Request("warmup", tokenize("The capital city of France is"), 8, stream=False))
    startup_s = time.monotonic() - began_s
    identity = Identity(sim.incremental, host, port, os.getpid(), secrets.randbelow(2**30), startup_s)
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_unknown_paths])
    app.on_response_prepare.append(_front(server_log))
    app.add_routes(Answers(driver, server_log.front, incremental=sim.incremental).routes())
    app.add_routes(Control(driver, identity, server_log.front).routes())
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        shutdown_timeout=SHUTDOWN_S,
        handler_cancellation=True,
    )
    await runner.setup()
    accepting = None
    if faults.slow_accept_s:
        accepting = asyncio.ensure_future(_accept_slowly(listener, runner, faults.slow_accept_s))
    else:
        await web.SockSite(runner, listener, backlog=BACKLOG).start()
    server_log.front("The server is fired up and ready to roll!")
    try:
        yield f"http://[{host}]:{port}" if family == socket.AF_INET6 else f"http://{host}:{port}"
    finally:
        if accepting is not None:
            accepting.cancel()
            listener.close()
        await runner.cleanup()
        driver.close()


async def _accept_slowly(listener: socket.socket, runner: web.AppRunner, pause_s: float) -> None:
    """One connection after the other, as a front end that is short of time takes them."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    server = runner.server
    assert server is not None
    while True:
        connection, _ = await loop.sock_accept(listener)
        await asyncio.sleep(pause_s)
        await loop.connect_accepted_socket(server, connection)


@web.middleware
async def _unknown_paths(request: web.Request, handler: Handler) -> web.StreamResponse:
    """FastAPI's answer to them."""
    try:
        return await handler(request)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        return json_reply({"detail": error.reason}, error.status)


def _front(log: ServerLog) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """What uvicorn and SGLang's middleware add to every answer as it begins: headers, and an access line."""

    async def front(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = "uvicorn"
        response.headers["Vary"] = "Origin"
        if response.content_type == UNNAMED:
            response.headers.popall("Content-Type", None)
        peer = request.transport.get_extra_info("peername") if request.transport else None
        client = f"{peer[0]}:{peer[1]}" if peer else "-"
        line = f'{client} - "{request.method} {request.path_qs} HTTP/1.1"'
        log.front(f"INFO:     {line} {response.status} {response.reason}")

    return front
