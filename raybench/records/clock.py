"""Clocks of the run: one host's monotonic clock for durations, anchored wall time across hosts.

A wall clock may step in the middle of a point and two hosts' wall clocks differ, so neither is ever
subtracted. Every process reads its wall clock once, together with its monotonic clock (the anchor);
from then on its wall time is anchor + elapsed monotonic time. The distance between two such anchored
clocks is measured by pings and used when files of several hosts are merged.

Runs in every process: coordinator, load workers, monitors, and in the merge on a laptop.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
ANCHOR_READS = 5


class Clock(Protocol):
    """Where time comes from; a test brings its own."""

    def monotonic_ns(self) -> int: ...

    def unix_ns(self) -> int: ...


class SystemClock:
    """This host's clocks. On Linux `monotonic_ns` is CLOCK_MONOTONIC: one zero for all of a boot."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        return time.time_ns()


@dataclass(frozen=True)
class ClockAnchor:
    """One instant read on both clocks of a host. `boot_id` None where the system has none.

    Stamps of two files may be compared directly only if both host and boot id agree.
    """

    host: str
    boot_id: str | None
    unix_ns: int
    monotonic_ns: int

    @classmethod
    def now(cls, clock: Clock, host: str | None = None) -> ClockAnchor:
        """Read both clocks."""
        unix_ns, monotonic_ns = _read_both(clock)
        return cls(host or socket.gethostname(), read_boot_id(), unix_ns, monotonic_ns)

    def to_unix_ns(self, monotonic_ns: int) -> int:
        """Wall time of a monotonic stamp of this host, by this anchor; blind to later steps of the clock."""
        return self.unix_ns + (monotonic_ns - self.monotonic_ns)

    def unix_now_ns(self, clock: Clock) -> int:
        """Anchored wall time now. Pings carry this, never the raw wall clock."""
        return self.to_unix_ns(clock.monotonic_ns())

    def to_metadata(self) -> dict[str, str]:
        """Keys of a part's schema metadata."""
        metadata = {
            "host": self.host,
            "anchor_unix_ns": str(self.unix_ns),
            "anchor_monotonic_ns": str(self.monotonic_ns),
        }
        return metadata if self.boot_id is None else {**metadata, "boot_id": self.boot_id}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> ClockAnchor | None:
        """The anchor that a part carries, or None if it carries none."""
        try:
            return cls(
                host=metadata["host"],
                boot_id=metadata.get("boot_id"),
                unix_ns=int(metadata["anchor_unix_ns"]),
                monotonic_ns=int(metadata["anchor_monotonic_ns"]),
            )
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True)
class ClockOffset:
    """Another host's anchored wall clock minus the coordinator's, in ns, true within +- uncertainty.

    wall_ahead_ns: that host's wall clock minus its own anchored one, which is what it was set by since its
    anchor: stamps know nothing of it, people who read the host's logs do.
    """

    offset_ns: int
    uncertainty_ns: int
    wall_ahead_ns: int = 0

    def to_coordinator_ns(self, unix_ns: int) -> int:
        """The coordinator's wall time at which the other host's clock showed `unix_ns`."""
        return unix_ns - self.offset_ns

    def to_metadata(self) -> dict[str, str]:
        return {
            "clock_offset_ns": str(self.offset_ns),
            "clock_uncertainty_ns": str(self.uncertainty_ns),
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> ClockOffset | None:
        """The offset that a part carries, or None if it was not measured when the part was begun."""
        try:
            return cls(int(metadata["clock_offset_ns"]), int(metadata["clock_uncertainty_ns"]))
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True)
class ClockSample:
    """What a process answers to a ping. anchor: its anchored clock now; wall_ahead_ns as in `ClockOffset`."""

    anchor: ClockAnchor
    wall_ahead_ns: int


def estimate_offset(pings: Sequence[tuple[int, int, int]]) -> ClockOffset:
    """The offset of a remote clock from pings (t0, remote, t1), all anchored unix ns.

    t0 and t1 are the coordinator's stamps around the call, `remote` the other host's stamp within it.
    The ping with the shortest round trip is taken: the remote stamp lies somewhere between t0 and t1,
    so the midpoint errs by at most half the round trip, whatever way the delay is split (Cristian 1989).
    """
    assert pings, "an offset needs at least one ping"
    assert all(t1 >= t0 for t0, _, t1 in pings), "pings are stamped with an anchored clock, which never steps"
    t0, remote, t1 = min(pings, key=lambda ping: ping[2] - ping[0])
    return ClockOffset(offset_ns=remote - (t0 + t1) // 2, uncertainty_ns=(t1 - t0 + 1) // 2)


def enclose_offsets(offsets: Iterable[ClockOffset]) -> ClockOffset:
    """One offset that holds over a span, from those measured at its start and end.

    The smallest interval round all of them: drift between the measurements widens the uncertainty
    instead of vanishing in a mean.
    """
    offsets = list(offsets)
    assert offsets, "nothing to enclose"
    low = min(offset.offset_ns - offset.uncertainty_ns for offset in offsets)
    high = max(offset.offset_ns + offset.uncertainty_ns for offset in offsets)
    middle = (low + high) // 2
    return ClockOffset(middle, high - middle)


def read_boot_id() -> str | None:
    """Identity of this boot: monotonic stamps of two boots have different zeros."""
    try:
        return BOOT_ID_FILE.read_text().strip() or None
    except OSError:
        return None


def _read_both(clock: Clock) -> tuple[int, int]:
    """(wall stamp, monotonic stamp) of one instant; of a few tries the one with the narrowest bracket."""
    tries = []
    for _ in range(ANCHOR_READS):
        before_ns = clock.monotonic_ns()
        unix_ns = clock.unix_ns()
        after_ns = clock.monotonic_ns()
        tries.append((after_ns - before_ns, unix_ns, (before_ns + after_ns) // 2))
    width_ns, unix_ns, monotonic_ns = min(tries)
    assert width_ns >= 0, "the monotonic clock ran backwards"
    return unix_ns, monotonic_ns


class AnchoredClock:
    """A host's clocks with the wall time tied to the monotonic clock: it never steps.

    What every process of a run uses, so that its stamps, its pings and its parts agree.
    """

    def __init__(self, clock: Clock | None = None, host: str | None = None) -> None:
        self._clock = clock or SystemClock()
        self.anchor = ClockAnchor.now(self._clock, host)

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def unix_ns(self) -> int:
        return self.anchor.unix_now_ns(self._clock)

    def reading(self) -> ClockSample:
        """Where this clock stands, and the wall clock beside it."""
        unix_ns, monotonic_ns = _read_both(self._clock)
        now_ns = self.anchor.to_unix_ns(monotonic_ns)
        anchor = ClockAnchor(self.anchor.host, self.anchor.boot_id, now_ns, monotonic_ns)
        return ClockSample(anchor, unix_ns - now_ns)


def same_boot_offset(remote: ClockAnchor, own: ClockAnchor) -> ClockOffset | None:
    """The exact offset of two anchored clocks of one boot, which share a monotonic clock; else None."""
    if remote.boot_id is None or remote.boot_id != own.boot_id:
        return None
    return ClockOffset(remote.unix_ns - own.to_unix_ns(remote.monotonic_ns), 0)
