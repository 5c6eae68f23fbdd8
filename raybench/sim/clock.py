"""Virtual time of a simulated engine that serves: wall seconds times the compression."""

from __future__ import annotations

import time
from collections.abc import Callable


class VirtualClock:
    """Virtual second 0 is the moment of the making; everything reported goes through here back to wall time."""

    def __init__(
        self,
        compression: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self._compression = compression
        self._monotonic = monotonic
        self._origin = monotonic()
        self._origin_unix = unix()

    def now(self) -> float:
        """Virtual seconds."""
        return (self._monotonic() - self._origin) * self._compression

    def skip(self, virtual_s: float) -> None:
        """Go forward without waiting, so that `now` is at least `virtual_s`."""
        self._origin -= max(virtual_s - self.now(), 0.0) / self._compression

    def wall(self, virtual_s: float) -> float:
        """A duration as a client measures it, in seconds."""
        return virtual_s / self._compression

    def unix(self, virtual_s: float) -> float:
        """A moment as unix seconds."""
        return self._origin_unix + virtual_s / self._compression
