"""The simulated engine as a server: SGLang's routes over aiohttp, one process, one event loop.

`serve` runs until it is told to stop. Beside SGLang's routes there are two that no engine has: /sim/gpus
(device memory, in place of NVML) and /sim/state (what really arrived, for tests).
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

import numpy as np
import orjson
from aiohttp import web

from raybench.sim import info, metrics
from raybench.sim.asking import Ask, Refused, read_chat, read_completion, read_generate, wants_stream
from raybench.sim.driver import Driver
from raybench.sim.generate_wire import DONE, GenerateWire, error_event
from raybench.sim.nvml import read_devices
from raybench.sim.openai_wire import Kind, OpenAIWire, error_body
from raybench.sim.request import Request

#: Like uvicorn's under SGLang: a connection that idles longer is closed.
KEEPALIVE_S = 5.0
BODY_BYTES_MAX = 256 * 1024 * 1024
HEALTH_TIMEOUT_S = 20.0
#: SGLang's /health looks for an answer only after this long.
HEALTH_PAUSE_S = 1.0
FLUSH_POLL_S = 0.01

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
FLUSH_FAILED = "Flush cache failed.\n"
FLUSH_TIMED_OUT = "Timed out waiting for idle state."
FLUSH_IN_PROGRESS = "Another flush_cache is already in progress."

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """The routes of one simulated engine. `identity` is known once the port is."""

    def __init__(self, driver: Driver, identity: info.Identity) -> None:
        self._driver = driver
        self._engine = driver.engine
        self._clock = driver.clock
        self._identity = identity
        self._flushing = False
        speculation = driver.engine.profile.speculation
        drafts = 0 if speculation is None else speculation.draft_tokens - 1
        self._wire = GenerateWire(driver.engine.ring, driver.clock, drafts=drafts)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_like_fastapi])
        both = [("/flush_cache", self.flush), ("/health", self.health), ("/health_generate", self.health)]
        for path, handler in both:
            app.router.add_get(path, handler)
        app.router.add_post("/flush_cache", self.flush)
        for path, handler in (
            ("/ping", self.alive),
            ("/ready", self.alive),
            ("/v1/models", self.models),
            ("/v1/loads", self.loads),
            ("/server_info", self.server_info),
            ("/get_server_info", self.server_info),
            ("/model_info", self.model_info),
            ("/get_model_info", self.model_info),
            ("/metrics", self.metrics),
            ("/sim/gpus", self.gpus),
            ("/sim/state", self.state),
        ):
            app.router.add_get(path, handler)
        app.router.add_post("/generate", self.generate)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/abort_request", self.abort_request)
        return app
