"""GPU data of an attempt: what is missing is said, and voids the point where it is required."""

import pytest

from raybench.protocol.gpu_checks import GpuState, check_gpu


@pytest.mark.parametrize(("required", "severity"), [(False, "warning"), (True, "void")])
def test_o_g1_missing_gpu_data_is_said_and_void_where_it_is_required(required: bool, severity: str) -> None:
    (found,) = check_gpu(GpuState("no NVML library"), required=required)
    assert (found.code, found.severity) == ("gpu_data_missing", severity)
    assert found.message == "GPU data: not available (no NVML library)"


@pytest.mark.parametrize(("required", "severity"), [(False, "warning"), (True, "void")])
def test_o_g1_a_hole_over_the_load_is_said_once_and_void_where_data_is_required(
    required: bool, severity: str
) -> None:
    gaps = ("the monitor was replaced: gone", "no sample for 2.0 s", "the monitor was replaced: gone")
    (found,) = check_gpu(GpuState(None, gaps), required=required)
    assert (found.code, found.severity) == ("gpu_data_gap", severity)
    assert found.message == (
        "GPU data: incomplete over the load (the monitor was replaced: gone; no sample for 2.0 s)"
    )


def test_complete_gpu_data_is_no_finding() -> None:
    assert list(check_gpu(GpuState(), required=True)) == []
