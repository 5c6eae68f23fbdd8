"""Requests in flight over time, from the sent and end stamps of records.

A request is in flight from the moment at which it was handed to the socket until the end of its
answer. All stamps of one call must be on one time line: one host's monotonic clock, or aligned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raybench.analysis.stats import Floats, Stamps

#: The steady-state window is where in-flight is at least this percentage of the point's level.
STEADY_PERCENT = 95


@dataclass(frozen=True)
class Window:
    """A part of a point, `[start_ns, end_ns]` on the time line of its stamps."""

    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def contains(self, stamps: Stamps) -> npt.NDArray[np.bool_]:
        """Which stamps lie inside, both ends included."""
        inside: npt.NDArray[np.bool_] = (stamps >= self.start_ns) & (stamps <= self.end_ns)
        return inside


@dataclass(frozen=True)
class InFlight:
    """A step function: `level[i]` requests are in flight from `at_ns[i]` until `at_ns[i + 1]`."""

    at_ns: Stamps
    level: Stamps

    @property
    def peak(self) -> int | None:
        """The most requests ever in flight; None when nothing was sent."""
        return int(self.level.max()) if self.level.size else None

    def share_at(self, level: int, window: Window) -> float | None:
        """Share of the window's time with at least `level` in flight; None for a window of no length."""
        if window.end_ns <= window.start_ns or not self.at_ns.size:
            return None
        edges = np.clip(np.append(self.at_ns, self.at_ns[-1]), window.start_ns, window.end_ns)
        held = np.diff(edges)[self.level >= level].sum()
        return float(held) / (window.end_ns - window.start_ns)

    def steady_window(self, level: int) -> Window | None:
        """From the first to the last moment with at least 95 % of `level` in flight; None when never."""
        reached = np.flatnonzero(self.level * 100 >= level * STEADY_PERCENT)
        if not reached.size or level < 1:
            return None
        return Window(int(self.at_ns[reached[0]]), int(self.at_ns[min(reached[-1] + 1, self.at_ns.size - 1)]))


def in_flight(sent_ns: Stamps, end_ns: Stamps) -> InFlight:
    """The step function of requests sent at `sent_ns[i]` and ended at `end_ns[i]`.

    Of an end and a send at the same nanosecond the end comes first: a slot that is filled again at
    once was never two requests.
    """
    at = np.concatenate([end_ns, sent_ns])
    change = np.concatenate([np.full(end_ns.size, -1), np.full(sent_ns.size, 1)])
    order = np.argsort(at, kind="stable")
    at, level = at[order], np.cumsum(change[order])
    last_of_moment = np.append(at[1:] != at[:-1], True) if at.size else np.zeros(0, dtype=bool)
    return InFlight(at_ns=at[last_of_moment], level=level[last_of_moment])


def handover_gaps_ms(sent_ns: Stamps, end_ns: Stamps, concurrency: int) -> Floats:
    """How long a slot of a closed loop stood empty between the end of one request and the next send.

    The k-th end frees a slot, which the (C + k)-th send fills: no send beyond the first C can come before
    the end that made room for it, so that both sorted series pair up without knowing the slots.
    Shape: (requests - C,), empty when each slot sent one request.
    """
    handed_over = max(0, sent_ns.size - concurrency)
    return (np.sort(sent_ns)[concurrency:] - np.sort(end_ns)[:handed_over]) / 1e6
