"""The routes of the simulated engine that generate: `/generate`, OpenAI's two, and `/health`."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import numpy as np
from aiohttp import web

from raybench.scenario.sim_block import AnswerFault
from raybench.sim.asking import Ask, Refused, read_chat, read_completion, read_generate, read_object
from raybench.sim.driver import Driver
from raybench.sim.generate_wire import DONE, GenerateWire, error_event
from raybench.sim.openai_wire import Kind, OpenAIWire
from raybench.sim.replies import json_reply, message_reply, object_reply, refusal_object, validation_reply
from raybench.sim.request import UNAVAILABLE, Request
from raybench.sim.spoil import COMMENT, Piece, Stream

EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
#: SGLang's /health looks for a token only after this long, and gives up after the second.
HEALTH_PAUSE_S, HEALTH_TIMEOUT_S = 1.0, 20.0

#: Bytes of the events that show output tokens [begin, now).
Render = Callable[[int], bytes]


class Answers:
    """`incremental`: events of /generate hold only what is new. `log` takes lines of the HTTP side."""

    def __init__(self, driver: Driver, log: Callable[[str], None], *, incremental: bool) -> None:
        self._driver = driver
        self._log = log
        self._faults = driver.engine.faults
        self._profile = driver.engine.profile
        self._incremental = incremental
        self._wire = GenerateWire(driver.engine.ring, driver.clock, self._faults)

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.post("/generate", self.generate),
            web.put("/generate", self.generate),
            web.post("/v1/completions", self.completions),
            web.post("/v1/chat/completions", self.chat),
            web.get("/health", self.health),
            web.get("/health_generate", self.health),
        ]

    async def generate(self, http: web.Request) -> web.StreamResponse:
        body: dict[str, object] = {}
        try:
            body = read_object(await http.read())
            request = self._accept(read_generate(body, self._profile)).request
        except Refused as refused:
            return await self._refuse_generate(http, refused, stream=body.get("stream") is True)
        fate = self._faults.fate()
        if (spoiled := _spoiled_at_once(http, request, fate)) is not None:
            return spoiled
        if not request.stream:
            await self._whole(request)
            if (refusal := request.refusal) is not None:
                if refusal.status == UNAVAILABLE:
                    return json_reply(refusal_object(refusal), UNAVAILABLE)
                return message_reply(refusal.message or "")
            return web.Response(body=self._wire.body(request), content_type="application/json")

        def render(begin: int) -> bytes:
            return self._wire.event(request, begin if self._incremental else 0, first=begin == 0)

        return await self._stream(http, request, render, fate, at_once=True)

    async def completions(self, http: web.Request) -> web.StreamResponse:
        return await self._openai(http, "completion")

    async def chat(self, http: web.Request) -> web.StreamResponse:
        return await self._openai(http, "chat")

    async def health(self, http: web.Request) -> web.Response:
        """On an idle engine this generates one token; under load any answer of the engine will do."""
        began_s = time.monotonic()
        probe = Request(f"HEALTH_CHECK_{uuid4().hex}", np.zeros(1, np.uint32), 1, stream=False, internal=True)
        if self._driver.engine.in_flight == 0:
            await self._whole(probe)
        while self._driver.last_output_s < began_s or time.monotonic() - began_s < HEALTH_PAUSE_S:
            if time.monotonic() - began_s > HEALTH_TIMEOUT_S:
                return web.Response(status=503)
            await asyncio.sleep(HEALTH_PAUSE_S / 10)
        return web.Response()

    async def _openai(self, http: web.Request, kind: Kind) -> web.StreamResponse:
        read = read_chat if kind == "chat" else read_completion
        try:
            ask = self._accept(read(read_object(await http.read()), self._profile))
        except Refused as refused:
            if refused.shape == "validation":
                return validation_reply(refused.message)
            return object_reply(refused.message, "BadRequestError")
        request = ask.request
        fate = self._faults.fate()
        if (spoiled := _spoiled_at_once(http, request, fate)) is not None:
            return spoiled
        wire = OpenAIWire(kind, ask, self._driver.engine.ring, self._faults, int(time.time()))
        if request.stream:
            return await self._stream(http, request, wire.chunks, fate, at_once=False)
        await self._whole(request)
        if (refusal := request.refusal) is not None:
            return json_reply(refusal_object(refusal), refusal.status or 400)
        return web.Response(body=wire.answer(), content_type="application/json")

    def _accept(self, ask: Ask) -> Ask:
        if ask.request.rid in self._driver:
            raise Refused(f"Duplicate request ID detected: {ask.request.rid}")
        return ask

    async def _refuse_generate(self, http: web.Request, refused: Refused, *, stream: bool) -> web.StreamResponse:
        if refused.shape == "validation":
            return validation_reply(refused.message)
        self._log(f"[http_server] Error: {refused.message}")
        if stream:
            response = web.StreamResponse(headers=EVENT_STREAM)
            await response.prepare(http)
            await _send(http, response, Piece(error_event(refused.message) + DONE, "end"))
            return response
        return message_reply(refused.message)

    async def _whole(self, request: Request) -> None:
        """Wait for the end of a request. Ended early if the client goes away."""
        news = self._driver.submit(request)
        try:
            while request.finish is None:
                await news.wait()
                news.clear()
        finally:
            self._driver.leave(request)

    async def _stream(
        self, http: web.Request, request: Request, render: Render, fate: AnswerFault | None, *, at_once: bool
    ) -> web.StreamResponse:
        """One event for all that came since the last one: a slow reader gets fewer, larger events.

        at_once: the head of the answer does not wait for the first event.
        """
        response = web.StreamResponse(headers=EVENT_STREAM)
        news = self._driver.submit(request)
        stream = Stream(fate, request.rid, len(request.prompt))
        shown = 0
        try:
            if not at_once:
                await news.wait()
            await response.prepare(http)
            if self._faults.comments:
                await response.write(COMMENT)
            piece = stream.opening()
            while await _send(http, response, piece):
                await news.wait()
                news.clear()
                events, shown = render(shown), request.output
                piece = stream.piece(events, ended=request.finish is not None)
                if fate == "aborted" and request.finish is None:
                    self._driver.abort(request.rid)
        except ConnectionResetError:
            pass  # The client went away; `leave` ends its request.
        finally:
            self._driver.leave(request)
        return response


async def _send(http: web.Request, response: web.StreamResponse, piece: Piece) -> bool:
    """Send a piece, each event in its own HTTP chunk, and do what comes after it; True when more is to come."""
    for part in [piece.data] if piece.held else _events(piece.data):
        await response.write(part)
    if piece.then == "silence":
        await asyncio.Event().wait()
    if piece.then == "break":
        _break(http)
    return piece.then == "more"


def _events(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n\n", start) + 2
        if end == 1:
            end = len(data)
        yield data[start:end]
        start = end


def _spoiled_at_once(http: web.Request, request: Request, fate: AnswerFault | None) -> web.Response | None:
    """What happens to a request before the engine has it."""
    if fate == "unavailable":
        return object_reply("The request queue is full.", "ServiceUnavailable", UNAVAILABLE)
    if fate == "reset":
        _break(http)
        return web.Response()
    if fate == "stopped":
        request.stops_at = max(request.output_max // 2, 1)
    return None


def _break(http: web.Request) -> None:
    """End the connection with a reset instead of an end."""
    transport = http.transport
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
