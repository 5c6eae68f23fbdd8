"""The load worker's own health: how late its event loop runs, and how much CPU its process burns.

Runs inside each load worker. A client that is late or out of CPU is the bottleneck itself, and its
point says so (design 5, self-check). The arithmetic is apart from the timer, so that it can be tested.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from raybench.records.clock import Clock

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

#: How often the loop's punctuality is tested. A blockage shorter than this may pass unseen.
TICK_S = 0.05


class LoopLag:
    """Lateness of ticks on the absolute schedule `start + k x interval`.

    A late tick does not shift the ones after it; ticks that could not run count once, as the lateness
    of the first of them.
    """

    def __init__(self, start_ns: int, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._due_ns = start_ns + interval_ns
        self._worst_ns = 0

    def wait_ns(self, now_ns: int) -> int:
        """How long to wait for the next tick; 0 when it is overdue."""
        return max(0, self._due_ns - now_ns)

    def tick(self, now_ns: int) -> None:
        """The tick ran now."""
        late_ns = max(0, now_ns - self._due_ns)
        self._worst_ns = max(self._worst_ns, late_ns)
        self._due_ns += (late_ns // self._interval_ns + 1) * self._interval_ns

    def take_worst_ns(self, now_ns: int) -> int:
        """The worst lateness since the last call, a tick that is overdue at this moment included."""
        worst_ns = max(self._worst_ns, now_ns - self._due_ns)
        self._worst_ns = 0
        return worst_ns


class CpuShare:
    """CPU time per wall time between two calls: 1.0 is one core, all of the time."""

    def __init__(self, wall_ns: int, cpu_ns: int) -> None:
        self._wall_ns = wall_ns
        self._cpu_ns = cpu_ns

    def take(self, wall_ns: int, cpu_ns: int) -> float | None:
        """The share since the last call (or the start); None when no time has passed."""
        wall, cpu = wall_ns - self._wall_ns, cpu_ns - self._cpu_ns
        self._wall_ns, self._cpu_ns = wall_ns, cpu_ns
        return cpu / wall if wall > 0 else None


class WorkerHealth:
    """Makes the rows of `records.schema.WORKER` for one worker process.

    cpu_ns: user + system time of this process, all threads, without children. sleep: for tests.
    """

    def __init__(
        self,
        worker: str,
        clock: Clock,
        *,
        cpu_ns: Callable[[], int] = time.process_time_ns,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        tick_s: float = TICK_S,
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._cpu_time_ns = cpu_ns
        self._sleep = sleep
        now_ns = clock.monotonic_ns()
        self._lag = LoopLag(now_ns, round(tick_s * NS_PER_S))
        self._cpu = CpuShare(now_ns, cpu_ns())

    async def watch(self) -> None:
        """Test the loop's punctuality until cancelled. Timers of uvloop are whole milliseconds."""
        while True:
            await self._sleep(self._lag.wait_ns(self._clock.monotonic_ns()) / NS_PER_S)
            self._lag.tick(self._clock.monotonic_ns())

    def row(
        self, *, point_id: str, attempt: int, in_flight: int, completed: int, output_tokens_seen: int
    ) -> dict[str, object]:
        """One row; lag and CPU are those since the row before. Call it about once a second."""
        now_ns = self._clock.monotonic_ns()
        return {
            "worker": self._worker,
            "point_id": point_id,
            "attempt": attempt,
            "sample_ns": now_ns,
            "sample_unix_ns": self._clock.unix_ns(),
            "in_flight": in_flight,
            "completed": completed,
            "output_tokens_seen": output_tokens_seen,
            "loop_lag_ms_max": self._lag.take_worst_ns(now_ns) / NS_PER_MS,
            "cpu_share": self._cpu.take(now_ns, self._cpu_time_ns()),
        }
