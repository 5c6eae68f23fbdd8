"""How a server of this room lives as a process: until it is told to stop, or its parent is gone."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

import psutil
import uvloop

#: Connections that wait to be accepted.
BACKLOG = 4096
PARENT_POLL_S = 0.5


def say_ready(url: str) -> None:
    """The line that whoever started the process waits for."""
    print(json.dumps({"ready": True, "url": url, "pid": os.getpid()}), flush=True)


def run(
    server: AbstractAsyncContextManager[str],
    *,
    parent_pid: int | None = None,
    ready: Callable[[str], None] = say_ready,
) -> None:
    """Serve until SIGTERM or SIGINT, or until the process `parent_pid` is gone. Blocks.

    server: gives its URL once it accepts connections, which `ready` is called with; what it raises on its way
    there comes through.
    """
    # One descriptor a stream: take what the system allows.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(server, parent_pid, ready))


async def _serve(
    server: AbstractAsyncContextManager[str], parent_pid: int | None, ready: Callable[[str], None]
) -> None:
    async with server as url:
        gc.collect()
        gc.freeze()
        ready(url)
        await _told_to_stop(parent_pid)


async def _told_to_stop(parent_pid: int | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    parent = None if parent_pid is None else _process(parent_pid)
    while not stop.is_set():
        if parent_pid is not None and (parent is None or not _alive(parent)):
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), None if parent_pid is None else PARENT_POLL_S)


def _process(pid: int) -> psutil.Process | None:
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
