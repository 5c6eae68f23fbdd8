"""GPU numbers from NVML, through the package nvidia-ml-py (module `pynvml`).

Runs in the GPU monitor on the target's host. Every field is optional: what a device does not support
or does not permit is None, with one warning per device and field (case O-G1). Process lists and PCIe
throughput are left out on purpose: they take milliseconds under the driver's global lock.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from raybench.monitors.gpu import GpuDevice, GpuReading, GpuUnavailable


@dataclass
class _Handle:
    """A device with its NVML handle. `memory_api` is fixed by the first answer, so that one series
    never mixes two definitions of used memory."""

    device: GpuDevice
    nvml_handle: Any
    memory_api: str = "v2"


def open_nvml(nvml: Any = None) -> Any:
    """NVML, initialised; whoever opened it calls `nvmlShutdown`. Raises GpuUnavailable.

    nvml: stands in for the module `pynvml`, which is otherwise imported.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError as error:
            raise GpuUnavailable(f"the package nvidia-ml-py cannot be imported: {error}") from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise GpuUnavailable(f"nvmlInit: {error}") from error
    return nvml


class _DeviceLost(Exception):
    """NVML says that the device is gone; no further call to it can succeed."""


class NvmlSource:
    """All devices that NVML shows to this process, in NVML's order (CUDA_VISIBLE_DEVICES plays no part).

    nvml: as in `open_nvml`, which `open()` calls.
    """

    def __init__(self, nvml: Any = None) -> None:
        self.warnings: list[str] = []
        self._nvml = nvml
        self._handles: list[_Handle] = []

    def open(self) -> list[GpuDevice]:
        """Initialise NVML, once until `close()`, and list the devices. Raises GpuUnavailable."""
        nvml = self._nvml = open_nvml(self._nvml)
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.close()
            raise GpuUnavailable(f"nvmlDeviceGetCount: {error}") from error
        driver = None
        with suppress(_DeviceLost):  # a device that is lost is told when it is asked for itself
            driver = self._ask("driver", "version", nvml.nvmlSystemGetDriverVersion)
        self._handles = [handle for index in range(count) for handle in self._find(index, driver)]
        if not self._handles:
            self.close()
            raise GpuUnavailable("; ".join(self.warnings) or "NVML shows no device")
        return [handle.device for handle in self._handles]

    def sample(self) -> Iterator[GpuReading]:
        """Read each device that is still there; a device that is lost now is given once more, as lost."""
        for handle in tuple(self._handles):
            try:
                yield self._read(handle)
            except _DeviceLost as lost:
                self._handles.remove(handle)
                self.warnings.append(f"{handle.device.uuid}: {lost}")
                yield GpuReading(handle.device.uuid, handle.device.index, lost=str(lost))

    def close(self) -> None:
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            self.warnings.append(f"nvmlShutdown: {error}")

    def _find(self, index: int, driver: str | None) -> Iterator[_Handle]:
        """The device at an index, or its MIG instances when it is divided (then only they have memory)."""
        nvml = self._nvml
        place = f"device {index}"
        try:
            nvml_handle = self._ask(place, "handle", nvml.nvmlDeviceGetHandleByIndex, index)
            if nvml_handle is None:
                return
            whole = self._describe(nvml_handle, index, driver)
            instances = list(self._instances(whole)) if self._is_divided(nvml_handle) else []
        except _DeviceLost as lost:
            self.warnings.append(f"{place}: {lost}")
            return
        for handle in instances or [whole]:
            yield from self._measured(handle)

    def _is_divided(self, nvml_handle: Any) -> bool:
        """MIG mode is on. GPUs without MIG answer NotSupported, which is no news."""
        try:
            current, _pending = self._nvml.nvmlDeviceGetMigMode(nvml_handle)
        except self._nvml.NVMLError:
            return False
        return bool(current == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _instances(self, whole: _Handle) -> Iterator[_Handle]:
        nvml, parent = self._nvml, whole.device
        slots = self._ask(parent.uuid, "MIG instances", nvml.nvmlDeviceGetMaxMigDeviceCount, whole.nvml_handle)
        for slot in range(slots or 0):
            try:
                nvml_handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole.nvml_handle, slot)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_NOT_FOUND:
                    self._refused(parent.uuid, f"MIG instance {slot}", error)
                continue
            yield self._describe(nvml_handle, parent.index, parent.driver_version, parent=parent.uuid, slot=slot)

    def _describe(
        self, nvml_handle: Any, index: int, driver: str | None, *, parent: str | None = None, slot: int = 0
    ) -> _Handle:
        nvml = self._nvml
        place = f"device {index}" if parent is None else f"{parent}, MIG instance {slot}"
        uuid = self._ask(place, "uuid", nvml.nvmlDeviceGetUUID, nvml_handle) or place
        name = self._ask(uuid, "name", nvml.nvmlDeviceGetName, nvml_handle)
        return _Handle(GpuDevice(uuid, index, name, None, driver, parent), nvml_handle)

    def _measured(self, handle: _Handle) -> Iterator[_Handle]:
        """The handle with the size of its memory; nothing when the device is lost already."""
        try:
            total = self._memory(handle).get("memory_total_bytes")
        except _DeviceLost as lost:
            self.warnings.append(f"{handle.device.uuid}: {lost}")
            return
        handle.device = replace(handle.device, memory_total_bytes=total)
        yield handle

    def _read(self, handle: _Handle) -> GpuReading:
        nvml, target, uuid = self._nvml, handle.nvml_handle, handle.device.uuid
        memory = self._memory(handle)
        if handle.device.parent_uuid is not None:
            # The board's utilization, power and clocks are not an instance's, and NVML has none for it.
            return GpuReading(uuid, handle.device.index, **memory)
        ask = partial(self._ask, uuid)
        rates = ask("utilization", nvml.nvmlDeviceGetUtilizationRates, target)
        power_mw = ask("power", nvml.nvmlDeviceGetPowerUsage, target)
        temperature_c = ask("temperature", nvml.nvmlDeviceGetTemperature, target, nvml.NVML_TEMPERATURE_GPU)
        clock_mhz = ask("SM clock", nvml.nvmlDeviceGetClockInfo, target, nvml.NVML_CLOCK_SM)
        reasons = ask("clock event reasons", nvml.nvmlDeviceGetCurrentClocksEventReasons, target)
        return GpuReading(
            uuid,
            handle.device.index,
            **memory,
            utilization_gpu_percent=None if rates is None else float(rates.gpu),
            utilization_memory_percent=None if rates is None else float(rates.memory),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=None if temperature_c is None else float(temperature_c),
            sm_clock_mhz=None if clock_mhz is None else float(clock_mhz),
            clock_event_reasons=reasons,
        )

    def _memory(self, handle: _Handle) -> dict[str, Any]:
        """Memory columns as reported (case O-G2): by version 2, or by version 1 where 2 does not exist."""
        nvml, target, uuid = self._nvml, handle.nvml_handle, handle.device.uuid
        if handle.memory_api == "v2":
            try:
                info = nvml.nvmlDeviceGetMemoryInfo(target, version=nvml.nvmlMemory_v2)
            except nvml.NVMLError as error:
                absent = (
                    nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                    nvml.NVML_ERROR_NOT_SUPPORTED,
                    nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
                )
                if error.value not in absent:
                    self._refused(uuid, "memory", error)
                    return {}
                handle.memory_api = "v1"
            else:
                return _memory_columns(info, int(info.reserved), "v2")
        info = self._ask(uuid, "memory", nvml.nvmlDeviceGetMemoryInfo, target)
        return {} if info is None else _memory_columns(info, None, "v1")

    def _ask(self, who: str, field: str, call: Callable[..., Any], *arguments: object) -> Any:
        """What the call returns; None, and a warning the first time, when the device refuses."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            self._refused(who, field, error)
            return None

    def _refused(self, who: str, field: str, error: Any) -> None:
        nvml = self._nvml
        gone = (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_GPU_NOT_FOUND)
        if error.value in gone:
            raise _DeviceLost(str(error)) from error
        start = f"{who}: {field} not available"
        if not any(warning.startswith(start) for warning in self.warnings):
            self.warnings.append(f"{start} ({error})")


def _memory_columns(info: Any, reserved_bytes: int | None, api: str) -> dict[str, Any]:
    return {
        "memory_total_bytes": int(info.total),
        "memory_free_bytes": int(info.free),
        "memory_used_bytes": int(info.used),
        "memory_reserved_bytes": reserved_bytes,
        "memory_api": api,
    }
