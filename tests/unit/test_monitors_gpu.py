"""The sampling of GPUs: schedule, gaps, the bounded buffer, and what is said when there is no data."""

import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.monitors.gpu import (
    GpuDevice,
    GpuGap,
    GpuReading,
    GpuSampler,
    GpuUnavailable,
    next_due_ns,
)
from raybench.records.clock import SystemClock
from raybench.records.schema import GPU

S = 1_000_000_000


class FakeClock:
    """monotonic 10 s, wall 1700000000 s; moves when told to."""

    def __init__(self) -> None:
        self.now_ns = 10 * S

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return 1_700_000_000 * S + self.now_ns


class ScriptedSource:
    """Two devices; `rounds` says what each sample gives: readings, or a reason to have none."""

    def __init__(self, *rounds: list[GpuReading] | str, opens: bool = True) -> None:
        self.warnings: list[str] = []
        self.rounds = list(rounds)
        self.opens = opens
        self.closed = 0

    def open(self) -> list[GpuDevice]:
        if not self.opens:
            raise GpuUnavailable("nvmlInit: Driver Not Loaded")
        return [GpuDevice("GPU-a", 0, "one", 100), GpuDevice("GPU-b", 1, "two", 100)]

    def sample(self) -> Iterable[GpuReading]:
        now = self.rounds.pop(0)
        if isinstance(now, str):
            raise GpuUnavailable(now)
        return now

    def close(self) -> None:
        self.closed += 1


BOTH = [GpuReading("GPU-a", 0, 100, 60, 40), GpuReading("GPU-b", 1, 100, 50, 50)]


def sampler_of(source: ScriptedSource, clock: FakeClock, *, buffer_rows: int = 1000) -> GpuSampler:
    sampler = GpuSampler(source, clock, "gpu-host", 0.5, buffer_rows=buffer_rows)
    sampler.open()
    return sampler


def test_a_row_has_exactly_the_columns_of_the_schema() -> None:
    sampler = sampler_of(ScriptedSource(BOTH), FakeClock())
    sampler.sample_once()
    assert {frozenset(row) for row in sampler.drain()} == {frozenset(GPU.names)}


def test_all_rows_of_a_round_carry_one_stamp_of_both_clocks() -> None:
    clock = FakeClock()
    sampler = sampler_of(ScriptedSource(BOTH), clock)
    sampler.sample_once()
    stamps = [(row["host"], row["sample_ns"], row["sample_unix_ns"]) for row in sampler.drain()]
    assert stamps == [("gpu-host", clock.monotonic_ns(), clock.unix_ns())] * 2


def test_drain_gives_each_row_once() -> None:
    sampler = sampler_of(ScriptedSource(BOTH, BOTH), FakeClock())
    sampler.sample_once()
    assert len(sampler.drain()) == 2
    assert sampler.drain() == []
    sampler.sample_once()
    assert len(sampler.drain()) == 2


@pytest.mark.parametrize(("late_s", "gap"), [(0.5, False), (1.5, False), (1.6, True)])
def test_a_sample_more_than_three_intervals_late_is_a_marked_gap(late_s: float, gap: bool) -> None:
    clock = FakeClock()
    sampler = sampler_of(ScriptedSource(BOTH, BOTH), clock)
    sampler.sample_once()
    clock.now_ns += round(late_s * S)
    sampler.sample_once()
    rows = sampler.drain()
    assert [row["gap"] for row in rows] == [False, False, gap, gap]
    assert rows[-1]["note"] == (f"no sample for {late_s:.3f} s" if gap else None)
    assert sampler.status().gap_rows == (2 if gap else 0)


def test_a_gap_is_marked_only_on_the_device_that_has_it() -> None:
    clock = FakeClock()
    sampler = sampler_of(ScriptedSource(BOTH, *[BOTH[:1]] * 4, BOTH), clock)
    for _ in range(6):
        sampler.sample_once()
        clock.now_ns += S // 2
    marked = [(row["gpu_uuid"], row["note"]) for row in sampler.drain() if row["gap"]]
    assert marked == [("GPU-b", "no sample for 2.500 s")]


def test_failed_samples_are_no_rows_but_one_warning_and_then_a_gap() -> None:
    clock = FakeClock()
    sampler = sampler_of(ScriptedSource(BOTH, *["connection refused"] * 4, BOTH), clock)
    for _ in range(6):
        sampler.sample_once()
        clock.now_ns += S // 2
    assert [row["gap"] for row in sampler.drain()] == [False, False, True, True]
    assert sampler.status().warnings == ("a sample failed: connection refused",)
    assert sampler.status().problem is None
    assert sampler.status().samples == 4


def test_samples_that_fail_now_are_a_problem_now() -> None:
    sampler = sampler_of(ScriptedSource(BOTH, "connection refused"), FakeClock())
    sampler.sample_once()
    assert sampler.status().problem is None
    sampler.sample_once()
    assert sampler.status().problem == "samples fail: connection refused"


def test_a_lost_device_ends_with_a_marker_row_that_says_when_it_was_last_seen() -> None:
    clock = FakeClock()
    clock.now_ns = 20 * S
    sampler = sampler_of(ScriptedSource(BOTH, [BOTH[0], GpuReading("GPU-b", 1, lost="GPU is lost")]), clock)
    sampler.sample_once()
    clock.now_ns += S // 2
    sampler.sample_once()
    marker = sampler.drain()[-1]
    assert marker["gap"] is True
    assert marker["memory_free_bytes"] is None
    assert marker["note"] == "device lost (GPU is lost); last seen at 2023-11-14T22:13:40.000+00:00"
    assert sampler.status().last_seen_unix_ns == {"GPU-b": 1_700_000_020 * S}
    assert sampler.status().problem == "GPU-b lost, last seen at 2023-11-14T22:13:40.000+00:00"


def test_a_full_buffer_drops_the_oldest_rows_and_marks_the_hole() -> None:
    clock = FakeClock()
    sampler = sampler_of(ScriptedSource(*[BOTH] * 5), clock, buffer_rows=4)
    for _ in range(5):
        sampler.sample_once()
        clock.now_ns += S // 2
    rows = sampler.drain()
    assert [row["sample_ns"] for row in rows] == [round(11.5 * S)] * 2 + [12 * S] * 2
    assert [row["gap"] for row in rows] == [True, True, False, False]
    assert rows[0]["note"] == "6 rows of this host were dropped before this one"
    assert sampler.status().gap_rows == 2


def test_no_data_is_a_status_and_not_an_error() -> None:
    status = sampler_of(ScriptedSource(opens=False), FakeClock()).status()
    assert not status.available
    assert status.problem == "nvmlInit: Driver Not Loaded"
    assert status.summary == "GPU data: not available (nvmlInit: Driver Not Loaded)"


def test_stop_keeps_the_rows_and_closes_the_source_once() -> None:
    source = ScriptedSource(BOTH)
    sampler = sampler_of(source, FakeClock())
    sampler.sample_once()
    sampler.stop()
    sampler.stop()
    assert source.closed == 1
    assert len(sampler.drain()) == 2


def test_stop_leaves_a_source_alone_that_never_opened() -> None:
    source = ScriptedSource(opens=False)
    sampler_of(source, FakeClock()).stop()
    assert source.closed == 0


class CountingSource(ScriptedSource):
    """Always has data; says when it was asked for the third time. `broken` is a bug in it."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.broken = broken
        self.asked = 0
        self.third = threading.Event()

    def sample(self) -> Iterable[GpuReading]:
        self.asked += 1
        if self.broken:
            raise ZeroDivisionError
        if self.asked == 3:
            self.third.set()
        return BOTH


def test_the_thread_samples_until_it_is_stopped() -> None:
    source = CountingSource()
    sampler = GpuSampler(source, SystemClock(), "gpu-host", 0.001)
    assert sampler.start().available
    assert source.third.wait(10)
    sampler.stop()
    assert len(sampler.drain()) == 2 * source.asked
    assert source.closed == 1


def test_a_bug_in_the_sampling_thread_is_not_mistaken_for_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    died = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda arguments: died.set())
    sampler = GpuSampler(CountingSource(broken=True), SystemClock(), "gpu-host", 0.001)
    sampler.start()
    assert died.wait(10)
    for thread in threading.enumerate():
        if thread.name == "gpu-sampler":
            thread.join(10)
    with pytest.raises(RuntimeError, match="sampling thread died"):
        sampler.drain()
    assert sampler.status().problem == "the sampling thread died"
    sampler.stop()


def test_a_source_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    release, asked = threading.Event(), threading.Event()

    class HangingSource(ScriptedSource):
        def sample(self) -> Iterable[GpuReading]:
            asked.set()
            release.wait(10)
            return BOTH

    monkeypatch.setattr("raybench.monitors.gpu.STOP_LIMIT_S", 0.01)
    source = HangingSource()
    sampler = GpuSampler(source, SystemClock(), "gpu-host", 0.001)
    sampler.start()
    assert asked.wait(10)
    sampler.stop()
    release.set()
    assert source.closed == 0
    assert "a sample did not end within 0.01 s" in sampler.status().warnings


def test_o_g1_a_sampler_that_goes_on_for_a_dead_one_marks_the_first_row_of_each_device() -> None:
    clock = FakeClock()
    sampler = GpuSampler(
        ScriptedSource(BOTH, BOTH), clock, "gpu-host", 0.5, opening_note="the monitor was replaced: it died"
    )
    sampler.open()
    sampler.sample_once()
    clock.now_ns += S // 2
    sampler.sample_once()
    assert [row["gap"] for row in sampler.drain()] == [True, True, False, False]
    assert sampler.status().gaps == (GpuGap(1_700_000_010 * S, "the monitor was replaced: it died"),)
    assert sampler.status().gap_rows == 2


def test_every_hole_is_remembered_once_with_the_time_of_its_end() -> None:
    clock = FakeClock()
    sampler = sampler_of(ScriptedSource(BOTH, BOTH), clock)
    sampler.sample_once()
    clock.now_ns += 2 * S
    sampler.sample_once()
    assert sampler.status().gaps == (GpuGap(1_700_000_012 * S, "no sample for 2.000 s"),)


def test_a_sample_that_takes_too_long_is_told_while_it_hangs() -> None:
    clock = FakeClock()
    told: list[str | None] = []

    class Slow(ScriptedSource):
        def sample(self) -> Iterable[GpuReading]:
            for _ in range(2):
                clock.now_ns += 6 * S
                told.append(sampler.status().stalled)
            return BOTH

    sampler = sampler_of(Slow(), clock)
    sampler.sample_once()
    assert told == [None, "a sample has been under way for more than 10 s"]
    assert sampler.status().stalled is None


@given(started=st.integers(0, 10**18), interval=st.integers(1, 10**11), elapsed=st.integers(0, 10**15))
def test_the_next_tick_is_on_the_schedule_and_the_first_one_ahead(
    started: int, interval: int, elapsed: int
) -> None:
    now = started + elapsed
    due = next_due_ns(started, interval, now)
    assert (due - started) % interval == 0
    assert now < due <= now + interval
