"""What is kept of a server: its own numbers, ended with its arm, hiding no bug, and its log of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from protocol_fakes import FakeClock, FakeControl, FakeEngine, FakeHost
from test_records_full_disk import files_end_at

from raybench.engines.contract import Counters, Gauges, Http
from raybench.errors import RunDirectoryError, TargetError
from raybench.load.order import Endpoint
from raybench.protocol.target import Target
from raybench.protocol.watch import RequestLogCopy, ServerWatch
from raybench.records.journal import Journal, read_journal
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.records.stream import read_part
from raybench.scenario.schema import Arm

LOG = "/log.jsonl"


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
    return ServerWatch(target, "pid-1", run, files, interval_s=0.0)


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


# The copy of its log of requests


class Unreadable(FakeHost):
    async def read_from(self, arm_name: str, path: str, offset: int, size: int) -> bytes:
        raise TargetError("request_log", f"{path}: no such file")


@pytest.fixture
def journal(run: RunDirectory) -> Iterator[Journal]:
    journal = Journal(run.journal, FakeClock())
    yield journal
    journal.close()


def test_a_log_longer_than_one_read_is_copied_in_several_and_only_what_is_new_later(
    run: RunDirectory, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raybench.protocol.watch.READ_BYTES", 4)
    host = FakeHost(files={LOG: b"0123456789"})
    with PartFiles(run.path) as files:
        copy = RequestLogCopy(host, run, files, journal, "arm", LOG)
        asyncio.run(copy.pull())
        [path] = run.request_logs("arm")
        assert path.read_bytes() == b"0123456789"
        asyncio.run(copy.pull())
        assert path.read_bytes() == b"0123456789"
        host.files[LOG] += b"abc"
        asyncio.run(copy.close())
        assert path.read_bytes() == b"0123456789abc"
        assert files.was_closed(run.relative(path))
    assert not run.journal.exists() or read_journal(run.journal) == []


def test_why_a_log_cannot_be_copied_is_journalled(run: RunDirectory, journal: Journal) -> None:
    with PartFiles(run.path) as files:
        asyncio.run(RequestLogCopy(Unreadable(), run, files, journal, "arm", LOG).pull())
    (told,) = read_journal(run.journal)
    assert (told["event"], told["arm"]) == ("request_log", "arm")
    assert "/log.jsonl: no such file" in told["problem"]


def test_a_disk_that_is_full_is_told_with_the_way_out(run: RunDirectory, journal: Journal) -> None:
    with PartFiles(run.path) as files:
        copy = RequestLogCopy(FakeHost(files={LOG: b"0123"}), run, files, journal, "arm", LOG)
        with files_end_at(2), pytest.raises(RunDirectoryError, match="go on with --resume"):
            asyncio.run(copy.pull())
