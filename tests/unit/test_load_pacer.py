"""Schedules of open loops: from the seed alone, the same for any number of workers, of the asked rate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.load.pacer import Schedule, deal, due_ns_of_rate, make_schedule, seconds_of_sends
from raybench.scenario.arrivals import Arrivals, Ramp
from raybench.scenario.levels import Level
from raybench.scenario.trace import Trace
from raybench.scenario.workload import Workload

ARRIVALS = st.one_of(
    st.builds(Arrivals, process=st.sampled_from(["constant", "poisson"]), seed=st.integers(0, 2**40)),
    st.builds(Arrivals, process=st.just("gamma"), burstiness=st.floats(0.05, 20), seed=st.integers(0, 99)),
)
RATES = st.floats(0.1, 5000)
POISSON_7 = [52127228, 127659100, 169546931, 235494164, 250710468]
GAMMA_7 = [89674938, 265135473, 284618924, 284624919, 480142697]


def workload(**keys: object) -> Workload:
    return Workload.model_validate({"name": "w", "input_tokens": 100, "output_tokens": 10} | keys)


def spread(due_ns: np.ndarray) -> float:
    """Coefficient of variation of the gaps."""
    gaps = np.diff(due_ns)
    return float(gaps.std() / gaps.mean())


@given(ARRIVALS, RATES, st.integers(1, 500), st.integers(1, 9))
def test_any_number_of_workers_sends_the_same_schedule(
    arrivals: Arrivals, rate: float, requests: int, workers: int
) -> None:
    schedule = Schedule(due_ns_of_rate(arrivals, rate, requests))
    shares = [deal(schedule, worker, workers) for worker in range(workers)]
    tickets = np.concatenate([share.tickets for share in shares])
    due_ns = np.concatenate([share.due_ns for share in shares])
    order = np.argsort(tickets)
    assert tickets[order].tolist() == list(range(requests))
    assert due_ns[order].tolist() == schedule.due_ns.tolist()
    sizes = [len(share.tickets) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(ARRIVALS, RATES, st.integers(1, 500))
def test_sends_come_in_order_within_the_time_that_they_take_on_average(
    arrivals: Arrivals, rate: float, requests: int
) -> None:
    due_ns = due_ns_of_rate(arrivals, rate, requests)
    assert due_ns.dtype == np.int64 and due_ns.shape == (requests,)
    assert (np.diff(due_ns) >= 0).all()
    assert due_ns[0] >= 0 and due_ns[-1] <= requests / rate * 1e9 + 1


@given(ARRIVALS, RATES, RATES, st.integers(1, 200))
def test_another_level_has_the_same_arrivals_on_another_scale(
    arrivals: Arrivals, rate: float, other: float, requests: int
) -> None:
    one, two = (due_ns_of_rate(arrivals, r, requests) * r for r in (rate, other))
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=2 * max(rate, other))


def test_a_constant_rate_has_equal_gaps_from_the_start() -> None:
    assert due_ns_of_rate(Arrivals(process="constant"), 4, 5).tolist() == [0, 250e6, 500e6, 750e6, 1000e6]


def test_the_numbers_of_a_seed_never_change() -> None:
    """Runs of other versions and machines must be comparable: a change here changes every schedule."""
    poisson = due_ns_of_rate(Arrivals(seed=7), 10, 5)
    gamma = due_ns_of_rate(Arrivals(process="gamma", burstiness=0.5, seed=7), 10, 5)
    assert poisson.tolist() == POISSON_7
    assert gamma.tolist() == GAMMA_7
    assert due_ns_of_rate(Arrivals(seed=8), 10, 5).tolist() != POISSON_7


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        (Arrivals(), 1.0),
        (Arrivals(process="gamma", burstiness=1.0), 1.0),
        (Arrivals(process="gamma", burstiness=0.25), 2.0),
        (Arrivals(process="gamma", burstiness=4.0), 0.5),
    ],
)
def test_gaps_vary_as_the_process_says(arrivals: Arrivals, expected: float) -> None:
    """A gamma of shape k has the coefficient of variation 1 / sqrt(k)."""
    due_ns = due_ns_of_rate(arrivals, 100, 20_000)
    assert spread(due_ns) == pytest.approx(expected, rel=0.05)
    assert due_ns[-1] / 1e9 == pytest.approx(200, rel=0.01)


@pytest.mark.parametrize(("start", "level"), [(0.0, 100.0), (200.0, 50.0), (100.0, 100.0)])
@pytest.mark.parametrize("process", ["constant", "poisson"])
def test_a_ramp_sends_as_many_as_the_integral_of_its_rate(process: str, start: float, level: float) -> None:
    arrivals = Arrivals.model_validate(
        {"process": process, "ramp": {"start_rate_per_s": start, "duration_s": 50.0}}
    )
    requests = round(arrivals.requests_by(100, level))
    due_s = due_ns_of_rate(arrivals, level, requests) / 1e9
    for until in (10, 25, 50, 75):
        expected = arrivals.requests_by(until, level)
        allowed = 2 if process == "constant" else 5 * expected**0.5
        assert abs((due_s <= until).sum() - expected) <= allowed


TRACE = Trace("t.jsonl", (0.0, 0.5, 0.5, 4.0), (100, 50, 7, 100), (10, 1, 2, 10))


@pytest.mark.parametrize(("speed", "last_s"), [(1.0, 4.0), (2.0, 2.0), (0.5, 8.0)])
def test_a_trace_is_replayed_at_its_speed_with_its_lengths(speed: float, last_s: float) -> None:
    replayed = workload(trace={"path": "t.jsonl", "speeds": [speed]}, requests=4)
    schedule = make_schedule(replayed, Level(trace_speed=speed), 4, TRACE)
    assert schedule is not None and schedule.lengths is not None
    assert schedule.due_ns.tolist() == [0, 0.5e9 / speed, 0.5e9 / speed, last_s * 1e9]
    assert schedule.lengths.tolist() == [[100, 10], [50, 1], [7, 2], [100, 10]]
    assert seconds_of_sends(replayed, Level(trace_speed=speed), 4, TRACE) == last_s
    assert seconds_of_sends(replayed, Level(trace_speed=speed), 4, None) is None


def test_a_closed_loop_has_no_schedule_and_a_rate_no_lengths() -> None:
    closed = workload(concurrency=[2])
    assert make_schedule(closed, Level(2), 8, None) is None
    assert seconds_of_sends(closed, Level(2), 8, None) is None
    rate = workload(rate_per_s=[4.0], requests=8)
    schedule = make_schedule(rate, Level(rate_per_s=4.0), 8, None)
    assert schedule is not None and schedule.lengths is None
    assert seconds_of_sends(rate, Level(rate_per_s=4.0), 8, None) == 2.0


def test_a_ramp_that_begins_at_nothing_has_its_first_request_at_once() -> None:
    arrivals = Arrivals(process="constant", ramp=Ramp(start_rate_per_s=0, duration_s=2))
    assert due_ns_of_rate(arrivals, 1, 2).tolist() == [0, 2_000_000_000]
