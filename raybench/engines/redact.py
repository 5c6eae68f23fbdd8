"""Secrets out of what an engine says of itself, before any of it is stored.

SGLang's server_info holds api_key and admin_api_key, and its launch_command the whole command line.
Values under secret names are replaced, and so is every other place where such a value stands.
"""

from __future__ import annotations

import re
from typing import Any

REDACTED = "<redacted>"

_SECRET_NAME = re.compile(
    r"(^|[_-])(api[_-]?key|secret|password|passwd|credentials?|authorization|watermark_key(_b)?)$"
    r"|(^|(auth|access|hf|api|bearer)[_-])token$|secret[_-]",
    re.IGNORECASE,
)
_SECRET_OPTION = re.compile(
    r"(--?[\w-]*(?:api[_-]?key|secret|password|passwd|(?:auth|access|hf|api)[_-]token)(?:\s*=\s*|\s+))"
    r"('[^']*'|\"[^\"]*\"|\S+)",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(\b\w*(?:API_KEY|TOKEN|SECRET|PASSWORD)=)('[^']*'|\"[^\"]*\"|\S+)")
_URL_PASSWORD = re.compile(r"(\w+://[^\s/:@]*:)[^\s/@]+(@)")


def redacted(value: Any) -> Any:
    """A copy of a JSON value without its secrets. A secret that is null stays null: none was set."""
    secrets: set[str] = set()
    _collect(value, secrets)
    # Longest first: one secret may be the beginning of another.
    return _clean(value, sorted(secrets, key=len, reverse=True))


def _collect(value: Any, secrets: set[str]) -> None:
    if isinstance(value, dict):
        for name, below in value.items():
            if isinstance(below, str) and below and _SECRET_NAME.search(name):
                secrets.add(below)
            else:
                _collect(below, secrets)
    elif isinstance(value, list):
        for item in value:
            _collect(item, secrets)


def _clean(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, dict):
        return {name: _clean_named(name, below, secrets) for name, below in value.items()}
    if isinstance(value, list):
        return [_clean(item, secrets) for item in value]
    if isinstance(value, str):
        return _clean_text(value, secrets)
    return value


def _clean_named(name: str, value: Any, secrets: list[str]) -> Any:
    if _SECRET_NAME.search(name) and value is not None and not isinstance(value, bool):
        return REDACTED
    return _clean(value, secrets)


def _clean_text(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        # Very short ones would blank out unrelated text; their own field and option are covered anyway.
        if len(secret) >= 6:
            text = text.replace(secret, REDACTED)
    text = _SECRET_OPTION.sub(rf"\1{REDACTED}", text)
    text = _SECRET_VARIABLE.sub(rf"\1{REDACTED}", text)
    return _URL_PASSWORD.sub(rf"\1{REDACTED}\2", text)
