"""What single values of user files may be: counts, token sizes, names, addresses; and the frozen strict Model.

Shared by every kind of user file: scenarios, cluster files, tables to import. Units stand last in the names of
fields: `_s` seconds, `_ms`, `_tokens`, `_bytes`. Token sizes may be written `16k` (= 16 x 1024) or `1m`
(= 1024 x 1024), as serving people do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from raybench.scenario.extra_body import OWN_FIELDS

T = TypeVar("T")

_SIZE = re.compile(r"([1-9][0-9]*)([kKmM])")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def parse_tokens(value: object) -> object:
    """`16k` -> 16384, `1m` -> 1048576; anything else is left for the strict integer check."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(match[1]) * (1024 if match[2] in "kK" else 1024 * 1024)
    return value


@dataclass(frozen=True)
class Words:
    """What may stand in a field, said for people: errors and docs/SCENARIOS.md show it, not a pattern."""

    text: str


class Misfit(ValueError):
    """Two places of a file do not fit together; `path` leads from the model that noticed to the wrong one."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


def refuse_credentials(headers: dict[str, str]) -> dict[str, str]:
    """Headers are written into the manifest, so the credentials that have a place elsewhere are refused."""
    for name in headers:
        if name.lower() in ("authorization", "proxy-authorization", "cookie"):
            raise ValueError(
                f"the header {name} carries a credential, and headers are written into the run directory: "
                "put the key into an environment variable and give the variable's name instead"
            )
    return headers


def check_header_text(headers: dict[str, str]) -> dict[str, str]:
    """Names and values as RFC 9110, section 5, has them, so that none ends its line; no framing of one's own."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a header's name: letters, digits and `-` make one")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"the value of the header {name} may hold printable ASCII only, no line end")
        if name.lower() in ("content-length", "transfer-encoding"):
            raise ValueError(f"the header {name} is made for each request and cannot be given")
    return headers


def refuse_own_fields(extra_body: dict[str, object]) -> dict[str, object]:
    """Another value in what raybench sets would be another measurement, or none."""
    for name in OWN_FIELDS:
        if name in extra_body:
            raise Misfit("raybench sets this field itself: leave it out", name)
    return extra_body


def refuse_repeats(entries: list[T]) -> list[T]:
    """A level that is listed twice would make two points of one name, an address would be counted twice."""
    for place, entry in enumerate(entries):
        if entry in entries[:place]:
            raise Misfit("listed twice", place)
    return entries


def refuse_shared_names(names: Iterable[str], what: str, *path: str | int) -> None:
    """Raises Misfit at the first name that an earlier entry of the list at `path` has."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise Misfit(f"another {what} has this name", *path, index, "name")
        seen.add(name)


def check_address(text: str) -> str:
    """An address of a network interface, as `127.0.0.2` or `fd00::2`; no name, which could mean several."""
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


def check_url(text: str) -> str:
    """Raises ValueError with what is wrong with an address."""
    if not re.match(r"https?://", text):
        written = "" if "://" in text else f": write http://{text}"
        raise ValueError(f"does not begin with http:// or https://{written}")
    if re.search(r"\s", text):
        raise ValueError("white space in an address")
    try:
        parts = urlsplit(text)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, or brackets that do not close
        whole = False
    if not whole:
        raise ValueError("no host, or a port that is not from 1 to 65535")
    if "@" in parts.netloc:
        raise ValueError(
            "holds a user name or password, and addresses are written into the run directory: put the key into an"
            " environment variable and give the variable's name instead"
        )
    return text


def check_base(url: str) -> str:
    """An address that the paths of requests are put behind."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise ValueError("paths are put behind it: leave what begins with `?` or `#` out")
    if parts.path.rstrip("/").endswith("/v1"):
        raise ValueError("the paths of requests begin with /v1 themselves: leave it out")
    return url


def check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression of Python: {error}") from None
    return pattern


Tokens = Annotated[
    int,
    BeforeValidator(parse_tokens),
    Field(ge=1),
    Words("a token count from 1: 16384, 16k (x 1024) or 1m (x 1024 x 1024)"),
]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$"),
    Words("a name of 1 to 64 letters, digits and `_ . + -`, beginning with a letter or a digit"),
]
Url = Annotated[
    str,
    AfterValidator(check_url),
    Words("an address such as http://host:30000 (no user name or password in it)"),
]
BaseUrl = Annotated[Url, AfterValidator(check_base)]
IpAddress = Annotated[str, AfterValidator(check_address), Words("an IP address such as 10.0.0.5")]
VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), Words("the name of an environment variable")
]
ExtraBody = Annotated[dict[str, object], AfterValidator(refuse_own_fields)]
Pattern = Annotated[str, AfterValidator(check_pattern), Words("a regular expression of Python")]
Headers = Annotated[dict[str, str], AfterValidator(refuse_credentials), AfterValidator(check_header_text)]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
