"""The routes of the simulated engine that do not generate: flush, abort, facts, counters; and two that no
engine has: `/sim/gpus` (device memory, in place of NVML) and `/sim/state` (what arrived, for tests)."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Callable

import orjson
from aiohttp import web

from raybench.sim import info, metrics
from raybench.sim.driver import Driver
from raybench.sim.replies import json_reply, text_reply

FLUSH_POLL_S = 0.005

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
FLUSH_FAILED = "Flush cache failed.\n"
FLUSH_TIMED_OUT = "Timed out waiting for idle state."
FLUSH_IN_PROGRESS = "Another flush_cache is already in progress."


class Control:
    """`log` takes lines of the HTTP side."""

    def __init__(self, driver: Driver, identity: info.Identity, log: Callable[[str], None]) -> None:
        self._log = log
        self._driver = driver
        self._engine = driver.engine
        self._clock = driver.clock
        self._identity = identity
        self._faults = driver.engine.faults
        self._flush_waits = False
        self._first_page = ""

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/flush_cache", self.flush),
            web.post("/flush_cache", self.flush),
            web.post("/abort_request", self.abort_request),
            web.get("/ping", self.alive),
            web.get("/ready", self.alive),
            web.get("/v1/models", self.models),
            *self._named_by_version(),
            web.get("/get_server_info", self.get_server_info),
            web.get("/get_model_info", self.get_model_info),
            web.get("/metrics", self.metrics),
            web.get("/sim/gpus", self.gpus),
            web.get("/sim/state", self.state),
        ]

    def _named_by_version(self) -> list[web.AbstractRouteDef]:
        """Routes of 0.5.23, or those of 0.5.3 in their place."""
        if self._faults.old_names:
            return [web.get("/get_load", self.get_load)]
        return [
            web.get("/v1/loads", self.loads),
            web.get("/server_info", self.server_info),
            web.get("/model_info", self.model_info),
            web.post("/hicache/storage-backend/clear", self.clear_storage),
        ]

    async def flush(self, http: web.Request) -> web.Response:
        """With `timeout` it waits that long for idle; one such wait at a time."""
        if not self._faults.flush_exists:
            raise web.HTTPNotFound
        if self._faults.flush_hangs:
            await asyncio.Event().wait()
        try:
            timeout_s = float(http.query.get("timeout", "0"))
        except ValueError:
            timeout_s = -1.0
        if self._faults.old_names:
            timeout_s = 0.0  # the parameter came later
        if not (math.isfinite(timeout_s) and timeout_s >= 0):
            return text_reply("timeout must be a number of seconds, 0 or more", 400)
        if self._flush_waits:
            return text_reply(FLUSH_IN_PROGRESS, 400)
        self._flush_waits = True
        try:
            deadline_s = time.monotonic() + timeout_s
            while not self._driver.idle():
                if timeout_s == 0:
                    break
                if time.monotonic() >= deadline_s:
                    self._engine.tally.flush_timed_out()
                    return text_reply(FLUSH_TIMED_OUT, 400)
                await asyncio.sleep(FLUSH_POLL_S)
            done = self._engine.flush(self._clock.now())
        finally:
            self._flush_waits = False
        return text_reply(FLUSHED) if done else text_reply(FLUSH_FAILED, 400)

    async def abort_request(self, http: web.Request) -> web.Response:
        """200 for ids that are not there too. One that is there means every id that begins with it."""
        try:
            body = orjson.loads(await http.read())
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            return json_reply({"error": "the body must be a JSON object"}, 400)
        rid = body.get("rid")
        if body.get("abort_all") is True:
            self._driver.abort("")
        elif isinstance(rid, str) and rid in self._driver:
            self._driver.abort(rid)
        return web.Response()

    async def clear_storage(self, _: web.Request) -> web.Response:
        """200 whenever there is a hierarchical cache, whatever became of the backend's own clear."""
        if not self._engine.pool.host.capacity:
            return text_reply("Hierarchical cache is not enabled.\n", 400)
        return text_reply("Hierarchical cache storage backend cleared.\n")

    async def alive(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._faults.never_alive else 200)

    async def models(self, _: web.Request) -> web.Response:
        return json_reply(info.models(self._engine, time.time()))

    async def get_load(self, _: web.Request) -> web.Response:
        if self._faults.queue_gone:
            raise web.HTTPNotFound
        return json_reply(info.get_load(self._engine))

    async def loads(self, http: web.Request) -> web.Response:
        if self._faults.queue_gone:
            raise web.HTTPNotFound
        include = frozenset(http.query.get("include", "all").split(","))
        return json_reply(info.loads(self._engine, time.time(), include))

    async def server_info(self, _: web.Request) -> web.Response:
        return json_reply(info.server_info(self._engine, self._identity))

    async def model_info(self, _: web.Request) -> web.Response:
        return json_reply(info.model_info(self._engine))

    async def get_server_info(self, http: web.Request) -> web.Response:
        self._deprecated("/get_server_info", "/server_info")
        return await self.server_info(http)

    async def get_model_info(self, http: web.Request) -> web.Response:
        self._deprecated("/get_model_info", "/model_info")
        return await self.model_info(http)

    def _deprecated(self, path: str, successor: str) -> None:
        if not self._faults.old_names:
            self._log(
                f"Endpoint '{path}' is deprecated and will be removed in a future version. "
                f"Please use '{successor}' instead."
            )

    async def metrics(self, _: web.Request) -> web.Response:
        if self._faults.metrics_gone:
            raise web.HTTPNotFound
        page = metrics.render(self._engine, self._identity.pid)
        if self._faults.metrics_frozen:
            page = self._first_page = self._first_page or page
        response = web.Response(body=page.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})
        response.enable_chunked_encoding()
        return response

    async def gpus(self, _: web.Request) -> web.Response:
        return json_reply(info.gpus(self._engine))

    async def state(self, _: web.Request) -> web.Response:
        """The truth, which raybench's own numbers are compared with in tests."""
        return json_reply(
            {
                "in_flight": self._engine.in_flight,
                "in_flight_max": self._engine.in_flight_max,
                "running_max": self._engine.running_max,
                "arrivals": [dataclasses.asdict(arrival) for arrival in self._driver.arrivals],
            }
        )
