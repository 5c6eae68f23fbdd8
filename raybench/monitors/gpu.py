"""Samples the GPUs of one host on an absolute schedule and keeps the rows until they are collected.

Runs on the target's host, in one thread of one process; `cluster/gpu_watch.py` wraps it into an actor.
Where the numbers come from is a `GpuSource`: `monitors/nvml.py` reads real devices,
`monitors/sim_gpu.py` the simulated engine's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from raybench.errors import RaybenchError
from raybench.records.clock import Clock

#: A sample later than this many intervals after the one before it leaves a marked gap.
GAP_INTERVALS = 3

#: Rows kept for a collector that does not come: eight devices at 10 Hz for more than ten minutes.
BUFFER_ROWS = 50_000

#: A sample under way for longer than this hangs in the driver, and the monitor has to be replaced.
STALL_LIMIT_S = 10.0

#: Gaps that are remembered for those who ask; the rows on disk have all of them.
GAPS_KEPT = 1000

#: How long `stop()` waits for a sample under way.
STOP_LIMIT_S = 10.0

NS_PER_S = 1_000_000_000


class GpuUnavailable(RaybenchError):
    """A source has no data, now or at all; the text is the reason that the report shows."""


@dataclass(frozen=True)
class GpuDevice:
    """One GPU, or one MIG instance. `index` is NVML's order, a MIG instance has its parent's."""

    uuid: str
    index: int
    name: str | None
    memory_total_bytes: int | None
    driver_version: str | None = None
    parent_uuid: str | None = None


@dataclass(frozen=True)
class GpuReading:
    """One device, read once. None = the device does not give this field; `lost` = it gives nothing more.

    Memory in bytes exactly as reported; `memory_api` names which definition of "used" that is.
    """

    gpu_uuid: str
    gpu_index: int
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_api: str | None = None
    utilization_gpu_percent: float | None = None
    utilization_memory_percent: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    clock_event_reasons: int | None = None
    lost: str | None = None


class GpuSource(Protocol):
    """Where GPU numbers come from. Used by one thread at a time."""

    warnings: list[str]

    def open(self) -> list[GpuDevice]:
        """The devices, in index order, at least one. Raises GpuUnavailable."""

    def sample(self) -> Iterable[GpuReading]:
        """Every device that is still there, and once each that was lost. Raises GpuUnavailable."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class GpuGap:
    """A gap in the series: the text of its mark, and when it ended, on the sampling host's clock."""

    ended_unix_ns: int
    text: str


@dataclass(frozen=True)
class GpuStatus:
    """What can be said of the series so far.

    reason: why there is no data, None when there is. samples: rows with data. gap_rows: rows marked as a gap.
    failing: why the newest samples could not be taken, None when the newest could. stalled: why no more can
    come from this sampler, None when all is well. gaps: the newest ones, one where all devices have the same.
    last_seen_unix_ns: by UUID, the last sample of each device that was lost.
    """

    available: bool
    reason: str | None = None
    devices: tuple[GpuDevice, ...] = ()
    warnings: tuple[str, ...] = ()
    samples: int = 0
    gap_rows: int = 0
    failing: str | None = None
    stalled: str | None = None
    gaps: tuple[GpuGap, ...] = ()
    last_seen_unix_ns: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def problem(self) -> str | None:
        """Why there is no data now, or none of some device; None when all devices give data."""
        if not self.available:
            return self.reason
        problems = [f"{uuid} lost, {_last_seen(stamp)}" for uuid, stamp in self.last_seen_unix_ns.items()]
        if self.failing is not None:
            problems.append(f"samples fail: {self.failing}")
        if self.stalled is not None:
            problems.append(self.stalled)
        return "; ".join(problems) or None

    @property
    def summary(self) -> str:
        """One line for the report."""
        if not self.available:
            return f"GPU data: not available ({self.reason})"
        counts = f"GPU data: {len(self.devices)} devices, {self.samples} samples, {self.gap_rows} gaps"
        return counts if self.problem is None else f"{counts}; {self.problem}"


class GpuSampler:
    """Rows of `records.schema.GPU` for one host.

    `start()` and `stop()` run it in a thread of its own; a test calls `open()` and `sample_once()`.
    opening_note: marks the first row of each device as a gap, since it goes on for a sampler that died.
    """

    def __init__(
        self,
        source: GpuSource,
        clock: Clock,
        host: str,
        interval_s: float,
        *,
        opening_note: str | None = None,
        buffer_rows: int = BUFFER_ROWS,
    ) -> None:
        self._source = source
        self._clock = clock
        self._host = host
        self._interval_ns = round(interval_s * NS_PER_S)
        self._opening_note = opening_note
        self._lock = threading.Lock()
        self._rows: deque[dict[str, object]] = deque(maxlen=buffer_rows)
        self._dropped = 0
        self._failing: str | None = None
        self._status = GpuStatus(False, "not started")
        self._warnings: list[str] = []
        self._samples = 0
        self._gap_rows = 0
        self._gaps: deque[GpuGap] = deque(maxlen=GAPS_KEPT)
        self._round_ns: int | None = None
        self._seen: dict[str, tuple[int, int]] = {}
        self._lost: dict[str, int | None] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self) -> GpuStatus:
        """Find the devices."""
        try:
            self._status = GpuStatus(True, devices=tuple(self._source.open()))
        except GpuUnavailable as unavailable:
            self._status = GpuStatus(False, str(unavailable))
        return self.status()

    def sample_once(self) -> None:
        """Read every device once. All rows of a round carry the stamp of its beginning."""
        now_ns, unix_ns = self._clock.monotonic_ns(), self._clock.unix_ns()
        self._round_ns = now_ns
        try:
            readings = list(self._source.sample())
        except GpuUnavailable as unavailable:
            # Nothing is written: the next row that comes marks the gap, with its length.
            self._failing = str(unavailable)
            self._warn(f"a sample failed: {unavailable}")
            return
        finally:
            self._round_ns = None
        self._failing = None
        with self._lock:
            rows = [self._row(reading, now_ns, unix_ns) for reading in readings]
            self._dropped += max(0, len(self._rows) + len(rows) - (self._rows.maxlen or 0))
            self._rows.extend(rows)

    def start(self) -> GpuStatus:
        """`open()`, and when there are devices, sample them until `stop()`. Blocks for the opening."""
        status = self.open()
        if status.available:
            self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)
            self._thread.start()
        return status

    def stop(self) -> None:
        """End the thread and close the source; rows not yet drained stay. May be called twice.

        A thread that hangs in a call to the source, as NVML can on a dying GPU, is left behind.
        """
        self._stop.set()
        hangs = False
        if self._thread is not None:
            self._thread.join(STOP_LIMIT_S)
            hangs = self._thread.is_alive()
            self._thread = None
        if self._status.available:
            if hangs:
                self._warn(f"a sample did not end within {STOP_LIMIT_S:g} s")
            else:
                self._source.close()
            self._status = GpuStatus(False, "stopped", self._status.devices)

    def drain(self) -> list[dict[str, object]]:
        """The rows since the last call, oldest first.

        Rows that were pushed out because nobody came for them leave a gap mark on the next row of
        each device. Raises RuntimeError when the sampling thread died of a bug.
        """
        if self._died:
            raise RuntimeError("the GPU sampling thread died; its traceback is on stderr")
        with self._lock:
            rows, dropped = list(self._rows), self._dropped
            self._rows.clear()
            self._dropped = 0
            if dropped:
                note = f"{dropped} rows of this host were dropped before this one"
                self._mark_first_of_each_device(rows, note)
        if dropped:
            self._warn("rows were dropped: they were not collected in time")
        return rows

    def status(self) -> GpuStatus:
        return replace(
            self._status,
            warnings=(*self._source.warnings, *self._warnings),
            samples=self._samples,
            gap_rows=self._gap_rows,
            failing=self._failing,
            stalled=self._stalled(),
            gaps=tuple(self._gaps),
            last_seen_unix_ns=dict(self._lost),
        )

    @property
    def _died(self) -> bool:
        return self._thread is not None and not self._thread.is_alive() and not self._stop.is_set()

    def _stalled(self) -> str | None:
        if self._died:
            return "the sampling thread died"
        began_ns = self._round_ns
        if began_ns is not None and self._clock.monotonic_ns() - began_ns > STALL_LIMIT_S * NS_PER_S:
            return f"a sample has been under way for more than {STALL_LIMIT_S:g} s"
        return None

    def _run(self) -> None:
        started_ns = self._clock.monotonic_ns()
        while not self._stop.is_set():
            self.sample_once()
            now_ns = self._clock.monotonic_ns()
            self._stop.wait((next_due_ns(started_ns, self._interval_ns, now_ns) - now_ns) / NS_PER_S)

    def _row(self, reading: GpuReading, now_ns: int, unix_ns: int) -> dict[str, object]:
        values = asdict(reading)
        lost = values.pop("lost")
        last_ns, last_unix_ns = self._seen.get(reading.gpu_uuid, (None, None))
        note = None
        if lost is not None:
            note = f"device lost ({lost}); {_last_seen(last_unix_ns)}"
            self._lost[reading.gpu_uuid] = last_unix_ns
        else:
            if last_ns is None:
                note = self._opening_note
            elif now_ns - last_ns > GAP_INTERVALS * self._interval_ns:
                note = f"no sample for {(now_ns - last_ns) / NS_PER_S:.3f} s"
            if note is not None:
                self._remember(GpuGap(unix_ns, note))
            self._seen[reading.gpu_uuid] = (now_ns, unix_ns)
            self._samples += 1
        self._gap_rows += note is not None
        stamps = {"host": self._host, "sample_ns": now_ns, "sample_unix_ns": unix_ns}
        return stamps | values | {"gap": note is not None, "note": note}

    def _mark_first_of_each_device(self, rows: list[dict[str, Any]], note: str) -> None:
        marked = set()
        for row in rows:
            if row["gpu_uuid"] not in marked:
                marked.add(row["gpu_uuid"])
                self._gap_rows += not row["gap"]
                row["note"] = note if row["note"] is None else f"{row['note']}; {note}"
                row["gap"] = True
                self._remember(GpuGap(row["sample_unix_ns"], note))

    def _remember(self, gap: GpuGap) -> None:
        if not self._gaps or self._gaps[-1] != gap:
            self._gaps.append(gap)

    def _warn(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.append(message)


def next_due_ns(started_ns: int, interval_ns: int, now_ns: int) -> int:
    """The first tick of the schedule `started + k x interval` after now; ticks that passed are left out."""
    return started_ns + ((now_ns - started_ns) // interval_ns + 1) * interval_ns


def _last_seen(unix_ns: int | None) -> str:
    if unix_ns is None:
        return "never seen"
    return f"last seen at {datetime.fromtimestamp(unix_ns / NS_PER_S, UTC).isoformat(timespec='milliseconds')}"
