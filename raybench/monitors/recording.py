"""A GPU sampler's rows as the successive bytes of one part, wherever these bytes go.

Runs on the target's host: in the monitor's actor, which sends them to the coordinator, and in `raybench monitor`,
a plain process on a host outside the Ray cluster, which writes them to a file of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from raybench.errors import ConfigError, ConfigProblem, TargetError
from raybench.monitors.gpu import GpuSampler, GpuSource, GpuStatus
from raybench.records.clock import AnchoredClock, ClockAnchor
from raybench.records.files import append_all, sync_folder
from raybench.records.schema import GPU
from raybench.records.stream import ArrowEncoder, part_metadata

#: How often samples leave the process; a crash loses at most this much.
FLUSH_S = 0.5


class GpuRecording:
    """`start`, then `take` as often as one likes, then `end`: their bytes in this order are a part.

    labels: of the part's metadata, beside its schema and the anchor of its clock.
    """

    def __init__(self, sampler: GpuSampler, anchor: ClockAnchor, **labels: str) -> None:
        self._sampler = sampler
        self._encoder = ArrowEncoder(GPU, part_metadata("gpu", anchor, **labels))

    def start(self) -> GpuStatus:
        """Sample from now on where there is something to sample; what was found. Blocks for the opening."""
        return self._sampler.start()

    def status(self) -> GpuStatus:
        return self._sampler.status()

    def take(self) -> bytes:
        """The rows since the last call. Raises RuntimeError when the sampling thread died of a bug."""
        return self._encoder.encode(self._sampler.drain())

    def end(self) -> bytes:
        """The last rows and the end mark, by which a reader knows that nothing is missing. Blocks."""
        self._sampler.stop()
        return self._encoder.encode(self._sampler.drain()) + self._encoder.close()


def record(recording: GpuRecording, path: Path, stop: threading.Event) -> None:
    """Write a started recording to a new file, on disk twice a second, until `stop` is set.

    A killed process leaves a file that is readable up to its last whole batch. Raises TargetError when the sampler
    hangs, so that whoever supervises the process starts another, with another file.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        sync_folder(path.parent)
        while not stop.wait(FLUSH_S):
            append_all(file, recording.take())
            os.fsync(file)
            if (stalled := recording.status().stalled) is not None:
                raise TargetError("gpu_monitor", f"{stalled}; start another monitor, {path} is kept")
        append_all(file, recording.end())
        os.fsync(file)
    finally:
        os.close(file)


def monitor_host(
    source: GpuSource, out: Path, interval_s: float, stop: threading.Event, say: Callable[[str], object]
) -> None:
    """`raybench monitor`: sample this host's GPUs into a new file under `out` until `stop` is set.

    Raises TargetError without GPU data, ConfigError for a folder that cannot be written.
    """
    clock = AnchoredClock()
    host = clock.anchor.host
    recording = GpuRecording(GpuSampler(source, clock, host, interval_s), clock.anchor)
    try:
        out.mkdir(parents=True, exist_ok=True)
        status = recording.start()
        if not status.available:
            raise TargetError("gpu_monitor", status.summary)
        path = out / f"gpu-{host}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.arrows"
        names = ", ".join(f"{device.uuid} ({device.name})" for device in status.devices)
        say(f"{len(status.devices)} devices every {interval_s:g} s: {names}")
        say(f"writing {path}; end it with Ctrl-C or SIGTERM")
        record(recording, path, stop)
    except OSError as error:
        problem = ConfigProblem(f"cannot be written: {error.strerror}", path="--out", value=str(out))
        raise ConfigError("options", problem) from None
    say(f"{recording.status().samples} samples, {recording.status().gap_rows} gaps; take them into a run with")
    say(f"raybench merge RUN --monitor {path}")
