"""Answers that several routes of the simulated engine share."""

from __future__ import annotations

import orjson
from aiohttp import web

from raybench.sim.request import UNAVAILABLE, Finish


def json_reply(value: object, status: int = 200) -> web.Response:
    """JSON without spaces, as SGLang writes it."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def text_reply(text: str, status: int = 200) -> web.Response:
    """Plain text, of which SGLang does not say that it is text."""
    return web.Response(body=text.encode(), status=status)


def message_reply(message: str) -> web.Response:
    """The error of `/generate` for values that cannot be: HTTP 400."""
    return json_reply({"error": {"message": message}}, 400)


def error_object(message: str, kind: str, code: int = 400) -> dict[str, object]:
    """The error of the OpenAI routes, of every route for a body that cannot be read, and for a full queue."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def object_reply(message: str, kind: str, code: int = 400) -> web.Response:
    """The same as an answer, with the code as its status."""
    return json_reply(error_object(message, kind, code), code)


def validation_reply(message: str) -> web.Response:
    """The error of every route for a body of the wrong form. SGLang's goes on with the place in its source."""
    return object_reply(f"1 validation error:\n  {message}", "Bad Request")


def refusal_object(finish: Finish) -> dict[str, object]:
    """The error of a request that the scheduler refused."""
    kind = "ServiceUnavailable" if finish.status == UNAVAILABLE else "BadRequestError"
    return error_object(finish.message or "", kind, finish.status or 400)
