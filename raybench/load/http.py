"""aiohttp, set up so that it never decides anything on its own: sessions, TLS, keys, control calls.

Runs in load workers and in the coordinator. No pool limit, no hidden resend, no default timeout:
what aiohttp would do silently is switched off here, once (cases O-N1, O-N2, O-N4).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Literal

import aiohttp

from raybench.engines.contract import Reply
from raybench.errors import ConfigError, ConfigProblem
from raybench.load.order import Endpoint


def auth_headers(headers: Mapping[str, str], api_key_env: str | None) -> dict[str, str]:
    """The endpoint's headers with the bearer key of this process's environment.

    Raises ConfigError when the named variable is not set here, or holds what no header may hold.
    """
    merged = dict(headers)
    if api_key_env is not None:
        key = os.environ.get(api_key_env)
        if not key:
            raise ConfigError(
                "environment",
                ConfigProblem(
                    f"the variable {api_key_env} is not set on this node",
                    way_out="export it on this node before `ray start`",
                ),
            )
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                "environment",
                ConfigProblem(
                    f"the value of {api_key_env} holds a character that no header may hold, such as a line end",
                    way_out="set it to the key alone",
                ),
            )
        merged["Authorization"] = f"Bearer {key}"
    return merged


def tls_context(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """True = aiohttp's default verification; a context for a private CA; False = not verified.

    Raises ConfigError when the CA file cannot be read.
    """
    if not endpoint.tls_verify:
        return False
    if endpoint.tls_ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=endpoint.tls_ca_file)
    except OSError as error:
        raise ConfigError(
            "environment",
            ConfigProblem(
                f"the CA file cannot be used on this node: {error.strerror or error}",
                path="tls.ca_file",
                value=endpoint.tls_ca_file,
                way_out="copy it to this path on the head node and on every client node",
            ),
        ) from None


class Broken(aiohttp.ClientConnectionError):
    """A connection broke, in a class that aiohttp has no reaction to."""


async def never_resend(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """aiohttp middleware: a GET whose connection breaks is not silently sent again (case O-N4)."""
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise Broken(f"{type(error).__name__}: {error}") from error


class ControlClient:
    """`engines.contract.Http` over aiohttp: one fresh connection a call.

    A kept connection that the server has just closed would make a POST fail or a GET be sent twice
    behind our back; control calls are rare, so none is kept.
    """

    def __init__(self, endpoint: Endpoint, *, admin_api_key_env: str | None = None) -> None:
        self._base = endpoint.url.rstrip("/")
        self._tls = tls_context(endpoint)
        self._headers = auth_headers(endpoint.headers, admin_api_key_env or endpoint.api_key_env)
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: object = None,
        timeout_s: float = 10.0,
    ) -> Reply:
        session = self._open()
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with session.request(
                method, self._base + path, params=params, json=json, timeout=timeout, allow_redirects=False
            ) as response:
                return Reply(response.status, await response.read())
        except TimeoutError:
            return Reply(None, error=f"no answer within {timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return Reply(None, error=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._tls)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self._headers, middlewares=(never_resend,), trust_env=False
            )
        return self._session
