"""Answers that several routes of the simulated engine share."""

from __future__ import annotations

import orjson
from aiohttp import web


def json_reply(value: object, status: int = 200) -> web.Response:
    """JSON without spaces, as SGLang writes it."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def message_reply(message: str) -> web.Response:
    """The error of `/generate` for values that cannot be: HTTP 400."""
    return json_reply({"error": {"message": message}}, 400)


def error_object(message: str, kind: str) -> dict[str, object]:
    """The error of the OpenAI routes, and of every route for a body that cannot be read."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": 400}


def object_reply(message: str, kind: str) -> web.Response:
    """The same as an answer: HTTP 400."""
    return json_reply(error_object(message, kind), 400)
