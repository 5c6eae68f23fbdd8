"""What tells two answers apart beside their numbers and words: status, headers, framing, keys, kinds, labels.

Pure. `differences` names what the simulated engine's bytes have that the recorded ones have not, and the other
way round; each name is a line without numbers, so that it is the same from run to run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

#: Words that are another text in each answer.
FREE_TEXTS = {"id", "text", "content", "model", "root", "timestamp"}
#: Pages about the server itself, whose words and numbers are its own.
INFO_PAGES = re.compile(r"(get_)?(server_info|model_info)|v1/(models|loads)|get_load")
#: Numbers that follow from the request alone, once an answer is complete.
EXACT = {
    *("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "length", "start", "end"),
    *("device", "host", "storage", "code", "status_code", "num_retractions", "index"),
}
#: Events that a slow reader may miss, since one event tells all that came since the last.
COALESCED = {"first", "middle", "text"}
#: Labels that each server has of its own.
OWN_LABELS = {"model_name", "pid"}
NUMBER = re.compile(r"NaN|[+-]Inf|-?\d+\.\d+(e-\d\d)?|\d(\.\d+)?e\+\d\d")


@dataclass(frozen=True)
class Answer:
    """The parts of one answer. chunks: of a chunked one, the last perhaps cut; None: told by its length."""

    status: str
    headers: dict[str, str]
    chunks: list[bytes] | None
    body: bytes


def parse(raw: bytes) -> Answer:
    head, _, rest = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") != "chunked":
        return Answer(status, headers, None, rest)
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16):
            chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return Answer(status, headers, chunks, b"".join(chunks))


def differences(real: bytes, ours: bytes, path: str) -> list[str]:
    """What differs between two answers to the same request for `path`, as lines without numbers."""
    one, other = parse(real), parse(ours)
    found = [] if one.status == other.status else [f"status: {other.status} for {one.status}"]
    found += _headers(one.headers, other.headers)
    found += _bodies(one, other, path)
    return list(dict.fromkeys(found))


def _headers(real: dict[str, str], ours: dict[str, str]) -> Iterator[str]:
    yield from _names("header", list(real), list(ours), ordered=False)
    for name in real.keys() & ours.keys() - {"date", "content-length"}:
        if real[name] != ours[name]:
            yield f"header {name}: {ours[name]} for {real[name]}"


def _bodies(real: Answer, ours: Answer, path: str) -> Iterator[str]:
    kind = real.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        yield from _streams(real, ours)
    elif kind == "application/json":
        told = not INFO_PAGES.match(path.lstrip("/"))
        complete = "200" in real.status
        yield from json_differences(json.loads(real.body), json.loads(ours.body), "", told=told, exact=complete)
    elif "version=0.0.4" in kind:
        yield from metrics_differences(real.body.decode(), ours.body.decode())
    elif real.body != ours.body:
        yield "text: another"


# -- streams ---------------------------------------------------------------------------------------


def events(body: bytes) -> list[bytes]:
    """The events of a stream without their blank lines; one that was cut is left out."""
    return body.split(b"\n\n")[:-1]


def _streams(real: Answer, ours: Answer) -> Iterator[str]:
    for name, measure in (("events in a chunk", _events_in_chunks), ("field and space", _fields)):
        if measure(real) != measure(ours):
            yield f"stream, {name}: {sorted(measure(ours))} for {sorted(measure(real))}"
    if not real.body.endswith(b"\n\n") or not ours.body.endswith(b"\n\n"):
        yield "stream: it does not end with an event"
    theirs, own = by_role(real.body), by_role(ours.body)
    got, want = _order(ours.body), _order(real.body)
    if [role for role in got if role not in COALESCED] != [role for role in want if role not in COALESCED]:
        yield f"stream: {', '.join(got)} for {', '.join(want)}"
    for role in own.keys() & theirs.keys():
        exact = role not in COALESCED and b'"abort"' not in real.body
        place = (
            "event" if role in {*COALESCED, "last"} else role
        )  # one name, whichever of them a late reader missed
        compared = [
            list(json_differences(like, event, place, told=True, exact=exact))
            for event in own[role]
            for like in theirs[role][-1:]
        ]
        yield from min(compared, key=len)


def _events_in_chunks(answer: Answer) -> set[int]:
    assert answer.chunks is not None, "a stream without chunks"
    return {chunk.count(b"\n\n") for chunk in answer.chunks}


def _fields(answer: Answer) -> set[str]:
    """What stands before the value of each line: `data: ` and nothing else."""
    found = set()
    for event in events(answer.body):
        found |= {re.match(rb"[^{\[]*", line)[0].decode() for line in event.split(b"\n")}  # type: ignore[index]
    return found


def _order(body: bytes) -> list[str]:
    return [role for role, _ in groupby(role for role, _ in _roles(body))]


def by_role(body: bytes) -> dict[str, list[Any]]:
    """Role -> the events that have it."""
    found: dict[str, list[Any]] = {}
    for role, event in _roles(body):
        found.setdefault(role, []).append(event)
    return found


def _roles(body: bytes) -> Iterator[tuple[str, Any]]:
    for at, event in enumerate(events(body)):
        text = re.sub(rb"^[^{\[]*", b"", event)
        if text == b"[DONE]":
            yield "[DONE]", "[DONE]"
            continue
        value = json.loads(text)
        yield _role(value, at), value


def _role(event: dict[str, Any], at: int) -> str:
    if "error" in event:
        return "error"
    if "meta_info" in event:
        return "last" if event["meta_info"]["finish_reason"] else "middle" if at else "first"
    if not event["choices"]:
        return "tiers" if "sglext" in event else "usage"
    choice = event["choices"][0]
    if "role" in choice.get("delta", {}):
        return "role"
    return "finish" if choice["finish_reason"] else "text"


# -- JSON ------------------------------------------------------------------------------------------


def json_differences(real: Any, ours: Any, path: str, *, told: bool, exact: bool) -> Iterator[str]:
    """told: texts must be equal, but those that are free. exact: so must numbers that follow from the request."""
    if kind(real) != kind(ours):
        yield f"{path}: {kind(ours)} for {kind(real)}"
    elif isinstance(real, dict):
        yield from _names(path, list(real), list(ours), ordered=True)
        for key in real.keys() & ours.keys():
            yield from json_differences(real[key], ours[key], f"{path}.{key}", told=told, exact=exact)
    elif isinstance(real, list):
        if bool(real) != bool(ours):
            yield f"{path}: {'a list' if ours else 'an empty list'}"
        for at, value in enumerate(ours if real else []):
            like = real[min(at, len(real) - 1)]
            yield from json_differences(like, value, f"{path}[]", told=told, exact=exact)
    elif isinstance(real, str):
        if told and real != ours and path.rpartition(".")[2] not in FREE_TEXTS:
            yield f"{path}: another text"
    elif exact and path.rpartition(".")[2] in EXACT and real != ours:
        yield f"{path}: another number"


def kind(value: object) -> str:
    """The JSON kind; whole numbers and fractions are two."""
    names = {dict: "object", list: "list", str: "text", bool: "bool", int: "whole", float: "fraction"}
    return names.get(type(value), "null")


def _names(of: str, real: list[str], ours: list[str], *, ordered: bool) -> Iterator[str]:
    for name in real:
        if name not in ours:
            yield f"{of}: {name} left out"
    for name in ours:
        if name not in real:
            yield f"{of}: {name} made up"
    if ordered and [name for name in real if name in ours] != [name for name in ours if name in real]:
        yield f"{of}: another order"


# -- /metrics --------------------------------------------------------------------------------------


@dataclass
class Family:
    """One name of a page: its type and text, and what its series look like.

    series: (suffix, label names in order). values: label name -> its values in order.
    """

    help: str | None
    type: str
    series: dict[tuple[str, ...], None]
    values: dict[str, list[str]]
    odd_numbers: bool = False


def families(page: str) -> dict[str, Family]:
    """name -> family. A line that is none of a page's raises ValueError."""
    found: dict[str, Family] = {}
    text = None
    for line in page.splitlines():
        if line.startswith("# HELP "):
            text = line.split(" ", 3)[3]
        elif line.startswith("# TYPE "):
            name, type_ = line.split(" ")[2:]
            assert name not in found, f"{name} twice"
            found[name] = Family(text, type_, {}, {})
            text = None
        else:
            _add_sample(found[name], name, line)
    return found


def _add_sample(family: Family, name: str, line: str) -> None:
    match = re.fullmatch(r"([^{ ]+)(?:\{(.*)\})? (\S+)", line)
    if match is None or not match[1].startswith(name):
        raise ValueError(line)
    labels = re.findall(r'(\w+)="([^"]*)"', match[2] or "")
    family.series[match[1].removeprefix(name), *(label for label, _ in labels)] = None
    family.odd_numbers |= NUMBER.fullmatch(match[3]) is None
    for label, value in labels:
        seen = family.values.setdefault(label, [])
        if value not in seen:
            seen.append(value)


def metrics_differences(real: str, ours: str) -> Iterator[str]:
    theirs, own = families(real), families(ours)
    yield from _names("metrics", list(theirs), list(own), ordered=False)
    if not (real.endswith("\n") and ours.endswith("\n")):
        yield "metrics: the last line has no end"
    for name in theirs.keys() & own.keys():
        yield from _family_differences(name, theirs[name], own[name])


def _family_differences(name: str, real: Family, ours: Family) -> Iterator[str]:
    for what in ("help", "type", "odd_numbers"):
        if getattr(real, what) != getattr(ours, what):
            yield f"{name}: another {what}"
    yield from _names(f"{name} series", [*map(str, real.series)], [*map(str, ours.series)], ordered=False)
    for label in (real.values.keys() & ours.values.keys()) - OWN_LABELS:
        ordered = label == "le"
        yield from _names(f"{name} {label}", real.values[label], ours.values[label], ordered=ordered)


# -- the log ---------------------------------------------------------------------------------------


def log_shapes(text: str) -> set[str]:
    """The kinds of lines behind the one that says that the server is ready, without numbers and stamps."""
    _, _, behind = text.partition("fired up and ready to roll!\n")
    lines = (re.sub(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "[stamp", line) for line in behind.splitlines())
    return {re.sub(r"\d+(\.\d+)*", "N", line) for line in lines}
