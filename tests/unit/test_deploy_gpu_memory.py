"""Whether GPU memory is back after a process has ended."""

from collections.abc import Iterable

import pytest

from raybench.deploy.gpu_memory import TOLERANCE_BYTES, free_memory, wait_released
from raybench.monitors.gpu import GpuDevice, GpuReading, GpuUnavailable

GIB = 1024**3


class Source:
    """`monitors.gpu.GpuSource` of two cards, the second of which does not tell."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.closed = False

    def open(self) -> list[GpuDevice]:
        return [GpuDevice("a", 0, "card", 16 * GIB), GpuDevice("b", 1, "card", 16 * GIB)]

    def sample(self) -> Iterable[GpuReading]:
        return [GpuReading("a", 0, memory_free_bytes=3 * GIB), GpuReading("b", 1)]

    def close(self) -> None:
        self.closed = True


class NoSource(Source):
    def open(self) -> list[GpuDevice]:
        raise GpuUnavailable("no driver")


def test_free_memory_is_by_device_and_unknown_without_one() -> None:
    source = Source()
    assert free_memory(lambda: source) == {"a": 3 * GIB}
    assert source.closed
    assert free_memory(NoSource) is None


def test_a_few_pages_of_somebody_else_are_no_reason_to_wait() -> None:
    seconds, held = wait_released({"a": 8 * GIB}, 10, lambda: {"a": 8 * GIB - TOLERANCE_BYTES})
    assert (seconds is not None and seconds < 10, held) == (True, [])


def test_what_is_still_held_is_named_with_its_size() -> None:
    _, held = wait_released({"a": 8 * GIB, "b": GIB}, 0, lambda: {"a": 2 * GIB, "b": GIB})
    assert held == ["a 6,144 MiB"]
    _, lost = wait_released({"a": 8 * GIB}, 0, lambda: None)
    assert lost == ["a 8,192 MiB"]


def test_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr("raybench.deploy.gpu_memory.time.sleep", naps.append)
    looks = iter([{"a": GIB}, {"a": GIB}, {"a": 8 * GIB}])
    _, held = wait_released({"a": 8 * GIB}, 10, lambda: next(looks))
    assert (len(naps), held) == (2, [])


def test_without_numbers_nothing_is_waited_for() -> None:
    assert wait_released(None, 10, lambda: None) == (None, [])
