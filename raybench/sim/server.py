"""Starts and ends the simulated engine: one process, one event loop, SGLang's routes over aiohttp."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TextIO

import psutil
import uvloop
from aiohttp import web
from aiohttp.typedefs import Handler

from raybench.scenario.sim_block import Sim
from raybench.sim.answers import Answers
from raybench.sim.clock import VirtualClock
from raybench.sim.control import Control
from raybench.sim.driver import Driver
from raybench.sim.engine import Engine
from raybench.sim.faults import Faults
from raybench.sim.info import Identity
from raybench.sim.preload import Preload
from raybench.sim.profiles import make_profile
from raybench.sim.replies import json_reply
from raybench.sim.request import Request
from raybench.sim.serverlog import ServerLog
from raybench.sim.tokens import tokenize

#: As uvicorn under SGLang: a connection that idles longer is closed.
KEEPALIVE_S = 5.0
BODY_BYTES_MAX = 256 * 1024 * 1024
BACKLOG = 4096
PARENT_POLL_S = 0.5
#: The type that aiohttp gives to an answer of which nothing was said.
UNNAMED = "application/octet-stream"
#: Answers under way are given this long when the server is told to stop.
SHUTDOWN_S = 0.2


def serve(
    sim: Sim,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    preload: Preload | None = None,
    log: TextIO = sys.stderr,
    parent_pid: int | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until the process `parent_pid` is gone. Blocks.

    port 0 takes a free one. `ready` is called with the URL once connections are accepted. Raises OSError
    if the address cannot be bound.
    """
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sim, host, port, preload, log, parent_pid, ready))


async def _serve(
    sim: Sim,
    host: str,
    port: int,
    preload: Preload | None,
    log: TextIO,
    parent_pid: int | None,
    ready: Callable[[str], None],
) -> None:
    async with serving(sim, host, port, preload=preload, log=log) as url:
        gc.collect()
        gc.freeze()
        ready(url)
        await told_to_stop(parent_pid)


@asynccontextmanager
async def serving(
    sim: Sim, host: str = "127.0.0.1", port: int = 0, *, preload: Preload | None = None, log: TextIO = sys.stderr
) -> AsyncIterator[str]:
    """A simulated engine on the running event loop while the block lasts; gives its URL.

    Raises OSError if the address cannot be bound.
    """
    began_s = time.monotonic()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    port = listener.getsockname()[1]
    profile, faults = make_profile(sim), Faults(sim.faults, preload)
    server_log = ServerLog(log, profile, faults.dp_ranks)
    compression = sim.time_compression
    engine = Engine(profile, faults, seed=sim.seed, compression=compression, log=server_log.scheduler)
    driver = Driver(engine, VirtualClock(compression))
    driver.warm_up(Request("warmup", tokenize("The capital city of France is"), 8, stream=False))
    startup_s = time.monotonic() - began_s
    identity = Identity(sim, host, port, os.getpid(), secrets.randbelow(2**30), startup_s)
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


async def told_to_stop(parent_pid: int | None) -> None:
    """Returns on SIGTERM, on SIGINT, and when the parent is gone."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    parent = None if parent_pid is None else _parent(parent_pid)
    while not stop.is_set():
        if parent_pid is not None and (parent is None or not _alive(parent)):
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), None if parent_pid is None else PARENT_POLL_S)


def _parent(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _alive(process: psutil.Process) -> bool:
    """psutil compares the start time too, so a process that took over the number does not count."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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


def raise_file_limit() -> None:
    """One descriptor a stream: take what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
