"""Under which conditions two sides were measured, and in which of them they differ (case O-K2). Pure.

A condition is a name and a plain value. One that a side does not tell is unknown, which is not the same as
equal: what is needed to read a comparison is listed even then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Conditions = Mapping[str, str]

#: Conditions without which a comparison cannot be read: listed also where a side does not tell them.
ESSENTIAL = (
    "engine",
    "version",
    "model",
    "gpus",
    "raybench_version",
    "percentile_method",
    "cache_flush",
    "cache_state",
    "client_hosts",
    "corpus",
)

#: Facts that two starts of one deployment never share, and that say nothing of how it serves; the launch
#: command holds a port, and its settings are told one by one beside it.
VOLATILE = frozenset(
    (
        "instance",
        "launch_command",
        "port",
        "nccl_port",
        "dist_init_addr",
        "random_seed",
        "last_gen_throughput",
        "start_time",
        "startup_time",
        "uptime",
        "pid",
        "created",
        "timestamp",
        "provenance",
    )
)


@dataclass(frozen=True)
class Condition:
    """One name with its value on each side; None = not told."""

    name: str
    a: str | None
    b: str | None

    @property
    def known(self) -> bool:
        """Whether both sides tell it."""
        return self.a is not None and self.b is not None


def differing(a: Conditions, b: Conditions) -> list[Condition]:
    """What differs, or is told by one side only, and the essential ones that neither tells. Essential first."""
    names = dict.fromkeys([*ESSENTIAL, *a, *b])
    pairs = [Condition(name, a.get(name), b.get(name)) for name in names]
    return [pair for pair in pairs if pair.a != pair.b or (pair.name in ESSENTIAL and pair.a is None)]


def flat(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The plain values inside nested mappings, as `guards.flush` -> `true`; volatile ones are left out."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in VOLATILE:
                yield from flat(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list | tuple):
        if not any(isinstance(one, Mapping) for one in value):
            yield prefix, json.dumps(value)
    elif value is not None:
        yield prefix, plain(value)


def plain(value: Any) -> str:
    """A value as it is shown and compared: `true`, `64`, text as it is."""
    return str(value).lower() if isinstance(value, bool) else str(value)
