"""The series of the engine's own numbers: in the part while it grows, ended with its arm, hiding no bug."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from protocol_fakes import FakeClock, FakeControl, FakeEngine

from raybench.engines.contract import Counters, Gauges, Http
from raybench.load.order import Endpoint
from raybench.protocol.target import Target
from raybench.protocol.watch import ServerWatch
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.records.stream import read_part
from raybench.scenario.schema import Arm


class Counting(FakeEngine):
    """Has served one more request at each scrape; the scrape numbered `breaks_at` meets a bug."""

    scrapes = 0
    breaks_at = 0

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        self.scrapes += 1
        if self.scrapes == self.breaks_at:
            raise ZeroDivisionError("a bug")
        return Counters(requests=self.scrapes), Gauges()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run")
    made.create()
    return made


def watch(engine: Counting, run: RunDirectory, files: PartFiles) -> ServerWatch:
    clock = FakeClock()
    arm = Arm(url="http://target:1")
    target = Target("arm", arm, engine, Endpoint("http://target:1", "sglang"), [FakeControl()], clock, clock.sleep)
    return ServerWatch(target, "pid-1", run, files, clock, interval_s=0.0)


def test_each_look_is_a_row_and_the_part_is_closed_with_the_arm(run: RunDirectory) -> None:
    engine = Counting()

    async def scene() -> None:
        with PartFiles(run.path) as files:
            async with watch(engine, run, files):
                assert len(run.server_parts()) == 1, "a server that never answers leaves a part as well"
                while engine.scrapes < 3:
                    await asyncio.sleep(0)
            seen = engine.scrapes
            for _ in range(5):
                await asyncio.sleep(0)
            assert engine.scrapes == seen, "nobody asks the engine once the arm is over"

    asyncio.run(asyncio.wait_for(scene(), 60))
    [path] = run.server_parts()
    part = read_part(path)
    rows = part.table.to_pylist()
    assert part.closed
    assert [row["requests_total"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 2
    assert {(row["arm"], row["instance"], row["error"]) for row in rows} == {("arm", "pid-1", None)}


def test_a_bug_of_the_sampler_comes_up_and_the_part_is_closed_all_the_same(run: RunDirectory) -> None:
    engine = Counting()
    engine.breaks_at = 2

    async def scene() -> None:
        with PartFiles(run.path) as files:
            async with watch(engine, run, files):
                while engine.scrapes < 2:
                    await asyncio.sleep(0)

    with pytest.raises(ZeroDivisionError, match="a bug"):
        asyncio.run(asyncio.wait_for(scene(), 60))
    [path] = run.server_parts()
    assert read_part(path).closed


def test_an_arm_that_fails_ends_its_watch_too(run: RunDirectory) -> None:
    engine = Counting()

    async def scene() -> None:
        with PartFiles(run.path) as files:
            async with watch(engine, run, files):
                while not engine.scrapes:
                    await asyncio.sleep(0)
                raise KeyError("the arm")

    with pytest.raises(KeyError, match="the arm"):
        asyncio.run(asyncio.wait_for(scene(), 60))
    [path] = run.server_parts()
    assert read_part(path).closed
