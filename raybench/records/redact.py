"""Takes secrets out of facts, environments and command lines before they are written anywhere.

Pure. Names are kept and values replaced, so that a reader still sees that a key was set. A value goes
when its name says secret (`api_key`, `HF_TOKEN`, `--admin-api-key`, `Authorization`), when it has the
shape of a known kind of key, or when the caller knows it. When in doubt it goes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

REDACTED = "<redacted>"

#: A known secret shorter than this is not searched for in other texts: it would turn up by accident.
KNOWN_SECRET_CHARS_MIN = 6

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_SECRET_WORDS = (
    *("api_key", "apikey", "access_key", "secret_key", "private_key", "session_key", "account_key"),
    *("api_keys", "apikeys", "access_keys", "secret_keys", "api_tokens", "auth_tokens", "access_tokens"),
    *("secret", "secrets", "password", "passwords", "passwd", "passphrase", "credential", "credentials"),
    *("authorization", "bearer", "cookie", "cookies", "jwt", "watermark_key"),
)
_SECRET_LAST_WORDS = ("auth", "token")

#: `token` after one of these is a word of the model, not a key to a door.
_MODEL_TOKENS = frozenset(
    (
        *("added", "audio", "begin", "bos", "cls", "end", "eos", "image", "mask", "new", "output", "pad"),
        *("per", "sep", "special", "start", "stop", "think", "unk", "video"),
    )
)

#: A name that ends so says where a secret lies, or something about it, and not the secret.
_ABOUT_SECRETS = frozenset(
    (
        *("count", "dir", "enabled", "env", "file", "header", "len", "length", "limit", "name", "path"),
        *("required", "type"),
    )
)

_KEY_SHAPES = re.compile(
    r"\b(?:sk-[\w-]{8,}|hf_\w{8,}|nvapi-[\w-]{16,}|gh[opsru]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abpr]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]+)"
)
_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_BEARER = re.compile(r"(?i)(?<=\bbearer )[^\s\"',;]+")
_NAME = re.compile(r"[\w.-]+")
_VALUE = r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"',;&}]+)"
_ASSIGNED = re.compile(r"[\"']?\s*[=:]\s*(?:(?:bearer|basic)\s+)?" + _VALUE, re.IGNORECASE)
_FOLLOWING = re.compile(r"(?:=|\s+)" + _VALUE)


def redact(value: object, secrets: Collection[str] = ()) -> object:
    """A copy of nested dicts, lists and scalars without secrets; tuples become lists.

    secrets: values known to be secret, as of the environment variables that hold keys. They, and those
    found under secret names here, are replaced inside all other texts too.
    """
    return _clean(value, {*secrets, *_found(value)})


def _found(value: object) -> Iterator[str]:
    """Texts that stand under a secret name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str) and isinstance(item, str) and _hides(key, item):
                yield item
            yield from _found(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _found(item)


def _clean(value: object, secrets: Collection[str]) -> object:
    if isinstance(value, Mapping):
        return {
            key: _hide(item) if isinstance(key, str) and _hides(key, item) else _clean(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _hide(item) if _follows_name(before, item, len(value)) else _clean(item, secrets)
            for before, item in pairwise((None, *value))
        ]
    return redact_text(value, secrets) if isinstance(value, str) else value


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """A command line, a URL or any other text without secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= KNOWN_SECRET_CHARS_MIN:
            text = text.replace(secret, REDACTED)
    text = _KEY_SHAPES.sub(REDACTED, text)
    text = _USER_IN_URL.sub(REDACTED, text)
    text = _BEARER.sub(REDACTED, text)
    return "".join(_without_assigned(text))


def names_secret(name: str) -> bool:
    """Whether the value of something called this should not be seen."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _ABOUT_SECRETS:
        return False
    joined = f"_{'_'.join(words)}_"
    if any(f"_{secret}_" in joined for secret in _SECRET_WORDS):
        return True
    return words[-1] in _SECRET_LAST_WORDS and not (len(words) > 1 and words[-2] in _MODEL_TOKENS)


def _hides(name: str, value: object) -> bool:
    """Nothing, and a yes or no, are no secrets; nor is a number of tokens."""
    if not names_secret(name) or value is None or value == "" or isinstance(value, bool):
        return False
    return not (isinstance(value, int | float) and _WORD.findall(name)[-1].lower() == "token")


def _hide(value: object) -> object:
    """The shape of the value with every leaf replaced."""
    if isinstance(value, Mapping):
        return {key: _hide(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hide(item) for item in value]
    return value if value is None or value == "" or isinstance(value, bool) else REDACTED


def _follows_name(before: object, value: object, length: int) -> bool:
    """`value` follows its name in a list: an argument after its flag, or a header given as a pair."""
    if not isinstance(before, str) or not isinstance(value, str):
        return False
    if before.startswith("-"):
        return "=" not in before and not value.startswith("--") and _hides(before, value)
    return length == 2 and _NAME.fullmatch(before) is not None and _hides(before, value)


def _without_assigned(text: str) -> Iterator[str]:
    """The text in pieces, values after `name=`, `name:` and `--name ` replaced where the name is secret."""
    done = 0
    for name in _NAME.finditer(text):
        if name.start() < done or not names_secret(name[0]):
            continue
        value = _ASSIGNED.match(text, name.end())
        if value is None and name[0].startswith("-"):
            value = _FOLLOWING.match(text, name.end())
        if value is None or value["value"].startswith("--") or _is_token_count(name[0], value["value"]):
            continue
        yield text[done : value.start("value")]
        yield REDACTED
        done = value.end()
    yield text[done:]


def _is_token_count(name: str, value: str) -> bool:
    """`#new-token: 1000` in an engine's log is a number of tokens."""
    return name.lower().endswith("token") and re.fullmatch(r"[0-9.]+", value) is not None
