"""The driver of the simulated engine in a process that stalls: the wall clock goes on, the engine catches up."""

import asyncio

from sim_rehearsal import ask, make_engine, prompt

from raybench.scenario.sim_block import SimFaults
from raybench.sim.clock import VirtualClock
from raybench.sim.driver import Driver


class Wall:
    """A clock that goes on when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def _stalled() -> None:
    wall = Wall()
    driver = Driver(make_engine(), VirtualClock(10.0, monotonic=wall, unix=wall))
    requests = [ask(str(n), prompt(n, 64), 400) for n in range(4)]
    news = []
    for request in requests:
        news.append(driver.submit(request))
        wall.now_s += 0.050  # no timer fires: the process has no CPU
    driver.idle()
    waits = [request.admitted_at - request.arrival for request in requests if request.admitted_at is not None]
    assert len(waits) == 4
    assert all(wait >= 0 for wait in waits), waits
    assert all(request.first_token_at > request.arrival for request in requests)
    assert all(event.is_set() for event in news)
    driver.close()


def test_a_request_is_never_admitted_before_it_came_also_when_turns_are_late() -> None:
    asyncio.run(_stalled())


async def _left_behind() -> None:
    wall = Wall()
    driver = Driver(make_engine(), VirtualClock(1.0, monotonic=wall, unix=wall))
    first, second = ask("1", prompt(1, 64), 8), ask("2", prompt(2, 64), 4000)
    news = driver.submit(first)
    driver.submit(second)
    wall.now_s = 5.0  # long enough for all of the first answer
    driver.abort("2")
    assert first.output == 8
    assert news.is_set()
    driver.close()


def test_what_ended_before_an_abort_came_has_ended_and_is_told() -> None:
    asyncio.run(_left_behind())


async def _ghosts() -> None:
    wall = Wall()
    driver = Driver(make_engine(faults=SimFaults(ghosts=True)), VirtualClock(1.0, monotonic=wall, unix=wall))
    short, long = ask("1", prompt(1, 64), 8), ask("2", prompt(2, 64), 4000)
    for request in (short, long):
        driver.submit(request)
        driver.leave(request)
    assert "1" in driver and "2" in driver
    wall.now_s = 5.0
    driver.abort("2")
    assert "1" not in driver and "2" not in driver
    ended = [(one.rid, one.finish, one.output_tokens, one.end_unix_s) for one in driver.arrivals]
    assert ended == [("1", "length", 8, 5.0), ("2", "abort", long.output, 5.0)]
    driver.close()


def test_a_ghost_is_known_by_its_id_until_it_ends_and_its_end_is_told() -> None:
    asyncio.run(_ghosts())
