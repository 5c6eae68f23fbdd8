"""What the GPUs of a host are, beyond their memory: clocks, power, links, and how they are connected.

Runs on the target's host, once an arm. From NVML, where each answer is optional: None = not told.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from raybench.monitors.gpu import GpuUnavailable
from raybench.monitors.nvml import open_nvml

#: NVML's levels of the closest common ancestor of two devices, from near to far, as `nvidia-smi topo -m` has them.
_ANCESTORS = {0: "same board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_LINKS_MAX = 18


def read_boards(nvml: Any = None) -> dict[str, object] | None:
    """Boards in NVML's order and their topology; None where NVML cannot be used.

    topology: by pair of UUIDs, the way between them by PCIe, and whether there is one by NVLink.
    nvml: as in `open_nvml`.
    """
    try:
        nvml = open_nvml(nvml)
    except GpuUnavailable:
        return None
    try:
        return _Boards(nvml).read()
    finally:
        nvml.nvmlShutdown()


class _Boards:
    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def read(self) -> dict[str, object]:
        nvml = self._nvml
        count = self._ask(nvml.nvmlDeviceGetCount) or 0
        found = [self._ask(nvml.nvmlDeviceGetHandleByIndex, number) for number in range(count)]
        handles = [handle for handle in found if handle is not None]
        return {
            "driver_version": self._ask(nvml.nvmlSystemGetDriverVersion),
            "cuda_driver_version": self._ask(nvml.nvmlSystemGetCudaDriverVersion),
            "devices": [self._board(handle) for handle in handles],
            "topology": [self._way(*pair) for pair in combinations(handles, 2)],
        }

    def _board(self, handle: Any) -> dict[str, object]:
        nvml, ask = self._nvml, self._ask
        limit_mw = ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        ecc = ask(nvml.nvmlDeviceGetEccMode, handle)
        links = [ask(nvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(_LINKS_MAX)]
        return {
            "uuid": ask(nvml.nvmlDeviceGetUUID, handle),
            "name": ask(nvml.nvmlDeviceGetName, handle),
            "compute_capability": ask(nvml.nvmlDeviceGetCudaComputeCapability, handle),
            "sm_clock_mhz": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "sm_clock_mhz_max": ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            "memory_clock_mhz_max": ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
            "power_limit_w": None if limit_mw is None else limit_mw / 1000,
            "ecc": None if ecc is None else bool(ecc[0]),
            "pcie_generation": ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "pcie_width": ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            "nvlinks_active": sum(bool(link) for link in links),
        }

    def _way(self, first: Any, second: Any) -> dict[str, object]:
        nvml = self._nvml
        level = self._ask(nvml.nvmlDeviceGetTopologyCommonAncestor, first, second)
        peer = self._ask(nvml.nvmlDeviceGetP2PStatus, first, second, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        return {
            "devices": [self._ask(nvml.nvmlDeviceGetUUID, one) for one in (first, second)],
            "pcie": None if level is None else _ANCESTORS.get(int(level), str(level)),
            "nvlink": None if peer is None else bool(peer == nvml.NVML_P2P_STATUS_OK),
        }

    def _ask(self, call: Callable[..., Any], *arguments: object) -> Any:
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None
