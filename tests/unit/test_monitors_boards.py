"""What the GPUs are: NVML's answers, each of which may be missing."""

from typing import Any

from raybench.monitors.boards import read_boards


class NVMLError(Exception): ...


class Nvml:
    """Two cards that NVLink connects; the second has no ECC."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK = 2, 0

    def __init__(self, *, usable: bool = True) -> None:
        self.usable = usable
        self.shut = 0

    def nvmlInit(self) -> None:
        if not self.usable:
            raise NVMLError("no driver")

    def nvmlShutdown(self) -> None:
        self.shut += 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:
        return {1: 1980, 2: 3201}[clock]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetEccMode(self, handle: int) -> list[int]:
        if handle == 1:
            raise NVMLError("not supported")
        return [1, 1]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 12:
            raise NVMLError("no such link")
        return 1

    def nvmlDeviceGetTopologyCommonAncestor(self, first: int, second: int) -> int:
        return 50

    def nvmlDeviceGetP2PStatus(self, first: int, second: int, caps: int) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        def refuse(*arguments: object) -> None:
            raise NVMLError(f"{name}: not supported")

        return refuse


def test_boards_and_the_ways_between_them() -> None:
    nvml = Nvml()
    told: Any = read_boards(nvml)
    assert [board["uuid"] for board in told["devices"]] == ["GPU-0", "GPU-1"]
    first, second = told["devices"]
    assert (first["sm_clock_mhz_max"], first["memory_clock_mhz_max"], first["power_limit_w"]) == (
        1980,
        3201,
        700.0,
    )
    assert (first["ecc"], second["ecc"], first["nvlinks_active"], first["name"]) == (True, None, 12, None)
    assert told["topology"] == [{"devices": ["GPU-0", "GPU-1"], "pcie": "SYS", "nvlink": True}]
    assert nvml.shut == 1


def test_a_host_without_gpus_has_no_boards() -> None:
    assert read_boards(Nvml(usable=False)) is None
