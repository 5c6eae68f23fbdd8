"""records/clock.py: anchored clocks of several hosts on one time line (case O-R5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.records.clock import (
    AnchoredClock,
    ClockAnchor,
    ClockOffset,
    SystemClock,
    enclose_offsets,
    estimate_offset,
    same_boot_offset,
)

S = 1_000_000_000
MS = 1_000_000
stamps = st.integers(min_value=0, max_value=2**62)


class Host:
    """A fake host: true time, a monotonic zero, a wall clock that errs and can step."""

    def __init__(self, boot_ns: int, wall_error_ns: int) -> None:
        self.true_ns = 1_800_000_000 * S
        self.boot_ns = boot_ns
        self.wall_error_ns = wall_error_ns

    def monotonic_ns(self) -> int:
        return self.true_ns - self.boot_ns

    def unix_ns(self) -> int:
        return self.true_ns + self.wall_error_ns


def test_an_anchor_of_this_machine_gives_its_wall_time() -> None:
    anchor = ClockAnchor.now(SystemClock(), host="client-1")
    assert anchor.host == "client-1"
    assert anchor.to_unix_ns(anchor.monotonic_ns) == anchor.unix_ns
    assert anchor.to_unix_ns(anchor.monotonic_ns + 5) == anchor.unix_ns + 5


def test_the_anchor_is_the_reading_with_the_narrowest_bracket() -> None:
    monotonic = iter([0, 100, 200, 210, 300, 900, 1000, 1100, 2000, 2050])
    unix = iter([11, 22, 33, 44, 55])

    class Scripted:
        def monotonic_ns(self) -> int:
            return next(monotonic)

        def unix_ns(self) -> int:
            return next(unix)

    anchor = ClockAnchor.now(Scripted(), host="h")
    assert (anchor.unix_ns, anchor.monotonic_ns) == (22, 205)


@given(unix_ns=stamps, monotonic_ns=stamps, boot_id=st.none() | st.text(min_size=1))
def test_metadata_gives_back_the_anchor(unix_ns: int, monotonic_ns: int, boot_id: str | None) -> None:
    anchor = ClockAnchor("host-a", boot_id, unix_ns, monotonic_ns)
    assert ClockAnchor.from_metadata(anchor.to_metadata()) == anchor


@pytest.mark.parametrize("metadata", [{}, {"host": "h", "anchor_unix_ns": "x", "anchor_monotonic_ns": "1"}])
def test_metadata_without_a_readable_anchor_gives_none(metadata: dict[str, str]) -> None:
    assert ClockAnchor.from_metadata(metadata) is None
    assert ClockOffset.from_metadata(metadata) is None


def test_metadata_gives_back_the_offset() -> None:
    assert ClockOffset.from_metadata(ClockOffset(-7, 3).to_metadata()) == ClockOffset(-7, 3)


def test_the_ping_with_the_shortest_round_trip_decides() -> None:
    pings = [(0, 500, 900), (1000, 1210, 1021), (2000, 9000, 2400)]
    assert estimate_offset(pings) == ClockOffset(offset_ns=200, uncertainty_ns=11)


@given(
    offset=st.integers(-(10**12), 10**12),
    delays=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=10),
)
def test_the_true_offset_lies_within_the_uncertainty(offset: int, delays: list[tuple[int, int]]) -> None:
    pings = [(t0, t0 + there + offset, t0 + there + back) for t0, (there, back) in enumerate(delays)]
    estimate = estimate_offset(pings)
    assert abs(estimate.offset_ns - offset) <= estimate.uncertainty_ns


@given(st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 10**6)), min_size=1))
def test_an_enclosing_offset_holds_every_measured_interval(measured: list[tuple[int, int]]) -> None:
    offsets = [ClockOffset(*each) for each in measured]
    span = enclose_offsets(offsets)
    for each in offsets:
        assert span.offset_ns - span.uncertainty_ns <= each.offset_ns - each.uncertainty_ns
        assert span.offset_ns + span.uncertainty_ns >= each.offset_ns + each.uncertainty_ns


def test_o_r5_a_sample_at_the_real_middle_of_a_point_lands_in_it_despite_offset_and_step() -> None:
    coordinator = Host(boot_ns=11 * S, wall_error_ns=0)
    client = Host(boot_ns=200 * S, wall_error_ns=0)
    gpu = Host(boot_ns=5 * S, wall_error_ns=-2500 * MS)
    hosts = (coordinator, client, gpu)
    anchors = {host: ClockAnchor.now(host, host="h") for host in hosts}

    def offset_of(host: Host) -> ClockOffset:
        t0 = anchors[coordinator].unix_now_ns(coordinator)
        for each in hosts:
            each.true_ns += 300_000
        remote = anchors[host].unix_now_ns(host)
        for each in hosts:
            each.true_ns += 300_000
        return estimate_offset([(t0, remote, anchors[coordinator].unix_now_ns(coordinator))])

    at_start = {host: [offset_of(host)] for host in (client, gpu)}
    sent_ns = client.monotonic_ns()
    for host in hosts:
        host.true_ns += 5 * S
    client.wall_error_ns -= 1 * S
    sample_ns, middle_true_ns = gpu.monotonic_ns(), gpu.true_ns
    for host in hosts:
        host.true_ns += 5 * S
    end_ns = client.monotonic_ns()
    offsets = {host: enclose_offsets([*first, offset_of(host)]) for host, first in at_start.items()}

    def on_coordinator(host: Host, stamp_ns: int) -> int:
        return offsets[host].to_coordinator_ns(anchors[host].to_unix_ns(stamp_ns))

    assert end_ns - sent_ns == 10 * S
    assert offsets[client] == ClockOffset(0, 300_000)
    assert offsets[gpu] == ClockOffset(-2500 * MS, 300_000)
    assert on_coordinator(gpu, sample_ns) == middle_true_ns
    assert on_coordinator(client, sent_ns) + 5 * S == on_coordinator(gpu, sample_ns)
    assert on_coordinator(client, end_ns) - 5 * S == on_coordinator(gpu, sample_ns)


def test_the_coordinators_own_stamps_are_left_alone() -> None:
    assert ClockOffset(0, 0).to_coordinator_ns(42) == 42


def test_an_anchored_clock_does_not_step_with_the_wall_clock() -> None:
    host = Host(boot_ns=3 * S, wall_error_ns=0)
    clock = AnchoredClock(host, host="client-1")
    before_ns = clock.unix_ns()
    host.true_ns += 2 * S
    host.wall_error_ns -= 1 * S
    assert clock.unix_ns() - before_ns == 2 * S
    assert clock.monotonic_ns() == host.monotonic_ns()
    assert clock.anchor.host == "client-1"


def test_two_processes_of_one_boot_know_their_offset_exactly() -> None:
    own = ClockAnchor("h", "boot-1", unix_ns=100 * S, monotonic_ns=10 * S)
    later = ClockAnchor("h", "boot-1", unix_ns=104 * S, monotonic_ns=15 * S)
    assert same_boot_offset(later, own) == ClockOffset(-1 * S, 0)
    for stranger in ("boot-2", None):
        assert same_boot_offset(ClockAnchor("h", stranger, 104 * S, 15 * S), own) is None


def test_o_r5_a_ping_tells_by_how_much_the_wall_clock_was_set_since_the_anchor() -> None:
    host = Host(boot_ns=3 * S, wall_error_ns=0)
    clock = AnchoredClock(host, host="client-1")
    assert clock.reading().wall_ahead_ns == 0
    host.true_ns += 2 * S
    host.wall_error_ns -= 1 * S
    sample = clock.reading()
    assert sample.wall_ahead_ns == -1 * S
    assert sample.anchor.unix_ns == clock.unix_ns(), "the anchored clock knows nothing of it"
    assert sample.anchor.host == "client-1"
