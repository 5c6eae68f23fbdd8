"""The load worker's own health: how late it reads and sends, how much is waiting, how much CPU it burns.

Runs inside each load worker. A client that is late or out of CPU is the bottleneck itself, and its
point says so. The arithmetic is apart from the timer, so that it can be tested.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

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


class Unread:
    """What lay in the receive queues of sampled streams when we looked: read too late by so much.

    A healthy client finds few of them with anything, since it reads what comes when it comes. Looks fall into the
    moment at which an engine has sent a whole batch as often as they fall anywhere: a mean says something, a
    single look does not.
    """

    def __init__(self) -> None:
        self._looks = self._waiting = self._most = 0

    def look(self, waiting_bytes: Sequence[int]) -> None:
        self._looks += len(waiting_bytes)
        self._waiting += sum(1 for count in waiting_bytes if count)
        self._most = max(self._most, max(waiting_bytes, default=0))

    def take(self) -> tuple[float | None, int | None]:
        """(share of streams with something unread, most bytes in one) since the last call; None = no look."""
        looks, waiting, most = self._looks, self._waiting, self._most
        self._looks = self._waiting = self._most = 0
        return (waiting / looks, most) if looks else (None, None)


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
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._cpu_time_ns = cpu_ns
        self._sleep = sleep
        now_ns = clock.monotonic_ns()
        self._lag = LoopLag(now_ns, round(TICK_S * NS_PER_S))
        self._cpu = CpuShare(now_ns, cpu_ns())
        self._unread = Unread()
        self._send_delay_ns: int | None = None

    async def watch(self, unread: Callable[[], Sequence[int]]) -> None:
        """Test the loop's punctuality until cancelled. Timers of uvloop are whole milliseconds.

        unread: looks into the receive queues (`load.client.Client.unread`); a tick comes before the reads that
        are due.
        """
        while True:
            await self._sleep(self._lag.wait_ns(self._clock.monotonic_ns()) / NS_PER_S)
            self._lag.tick(self._clock.monotonic_ns())
            self._unread.look(unread())

    def started(self, late_ns: int) -> None:
        """A request was begun so long after it was due: by the start ramp, or by an open loop's schedule."""
        self._send_delay_ns = max(self._send_delay_ns or 0, late_ns)

    def row(
        self, *, point_id: str, attempt: int, in_flight: int, completed: int, output_tokens_seen: int
    ) -> dict[str, object]:
        """One row; all but the counts are those since the row before."""
        now_ns = self._clock.monotonic_ns()
        unread_share, unread_bytes = self._unread.take()
        delay_ns, self._send_delay_ns = self._send_delay_ns, None
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
            "send_delay_ms_max": None if delay_ns is None else delay_ns / NS_PER_MS,
            "unread_streams_share": unread_share,
            "unread_bytes_max": unread_bytes,
        }
