"""The worker's own health: lateness on an absolute schedule, CPU share, rows."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.load.health import CpuShare, LoopLag, WorkerHealth
from raybench.records.schema import WORKER

MS = 1_000_000
S = 1000 * MS


class FakeClock:
    def __init__(self) -> None:
        self.now_ns = 5 * S

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return 1_700_000_000 * S + self.now_ns


def test_ticks_in_time_show_no_lag() -> None:
    lag = LoopLag(0, 50 * MS)
    for tick in (50, 100, 150):
        lag.tick(tick * MS)
    assert lag.take_worst_ns(160 * MS) == 0


def test_the_worst_lateness_is_given_once() -> None:
    lag = LoopLag(0, 50 * MS)
    lag.tick(53 * MS)
    lag.tick(107 * MS)
    lag.tick(151 * MS)
    assert lag.take_worst_ns(160 * MS) == 7 * MS
    assert lag.take_worst_ns(170 * MS) == 0


def test_a_late_tick_does_not_shift_the_schedule() -> None:
    lag = LoopLag(0, 50 * MS)
    lag.tick(80 * MS)
    assert lag.wait_ns(80 * MS) == 20 * MS


def test_ticks_that_could_not_run_count_once_as_the_lateness_of_the_first() -> None:
    lag = LoopLag(0, 50 * MS)
    lag.tick(1050 * MS)
    assert lag.take_worst_ns(1060 * MS) == 1000 * MS
    assert lag.wait_ns(1060 * MS) == 40 * MS


def test_a_blockage_that_still_lasts_is_seen() -> None:
    lag = LoopLag(0, 50 * MS)
    assert lag.take_worst_ns(450 * MS) == 400 * MS


@given(st.integers(1, 10**10), st.lists(st.integers(0, 10**11), min_size=1, max_size=30).map(sorted))
def test_the_next_tick_is_always_ahead_and_on_the_schedule(interval: int, ticks: list[int]) -> None:
    lag = LoopLag(0, interval)
    for now in ticks:
        if lag.wait_ns(now) == 0:
            lag.tick(now)
            assert 0 < lag.wait_ns(now) <= interval
            assert (now + lag.wait_ns(now)) % interval == 0


def test_the_cpu_share_is_that_since_the_last_call() -> None:
    share = CpuShare(wall_ns=0, cpu_ns=0)
    assert share.take(1 * S, S // 4) == 0.25
    assert share.take(3 * S, S // 4 + 2 * S) == 1.0


def test_the_cpu_share_of_no_time_is_unknown() -> None:
    share = CpuShare(wall_ns=7, cpu_ns=0)
    assert share.take(7, 0) is None


def test_a_row_has_the_columns_of_the_schema_and_the_lag_since_the_row_before() -> None:
    clock = FakeClock()
    cpu_ns = [0]

    async def sleep_too_long(delay_s: float) -> None:
        if clock.now_ns >= 6 * S:
            raise asyncio.CancelledError
        clock.now_ns += round(delay_s * S) + 8 * MS

    health = WorkerHealth("w0", clock, cpu_ns=lambda: cpu_ns[0], sleep=sleep_too_long)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(health.watch(lambda: [0, 120, 0, 480]))
    health.started(3 * MS)
    health.started(1 * MS)
    cpu_ns[0] = (clock.now_ns - 5 * S) // 2
    row = health.row(point_id="a/w/c1", attempt=1, in_flight=3, completed=2, output_tokens_seen=99)
    assert list(row) == WORKER.names
    assert row["loop_lag_ms_max"] == 8.0
    assert row["cpu_share"] == pytest.approx(0.5)
    assert row["send_delay_ms_max"] == 3.0
    assert (row["unread_streams_share"], row["unread_bytes_max"]) == (0.5, 480)
    assert row["sample_unix_ns"] == clock.unix_ns()
    clock.now_ns += 10 * MS
    after = health.row(point_id="a/w/c1", attempt=1, in_flight=0, completed=5, output_tokens_seen=99)
    assert after["loop_lag_ms_max"] == 0.0
    assert after["cpu_share"] == 0.0
    assert {after[name] for name in ("send_delay_ms_max", "unread_streams_share", "unread_bytes_max")} == {None}
