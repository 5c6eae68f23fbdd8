"""A GPU series as the bytes of one part: in pieces, to a file of its own, and after a death."""

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from raybench.errors import ConfigError, TargetError
from raybench.monitors import recording as module
from raybench.monitors.gpu import GpuDevice, GpuReading, GpuSampler, GpuUnavailable
from raybench.monitors.recording import GpuRecording, monitor_host
from raybench.records.clock import AnchoredClock
from raybench.records.stream import read_part


class Source:
    """One device that always answers; says when it was asked for the third time."""

    def __init__(self, reason: str | None = None) -> None:
        self.warnings: list[str] = []
        self.reason = reason
        self.asked = 0
        self.third = threading.Event()

    def open(self) -> list[GpuDevice]:
        if self.reason is not None:
            raise GpuUnavailable(self.reason)
        return [GpuDevice("GPU-a", 0, "one", 100)]

    def sample(self) -> Iterable[GpuReading]:
        self.asked += 1
        if self.asked == 3:
            self.third.set()
        return [GpuReading("GPU-a", 0, 100, 60, 40)]

    def close(self) -> None: ...


def test_the_pieces_of_a_recording_are_a_part_that_is_readable_before_its_end(tmp_path: Path) -> None:
    source, clock, path = Source(), AnchoredClock(host="gpu-host"), tmp_path / "gpu.arrows"
    recording = GpuRecording(GpuSampler(source, clock, "gpu-host", 0.001), clock.anchor, clock="gpu/gpu-host")
    assert recording.start().available
    assert source.third.wait(10)
    path.write_bytes(recording.take())
    part = read_part(path)
    assert (part.closed, part.table.num_rows >= 2) == (False, True)
    path.write_bytes(path.read_bytes() + recording.end())
    part = read_part(path)
    assert (part.closed, part.table.num_rows) == (True, source.asked)
    assert part.metadata["clock"] == "gpu/gpu-host"
    assert part.anchor == clock.anchor


def test_a_host_outside_the_cluster_is_recorded_into_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSH_S", 0.001)
    source, said, stop = Source(), list[str](), threading.Event()
    ends = threading.Thread(target=lambda: (source.third.wait(10), stop.set()))
    ends.start()
    monitor_host(source, tmp_path / "new", 0.001, stop, said.append)
    ends.join()
    (path,) = (tmp_path / "new").iterdir()
    part = read_part(path)
    assert (part.closed, part.table.num_rows, part.metadata["schema"]) == (True, source.asked, "gpu")
    assert said[0] == "1 devices every 0.001 s: GPU-a (one)"
    assert said[-1] == f"raybench merge RUN --monitor {path}"


def test_o_g1_a_monitor_without_gpus_says_why_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"not available \(nvmlInit: RM has detected"):
        monitor_host(
            Source("nvmlInit: RM has detected an NVML/RM version mismatch"),
            tmp_path,
            0.5,
            threading.Event(),
            print,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_sampled(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    source = Source()
    with pytest.raises(ConfigError, match="--out: cannot be written"):
        monitor_host(source, tmp_path / "file", 0.5, threading.Event(), print)
    assert source.asked == 0


def test_a_sampler_that_hangs_ends_the_process_and_keeps_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLUSH_S", 0.001)
    monkeypatch.setattr("raybench.monitors.gpu.STALL_LIMIT_S", 0.0)
    release = threading.Event()

    class Hanging(Source):
        def sample(self) -> Iterable[GpuReading]:
            release.wait(10)
            return super().sample()

    try:
        with pytest.raises(TargetError, match="a sample has been under way for more than 0 s; start another"):
            monitor_host(Hanging(), tmp_path, 0.001, threading.Event(), print)
    finally:
        release.set()
    (path,) = tmp_path.iterdir()
    assert read_part(path).metadata["schema"] == "gpu"
