"""What a chaos run must show, computed from what it left: faults, journals, records. Pure.

Faults and journals are on one wall clock, since all hosts of a chaos run are namespaces of one machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Line = Mapping[str, Any]

#: While what a fault spoils an attempt.
#:   attempt: from its beginning until its counters were read after the load
#:   clients: from its beginning until the end of its load
#:   load: only what is under way under load
#:   commit: until it is committed: an attempt that outlives a dead coordinator was written by nobody
#:   nothing: a slow link is what the clients really saw; a full disk can only lose records, and those are counted
Spoils = Literal["attempt", "clients", "load", "commit", "nothing"]

SPOILS: dict[str, Spoils] = {
    "worker killed": "clients",
    "client raylet killed": "clients",
    "client link cut": "load",
    "client link cut for long": "load",
    "target link cut": "load",
    "client link slow": "nothing",
    "target link slow": "nothing",
    "engine killed": "attempt",
    "target raylet killed": "attempt",
    "coordinator killed": "commit",
    "driver killed": "commit",
    "disk full": "nothing",
}


@dataclass(frozen=True)
class Fault:
    """kind: a key of SPOILS. begin, end: wall clock; equal for a kill."""

    kind: str
    begin_unix_ns: int
    end_unix_ns: int


@dataclass(frozen=True)
class Accepted:
    """One commit of an accepted point, with the stamps of its attempt."""

    point_id: str
    attempt: int
    started_unix_ns: int
    load_started_unix_ns: int
    load_ended_unix_ns: int
    counted_unix_ns: int
    committed_unix_ns: int

    def span(self, spoils: Spoils) -> tuple[int, int] | None:
        """From when to when a fault that spoils this would have spoiled the attempt."""
        return {
            "attempt": (self.started_unix_ns, self.counted_unix_ns),
            "clients": (self.started_unix_ns, self.load_ended_unix_ns),
            "load": (self.load_started_unix_ns, self.load_ended_unix_ns),
            "commit": (self.started_unix_ns, self.committed_unix_ns),
            "nothing": None,
        }[spoils]

    def met(self, fault: Fault) -> bool:
        span = self.span(SPOILS[fault.kind])
        return span is not None and span[0] <= fault.end_unix_ns and fault.begin_unix_ns <= span[1]


def accepted(lines: Iterable[Line]) -> list[Accepted]:
    """Every commit of an accepted point, in the order of the journal."""
    stamps: dict[tuple[str, int], dict[str, int]] = {}
    found = []
    for line in lines:
        if line.get("attempt") is None or "point_id" not in line:
            continue
        key = (line["point_id"], line["attempt"])
        name = line["event"] if line["event"] != "step" else f"step {line['step']}"
        at = stamps.setdefault(key, {})
        at[name] = line["unix_ns"]
        if line["event"] == "point_committed" and line["verdict"] == "accepted":
            found.append(
                Accepted(
                    *key,
                    at["attempt_started"],
                    at["load_started"],
                    at["load_ended"],
                    at["step counters_after"],
                    at["point_committed"],
                )
            )
    return found


def wrongly_accepted(commits: Iterable[Accepted], faults: Sequence[Fault]) -> list[tuple[Accepted, Fault]]:
    """Accepted attempts that met a fault, each with the first one that it met."""
    pairs = ((one, next((fault for fault in faults if one.met(fault)), None)) for one in commits)
    return [(one, fault) for one, fault in pairs if fault is not None]


def lost_or_doubled(tickets: Iterable[int], planned: int) -> int:
    """How many of the tickets 0 to planned - 1 are there not at all, or again, or beyond."""
    counts = Counter(tickets)
    missing = sum(1 for ticket in range(planned) if not counts[ticket])
    return missing + sum(counts.values()) - (planned - missing)
