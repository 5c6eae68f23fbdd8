"""GPU numbers of the simulated engine, whose memory follows its KV pool: `GET /sim/gpus`.

Runs in the GPU monitor's thread in place of NVML, so that a rehearsal has VRAM series too.
"""

from __future__ import annotations

import http.client
import json
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from raybench.monitors.gpu import GpuDevice, GpuReading, GpuUnavailable

PATH = "/sim/gpus"
TIMEOUT_S = 2.0


class HttpGpuSource:
    """Devices as a JSON list over HTTP. Blocks; a request is given up after TIMEOUT_S."""

    def __init__(self, url: str) -> None:
        self.warnings: list[str] = []
        self._url = url.rstrip("/") + PATH
        # No proxy: the simulated engine is ours, and a proxy variable of the machine is not meant for it.
        self._opener = build_opener(ProxyHandler({}))

    def open(self) -> list[GpuDevice]:
        devices = [
            GpuDevice(
                _text(item, "uuid"),
                _whole(item, "index"),
                _text(item, "name"),
                _whole(item, "memory_total_bytes"),
                "simulated",
            )
            for item in self._get()
        ]
        if not devices:
            raise GpuUnavailable(f"{self._url} lists no device")
        return devices

    def sample(self) -> list[GpuReading]:
        return [_reading(item) for item in self._get()]

    def close(self) -> None:
        self._opener.close()

    def _get(self) -> list[dict[str, object]]:
        try:
            with self._opener.open(self._url, timeout=TIMEOUT_S) as response:
                items = json.load(response)
        except (URLError, OSError, http.client.HTTPException) as error:
            raise GpuUnavailable(f"{self._url}: {error}") from error
        except ValueError as error:
            raise GpuUnavailable(f"{self._url}: not JSON: {error}") from error
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise GpuUnavailable(f"{self._url}: not a list of devices")
        return items


def _reading(item: dict[str, object]) -> GpuReading:
    return GpuReading(
        _text(item, "uuid"),
        _whole(item, "index"),
        memory_total_bytes=_whole(item, "memory_total_bytes"),
        memory_free_bytes=_whole(item, "memory_free_bytes"),
        memory_used_bytes=_whole(item, "memory_used_bytes"),
        memory_reserved_bytes=(
            None if item.get("memory_reserved_bytes") is None else _whole(item, "memory_reserved_bytes")
        ),
        memory_api="sim",
        utilization_gpu_percent=_number_or_none(item, "utilization_gpu_percent"),
        power_w=_number_or_none(item, "power_w"),
    )


def _text(item: dict[str, object], key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise GpuUnavailable(f"{key} is {value!r}, not a text")
    return value


def _whole(item: dict[str, object], key: str) -> int:
    value = item.get(key)
    if not isinstance(value, int):
        raise GpuUnavailable(f"{key} is {value!r}, not a whole number")
    return value


def _number_or_none(item: dict[str, object], key: str) -> float | None:
    value = item.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise GpuUnavailable(f"{key} is {value!r}, not a number")
    return float(value)
