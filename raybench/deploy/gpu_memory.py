"""How much memory the GPUs of this host have free, and whether it is back after a process has ended.

Runs on the target's host. Blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing

from raybench.monitors.gpu import GpuSource, GpuUnavailable
from raybench.monitors.nvml import NvmlSource

#: Free bytes by UUID; None where there is no GPU that tells.
FreeMemory = Mapping[str, int] | None

#: Contexts of other processes come and go; a model is larger.
TOLERANCE_BYTES = 256 * 1024**2
_POLL_S = 0.2


def free_memory(make_source: Callable[[], GpuSource] = NvmlSource) -> FreeMemory:
    """Read it once."""
    source = make_source()
    try:
        source.open()
    except GpuUnavailable:
        return None
    with closing(source):
        free = {
            reading.gpu_uuid: reading.memory_free_bytes
            for reading in source.sample()
            if reading.memory_free_bytes is not None
        }
    return free or None


def wait_released(
    before: FreeMemory, timeout_s: float, read: Callable[[], FreeMemory] = free_memory
) -> tuple[float | None, list[str]]:
    """Wait until each GPU has as much free memory as before: (seconds, what is still held after the limit).

    Seconds are None when there is nothing to compare.
    """
    if before is None:
        return None, []
    began = time.monotonic()
    while held := _held(before, read()):
        if time.monotonic() - began >= timeout_s:
            break
        time.sleep(_POLL_S)
    return time.monotonic() - began, held


def _held(before: Mapping[str, int], now: FreeMemory) -> list[str]:
    missing = {uuid: free - (now or {}).get(uuid, 0) for uuid, free in before.items()}
    return [f"{uuid} {size / 1024**2:,.0f} MiB" for uuid, size in missing.items() if size > TOLERANCE_BYTES]
