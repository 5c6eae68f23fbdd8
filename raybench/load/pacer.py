"""When each request of an open loop is due. Pure; runs in the coordinator, whose orders carry the result.

A schedule is made from the seed alone, before anything is sent, for all requests of a point; workers are dealt
its tickets in turn, so that it is the same for any number of workers. It is absolute: a late request moves
no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raybench.scenario.arrivals import Arrivals
from raybench.scenario.levels import Level
from raybench.scenario.plan import Point
from raybench.scenario.trace import Trace
from raybench.scenario.workload import Workload

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Schedule:
    """All requests of a point, by ticket.

    due_ns: int64 nanoseconds after the start, never descending. lengths: int64, shape (requests, 2), input and
    output tokens of each; None where all have the workload's.
    """

    due_ns: Offsets
    lengths: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Sends:
    """What one worker sends of a schedule: its tickets in their order, and when each is due."""

    tickets: npt.NDArray[np.int64]
    due_ns: Offsets


def make_schedule(workload: Workload, level: Level, requests: int, trace: Trace | None) -> Schedule | None:
    """The schedule of a point of this workload; None for a closed loop. trace: of a workload that replays one."""
    if level.rate_per_s is not None:
        arrivals = workload.effective_arrivals
        assert arrivals is not None, "a rate has arrivals"
        return Schedule(due_ns_of_rate(arrivals, level.rate_per_s, requests))
    if level.trace_speed is None:
        return None
    assert trace is not None and len(trace.arrival_s) == requests, "a point replays the entries that were read"
    due_ns = np.rint(np.asarray(trace.arrival_s) * 1e9 / level.trace_speed).astype(np.int64)
    return Schedule(due_ns, np.column_stack([trace.input_tokens, trace.output_tokens]).astype(np.int64))


def due_ns_of_rate(arrivals: Arrivals, rate_per_s: float, requests: int) -> Offsets:
    """Arrivals of a unit rate, mapped through the inverse of the expected number due by a time."""
    at = [arrivals.seconds_until(count, rate_per_s) for count in unit_arrivals(arrivals, requests).tolist()]
    return np.rint(np.asarray(at) * 1e9).astype(np.int64)


def unit_arrivals(arrivals: Arrivals, requests: int) -> npt.NDArray[np.float64]:
    """As many arrivals as requests in as many units of time: a mean rate of one, shape (requests,).

    Random gaps are drawn by PCG64 from the seed, one more than there are requests, and scaled so that all together
    are as long as they should be on average. That is a Poisson process given its number of arrivals (Ross,
    Stochastic Processes, 2.3); without it twenty requests at 2 a second would often take 7 or 14 seconds.
    A constant rate begins at once.
    """
    if arrivals.process == "constant":
        return np.arange(requests, dtype=np.float64)
    random = np.random.Generator(np.random.PCG64(arrivals.seed))
    # exponential gaps are gamma gaps of shape 1
    gaps = random.standard_gamma(arrivals.burstiness or 1.0, requests + 1)
    times: npt.NDArray[np.float64] = np.cumsum(gaps)
    times *= requests / times[-1]
    return times[:-1]


def deal(schedule: Schedule, worker: int, workers: int) -> Sends:
    """The share of one worker: every `workers`-th ticket, so that each has about the same load at any time."""
    tickets = np.arange(worker, len(schedule.due_ns), workers, dtype=np.int64)
    return Sends(tickets, schedule.due_ns[tickets])


def seconds_of_points(
    points: Iterable[Point], workloads: Iterable[Workload], traces: Mapping[str, Trace]
) -> dict[str, float | None]:
    """`seconds_of_sends` by point id. traces: by workload."""
    by_name = {workload.name: workload for workload in workloads}
    return {
        point.point_id: seconds_of_sends(
            by_name[point.workload], point.level, point.requests, traces.get(point.workload)
        )
        for point in points
    }


def seconds_of_sends(workload: Workload, level: Level, requests: int, trace: Trace | None) -> float | None:
    """From the start to the last send as expected; None for a closed loop, and for a trace that is not at hand."""
    if level.rate_per_s is not None and workload.effective_arrivals is not None:
        return workload.effective_arrivals.seconds_until(requests, level.rate_per_s)
    if level.trace_speed is not None and trace is not None:
        return trace.span_s / level.trace_speed
    return None
