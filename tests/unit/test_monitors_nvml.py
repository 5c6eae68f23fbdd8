"""NVML as it really answers: fields, devices or all of it missing, two memory interfaces, MIG."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from raybench.monitors.gpu import GpuSampler, GpuUnavailable
from raybench.monitors.nvml import NvmlSource
from raybench.records.schema import GPU

MIB = 1024 * 1024
S = 1_000_000_000


class FakeClock:
    """Moves half a second each time it is asked for the wall time, which is once a round."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        self.now_ns += S // 2
        return 1_700_000_000 * S + self.now_ns


class FakeDevice:
    """A GPU with all fields; `refuses` names those that raise, and with which code.

    `lost_after`: samples until every call raises GpuIsLost. A sample begins with the memory.
    """

    def __init__(
        self,
        uuid: str,
        refuses: dict[str, int] | None = None,
        *,
        lost_after: int | None = None,
        instances: dict[int, "FakeDevice"] | None = None,
    ) -> None:
        self.uuid = uuid
        self.refuses = refuses or {}
        self.lost_after = lost_after
        self.instances = instances or {}
        self.v1 = SimpleNamespace(total=80_000 * MIB, free=30_000 * MIB, used=50_000 * MIB)
        self.v2 = SimpleNamespace(total=80_000 * MIB, free=30_000 * MIB, used=49_400 * MIB, reserved=600 * MIB)
        self.asked: list[str] = []

    def answer(self, field: str, value: Any) -> Any:
        self.asked.append(field)
        if self.lost_after is not None and self.asked.count("memory_v2") > self.lost_after:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if field in self.refuses:
            raise pynvml.NVMLError(self.refuses[field])
        return value


class FakeNvml:
    """The module `pynvml` over fake devices, with the real module's constants and errors."""

    def __init__(self, *devices: FakeDevice, init_error: int | None = None) -> None:
        self.devices = devices
        self.init_error = init_error
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:
        self.calls.append("init")
        if self.init_error is not None:
            raise pynvml.NVMLError(self.init_error)

    def nvmlShutdown(self) -> None:
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self.devices[index].answer("handle", self.devices[index])

    def nvmlDeviceGetUUID(self, device: FakeDevice) -> Any:
        return device.answer("uuid", device.uuid)

    def nvmlDeviceGetName(self, device: FakeDevice) -> Any:
        return device.answer("name", "NVIDIA Test")

    def nvmlDeviceGetMemoryInfo(self, device: FakeDevice, version: int | None = None) -> Any:
        if version == pynvml.nvmlMemory_v2:
            return device.answer("memory_v2", device.v2)
        return device.answer("memory_v1", device.v1)

    def nvmlDeviceGetUtilizationRates(self, device: FakeDevice) -> Any:
        return device.answer("utilization", SimpleNamespace(gpu=97, memory=41))

    def nvmlDeviceGetPowerUsage(self, device: FakeDevice) -> Any:
        return device.answer("power", 612_345)

    def nvmlDeviceGetTemperature(self, device: FakeDevice, sensor: int) -> Any:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return device.answer("temperature", 61)

    def nvmlDeviceGetClockInfo(self, device: FakeDevice, kind: int) -> Any:
        assert kind == pynvml.NVML_CLOCK_SM
        return device.answer("clock", 1980)

    def nvmlDeviceGetCurrentClocksEventReasons(self, device: FakeDevice) -> Any:
        return device.answer("reasons", 0x4)

    def nvmlDeviceGetMigMode(self, device: FakeDevice) -> list[int]:
        if not device.instances:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [pynvml.NVML_DEVICE_MIG_ENABLE, pynvml.NVML_DEVICE_MIG_ENABLE]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: FakeDevice) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: FakeDevice, slot: int) -> FakeDevice:
        if slot not in device.instances:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return device.instances[slot]


def sampler_of(nvml: FakeNvml) -> GpuSampler:
    sampler = GpuSampler(NvmlSource(nvml), FakeClock(), "gpu-host", 0.5)
    sampler.open()
    return sampler


def column(rows: list[dict[str, object]], uuid: str, name: str) -> list[object]:
    return [row[name] for row in rows if row["gpu_uuid"] == uuid]


@pytest.fixture
def o_g1() -> tuple[GpuSampler, list[dict[str, object]]]:
    """Case O-G1, first input, after eight samples."""
    sampler = sampler_of(
        FakeNvml(
            FakeDevice("GPU-0", {"utilization": pynvml.NVML_ERROR_NOT_SUPPORTED}),
            FakeDevice(
                "GPU-1",
                {
                    "memory_v1": pynvml.NVML_ERROR_NOT_SUPPORTED,
                    "memory_v2": pynvml.NVML_ERROR_NOT_SUPPORTED,
                },
            ),
            FakeDevice("GPU-2", lost_after=1 + 5),  # one read at the opening, for the size
        )
    )
    for _ in range(8):
        sampler.sample_once()
    return sampler, sampler.drain()


Sampled = tuple[GpuSampler, list[dict[str, object]]]


def test_o_g1_an_unsupported_field_is_null_and_the_others_go_on(o_g1: Sampled) -> None:
    _, rows = o_g1
    assert column(rows, "GPU-0", "utilization_gpu_percent") == [None] * 8
    assert column(rows, "GPU-0", "utilization_memory_percent") == [None] * 8
    assert column(rows, "GPU-0", "memory_free_bytes") == [30_000 * MIB] * 8
    assert column(rows, "GPU-0", "power_w") == [612.345] * 8
    assert column(rows, "GPU-1", "memory_total_bytes") == [None] * 8
    assert column(rows, "GPU-1", "memory_api") == [None] * 8
    assert column(rows, "GPU-1", "utilization_gpu_percent") == [97.0] * 8


def test_o_g1_there_is_one_warning_a_device_and_field(o_g1: Sampled) -> None:
    sampler, _ = o_g1
    assert sampler.status().warnings == (
        "GPU-1: memory not available (Not Supported)",
        "GPU-0: utilization not available (Not Supported)",
        "GPU-2: GPU is lost",
    )


def test_o_g1_a_lost_device_ends_with_a_marked_gap_and_is_last_seen_at_its_fifth_sample(
    o_g1: Sampled,
) -> None:
    sampler, rows = o_g1
    assert column(rows, "GPU-2", "gap") == [False] * 5 + [True]
    assert column(rows, "GPU-2", "memory_free_bytes") == [30_000 * MIB] * 5 + [None]
    fifth = column(rows, "GPU-2", "sample_unix_ns")[4]
    assert sampler.status().last_seen_unix_ns == {"GPU-2": fifth}
    assert "last seen at 2023-11-14T22:13:22.500+00:00" in str(column(rows, "GPU-2", "note")[-1])
    assert "GPU-2 lost, last seen at 2023-11-14T22:13:22.500+00:00" in sampler.status().summary


def test_o_g1_no_nvml_is_a_reason_for_the_report() -> None:
    status = sampler_of(FakeNvml(init_error=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)).status()
    assert not status.available
    assert status.summary == ("GPU data: not available (nvmlInit: RM has detected an NVML/RM version mismatch.)")


def test_o_g2_memory_is_kept_as_reported_with_its_definition() -> None:
    both, only_v1 = FakeDevice("GPU-0"), FakeDevice("GPU-1")
    only_v1.refuses = {"memory_v2": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    for device in (both, only_v1):
        device.v1 = SimpleNamespace(total=85_651 * MIB, free=600 * MIB, used=85_051 * MIB)
        device.v2 = SimpleNamespace(total=85_651 * MIB, reserved=640 * MIB, free=600 * MIB, used=84_411 * MIB)
    sampler = sampler_of(FakeNvml(both, only_v1))
    sampler.sample_once()
    first, second = sampler.drain()
    memory = [name for name in GPU.names if name.startswith("memory_")]
    assert [first[name] for name in memory] == [
        *(85_651 * MIB, 600 * MIB, 84_411 * MIB, 640 * MIB),
        "v2",
    ]
    assert [second[name] for name in memory] == [*(85_651 * MIB, 600 * MIB, 85_051 * MIB), None, "v1"]
    for row in (first, second):
        assert row["memory_total_bytes"] - row["memory_free_bytes"] == 85_051 * MIB  # type: ignore[operator]
    assert sampler.status().warnings == ()


def test_o_g2_a_series_never_changes_its_definition_of_used() -> None:
    device = FakeDevice("GPU-0")
    sampler = sampler_of(FakeNvml(device))
    sampler.sample_once()
    device.refuses = {"memory_v2": pynvml.NVML_ERROR_UNKNOWN}
    sampler.sample_once()
    device.refuses = {}
    sampler.sample_once()
    assert column(sampler.drain(), "GPU-0", "memory_api") == ["v2", None, "v2"]


def test_the_interface_that_is_missing_is_asked_for_once() -> None:
    device = FakeDevice("GPU-0", {"memory_v2": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
    sampler = sampler_of(FakeNvml(device))
    for _ in range(3):
        sampler.sample_once()
    assert device.asked.count("memory_v2") == 1


def test_values_come_in_the_units_of_their_columns() -> None:
    sampler = sampler_of(FakeNvml(FakeDevice("GPU-0")))
    sampler.sample_once()
    (row,) = sampler.drain()
    assert row["power_w"] == 612.345
    assert row["temperature_c"] == 61.0
    assert row["sm_clock_mhz"] == 1980.0
    assert row["clock_event_reasons"] == 4
    assert row["utilization_memory_percent"] == 41.0


def test_a_divided_gpu_shows_as_its_instances_with_memory_only() -> None:
    instances = {0: FakeDevice("MIG-a"), 3: FakeDevice("MIG-b")}
    whole = FakeDevice("GPU-0", {"memory_v2": pynvml.NVML_ERROR_NO_PERMISSION}, instances=instances)
    sampler = sampler_of(FakeNvml(whole, FakeDevice("GPU-1")))
    devices = sampler.status().devices
    assert [(device.uuid, device.index, device.parent_uuid) for device in devices] == [
        ("MIG-a", 0, "GPU-0"),
        ("MIG-b", 0, "GPU-0"),
        ("GPU-1", 1, None),
    ]
    sampler.sample_once()
    rows = sampler.drain()
    assert column(rows, "MIG-b", "memory_free_bytes") == [30_000 * MIB]
    assert column(rows, "MIG-b", "utilization_gpu_percent") == [None]
    assert column(rows, "MIG-b", "power_w") == [None]
    assert sampler.status().warnings == ()


def test_a_device_that_may_not_be_opened_is_left_out_with_a_warning() -> None:
    source = NvmlSource(
        FakeNvml(FakeDevice("GPU-0", {"handle": pynvml.NVML_ERROR_NO_PERMISSION}), FakeDevice("GPU-1"))
    )
    assert [device.index for device in source.open()] == [1]
    assert source.warnings == ["device 0: handle not available (Insufficient Permissions)"]


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_driver_that_does_not_tell_its_version_costs_no_device(code: int) -> None:
    class Silent(FakeNvml):
        def nvmlSystemGetDriverVersion(self) -> str:
            raise pynvml.NVMLError(code)

    assert [device.driver_version for device in NvmlSource(Silent(FakeDevice("GPU-0"))).open()] == [None]


def test_a_device_without_a_uuid_is_named_by_its_place() -> None:
    source = NvmlSource(FakeNvml(FakeDevice("hidden", {"uuid": pynvml.NVML_ERROR_NO_PERMISSION})))
    assert [device.uuid for device in source.open()] == ["device 0"]


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ([], "NVML shows no device"),
        ([FakeDevice("GPU-0", {"handle": pynvml.NVML_ERROR_GPU_IS_LOST})], "device 0: GPU is lost"),
    ],
)
def test_no_device_at_all_is_a_reason_and_closes_nvml(devices: list[FakeDevice], reason: str) -> None:
    nvml = FakeNvml(*devices)
    with pytest.raises(GpuUnavailable, match=reason):
        NvmlSource(nvml).open()
    assert nvml.calls == ["init", "shutdown"]


def test_nvml_is_initialised_once_for_all_samples() -> None:
    nvml = FakeNvml(FakeDevice("GPU-0"))
    sampler = sampler_of(nvml)
    for _ in range(3):
        sampler.sample_once()
    sampler.stop()
    assert nvml.calls == ["init", "shutdown"]


def test_a_machine_without_the_library_says_so() -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    nvml: Any = SimpleNamespace(nvmlInit=refuse, NVMLError=pynvml.NVMLError)
    with pytest.raises(GpuUnavailable, match="NVML Shared Library Not Found"):
        NvmlSource(nvml).open()


def test_a_machine_without_the_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[[str], Any] = _no_module
    monkeypatch.setattr("raybench.monitors.nvml.importlib.import_module", find)
    with pytest.raises(GpuUnavailable, match="nvidia-ml-py"):
        NvmlSource().open()


def _no_module(name: str) -> Any:
    raise ImportError(f"No module named {name!r}")
