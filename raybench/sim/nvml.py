"""Device memory of the simulated deployment, as NVML would show it; served at `/sim/gpus`.

Memory in use = idle level + a share that follows the highest use of the KV pool since the last flush + one
that follows the highest number of running requests: the allocator gives nothing back before a flush.
"""

from __future__ import annotations

import uuid

from raybench.sim.engine import Engine
from raybench.sim.profiles import MIB

_NAMESPACE = uuid.UUID("6f2d1c36-5b0e-4c7e-9a55-8c0f0b6f3a10")


def read_devices(engine: Engine) -> list[dict[str, object]]:
    """One object a device: index, uuid, name, memory in bytes (used = total - free, reserved in it),
    utilization in percent, power in watts."""
    memory = engine.profile.memory
    pool = engine.pages_peak / engine.pool.pages
    running = engine.running_peak / engine.profile.max_running_requests
    busy = min(engine.admitted / engine.profile.max_running_requests, 1.0)
    active = engine.next_time is not None
    devices: list[dict[str, object]] = []
    for index in range(memory.devices):
        # Ranks differ a little, always in the same way: the first one also holds what rank 0 does alone.
        spread_mib = 96 if index == 0 else 8 * (index % 4)
        grown_mib = memory.kv_full_mib * pool + memory.running_full_mib * running
        used = min(int((memory.idle_mib + grown_mib + spread_mib) * MIB), memory.total_mib * MIB)
        total = memory.total_mib * MIB
        devices.append(
            {
                "index": index,
                "uuid": f"GPU-{uuid.uuid5(_NAMESPACE, f'{engine.profile.name}/{index}')}",
                "name": memory.name,
                "memory_total_bytes": total,
                "memory_free_bytes": total - used,
                "memory_used_bytes": used,
                "memory_reserved_bytes": memory.reserved_mib * MIB,
                "utilization_gpu_percent": 100.0 if active else 0.0,
                "power_w": memory.idle_power_w
                + (memory.full_power_w - memory.idle_power_w) * (0.6 + 0.4 * busy if active else 0.0),
            }
        )
    return devices
