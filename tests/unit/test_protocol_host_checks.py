"""Hosts over an attempt: clocks known, near and steady (case O-R5), GPU data and links there, or a finding."""

import pytest
from attempt_evidence import evidence, findings, only

from raybench.analysis.alignment import ClockReading
from raybench.protocol.evidence import Clocks
from raybench.protocol.fleet import COORDINATOR, GpuState
from raybench.protocol.host_checks import check_clocks, check_gpu
from raybench.protocol.verdict import Finding
from raybench.scenario.schema import Guards

S, MS = 1_000_000_000, 1_000_000
T = 1_800_000_000 * S
#: The coordinator's own clock over ten seconds in which nobody touched it.
OWN = [ClockReading(T, 0, 0), ClockReading(T + 10 * S, 0, 0)]


def over_ten_seconds(start: tuple[int, int, int], end: tuple[int, int, int]) -> list[ClockReading]:
    """Two readings (offset, uncertainty, wall clock ahead), all in ms."""
    return [ClockReading(T + at, *(value * MS for value in of)) for at, of in ((0, start), (10 * S, end))]


def found(clocks: Clocks, guards: Guards | None = None) -> dict[str, Finding]:
    return {finding.code: finding for finding in check_clocks({COORDINATOR: OWN, **clocks}, guards or Guards())}


def test_steady_clocks_are_no_finding() -> None:
    assert found({"w000": over_ten_seconds((20, 1, 0), (21, 1, 0))}) == {}
    assert list(check_clocks({}, Guards())) == []


def test_o_r5_a_wall_clock_that_is_set_during_an_attempt_is_a_warning() -> None:
    stepped = found({"w000": over_ten_seconds((20, 1, 0), (20, 1, -1000))})
    assert list(stepped) == ["clock_stepped"]
    assert stepped["clock_stepped"].severity == "warning"
    assert "set by -1000.0 ms during the attempt, limit 50 ms" in stepped["clock_stepped"].message
    assert stepped["clock_stepped"].data == {"milliseconds": {"w000": -1000.0}}


def test_o_r5_a_step_of_the_coordinators_own_clock_is_told_too() -> None:
    own = [ClockReading(T, 0, 0), ClockReading(T + S, 0, 0, 300 * MS)]
    assert "(coordinator)" in found({COORDINATOR: own})["clock_stepped"].message


def test_a_step_before_the_attempt_is_none_of_its_findings() -> None:
    assert "clock_stepped" not in found({"w000": over_ten_seconds((20, 1, -1000), (20, 1, -1000))})


def test_o_r5_a_host_two_and_a_half_seconds_behind_is_a_warning() -> None:
    behind = found({"gpu/host": over_ten_seconds((-2500, 1, 0), (-2500, 1, 0))})
    assert list(behind) == ["clock_offset"]
    assert behind["clock_offset"].severity == "warning"
    assert "-2500.0 ms from the coordinator's, limit 1000 ms" in behind["clock_offset"].message


def test_wall_clocks_that_were_set_together_are_near_each_other() -> None:
    own = [ClockReading(T + at, 0, 0, 5 * S) for at in (0, 10 * S)]
    assert found({COORDINATOR: own, "w000": over_ten_seconds((0, 1, 5000), (0, 1, 5000))}) == {}


def test_o_r5_a_drift_over_the_limit_is_a_warning_and_the_limit_is_the_scenarios() -> None:
    readings = [ClockReading(T, 0, MS), ClockReading(T + 600 * S, 60 * MS, MS)]
    drifted = found({"w000": readings}, Guards(clock_uncertainty_ms_max=100))
    assert [(one.code, one.severity) for one in drifted.values()] == [("clock_drifted", "warning")]
    assert found({"w000": readings}, Guards(clock_uncertainty_ms_max=100, clock_change_ms_max=61)) == {}


def test_o_r5_a_clock_that_moved_faster_than_any_drifts_voids_the_attempt() -> None:
    jumped = found({"w000": over_ten_seconds((0, 1, 0), (-400, 1, 0))})
    assert jumped["clock_jumped"].severity == "void"
    assert "-400.0 ms" in jumped["clock_jumped"].message
    assert "clock_drifted" not in jumped, "one thing is told once"
    back = ClockReading(T + 20 * S, -300 * MS, MS)
    twice = found({"w000": [*over_ten_seconds((0, 1, 0), (-400, 1, 0)), back]})
    assert "-400.0 ms" in twice["clock_jumped"].message, "the larger of two"


def test_o_r5_clocks_that_are_not_known_well_enough_are_a_warning() -> None:
    assert found({"w000": over_ten_seconds((0, 51, 0), (0, 51, 0))})["clock_uncertain"].severity == "warning"
    assert found({"w000": over_ten_seconds((0, 50, 0), (0, 50, 0))}) == {}


def test_many_workers_of_one_host_are_one_finding() -> None:
    stepped = {f"w{number:03d}": over_ten_seconds((0, 1, 0), (0, 1, number * 100)) for number in range(1, 7)}
    message = found(stepped)["clock_stepped"].message
    assert "set by +600.0 ms" in message
    assert message.endswith("(w001, w002, w003 and 3 more)")
    three = found({name: stepped[name] for name in ("w001", "w002", "w003")})["clock_stepped"].message
    assert three.endswith("(w001, w002, w003)")


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


def test_a_link_that_was_interrupted_under_the_load_is_void() -> None:
    found = only(evidence(link_changes={"w0": 0, "target host": 2}), "link_interrupted")
    assert (found.severity, found.data) == ("void", {"host": "target host", "changes": 2})
    assert findings(evidence(link_changes={"w0": 0, "target host": 0})) == {}
