"""Ray's token authentication, settled before Ray is imported: Ray reads these variables only once.

A Ray of our own gets a token that nobody else knows; a cluster's token comes from the variable that
the cluster file names. Never imports ray.
"""

from __future__ import annotations

import os
import secrets
import sys

from raybench.errors import ConfigError, ConfigProblem


def for_own_ray() -> None:
    """Settings of a Ray that this process starts for itself: token on, loopback only, no statistics sent."""
    os.environ.pop("RAY_ADDRESS", None)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # Despite its name this decides on every system whether a node may stay at 127.0.0.1; else Ray puts the
    # machine's address in its place and listens on all interfaces.
    _set({**token, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"})


def for_cluster(token_env: str | None) -> None:
    """Settings to reach a running cluster; without `token_env` the user's own RAY_AUTH_* variables hold.

    Raises ConfigError when the named variable is not set.
    """
    # Ray lets these override an explicit address; the one that the user gave must win.
    for variable in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        os.environ.pop(variable, None)
    if token_env is None:
        return
    token = os.environ.get(token_env)
    if not token:
        problem = ConfigProblem(
            f"the variable {token_env} with the cluster's token is not set",
            path="token_env",
            way_out=f"export {token_env} with what `ray get-auth-token` prints on the head node",
        )
        raise ConfigError("environment", problem)
    _set({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token})


def _set(variables: dict[str, str]) -> None:
    late = "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") != variables["RAY_AUTH_MODE"]
    assert not late, "Ray was imported before its authentication was settled"
    os.environ.update(variables)
