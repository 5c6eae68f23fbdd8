"""The coordinator's desk: leases of the order under way, part files, signs of life, and the snapshot of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from protocol_fakes import NS_PER_S, FakeClock

from raybench.load.leases import Recall, Returned
from raybench.load.order import OrderKey
from raybench.protocol.desk import OrderDesk
from raybench.protocol.progress import Progress
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.scenario.plan import Point

T = TypeVar("T")
POINT = "arm/load/c3"
KEY = OrderKey(POINT, 1, "load")


def do(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    return directory


@pytest.fixture
def desk(run: RunDirectory, clock: FakeClock) -> Iterator[OrderDesk]:
    with PartFiles(run.path) as files:
        yield OrderDesk(run, files, clock)


async def nobody(worker: str, _key: OrderKey, recall: Recall) -> Returned | None:
    raise AssertionError(f"{recall} of {worker}")


def test_leases_follow_the_shares_of_the_order(desk: OrderDesk) -> None:
    desk.open(KEY, 4, {"w0": 2, "w1": 1}, nobody)
    assert do(desk.lease("w1", KEY, 1, 0)) == [0, 1]
    assert do(desk.lease("w0", KEY, 2, 0)) == [2, 3]
    assert desk.leased == 4


def test_a_free_slot_gets_what_another_worker_holds_ahead(desk: OrderDesk) -> None:
    async def ask_back(worker: str, key: OrderKey, recall: Recall) -> Returned | None:
        assert (worker, key) == ("w0", KEY)
        assert recall == Recall(leased=4, free_slots=1, ahead=0)
        return Returned([3], 2)

    desk.open(KEY, 6, {"w0": 2, "w1": 1}, ask_back)
    assert do(desk.lease("w0", KEY, 2, 0)) == [0, 1, 2, 3]
    assert do(desk.lease("w1", KEY, 1, 0)) == [4, 5]
    assert do(desk.lease("w1", KEY, 1, 2)) == [3]


def test_a_worker_that_is_gone_holds_nobody_up(desk: OrderDesk) -> None:
    async def ask_back(*_: object) -> Returned | None:
        return None

    desk.open(KEY, 6, {"w0": 2, "w1": 1}, ask_back)
    do(desk.lease("w0", KEY, 2, 0))
    do(desk.lease("w1", KEY, 1, 0))
    assert do(desk.lease("w1", KEY, 1, 2)) == []


def test_a_recall_that_is_answered_after_the_order_was_given_up_brings_nothing(desk: OrderDesk) -> None:
    async def ask_back(*_: object) -> Returned | None:
        desk.close()
        return Returned([3], 2)

    desk.open(KEY, 6, {"w0": 2, "w1": 1}, ask_back)
    do(desk.lease("w0", KEY, 2, 0))
    do(desk.lease("w1", KEY, 1, 0))
    assert do(desk.lease("w1", KEY, 1, 2)) == []


def test_a_bug_of_a_recall_comes_out_at_the_worker_that_asked(desk: OrderDesk) -> None:
    desk.open(KEY, 6, {"w0": 2, "w1": 1}, nobody)
    do(desk.lease("w0", KEY, 2, 0))
    do(desk.lease("w1", KEY, 1, 0))
    with pytest.raises(AssertionError, match="of w0"):
        do(desk.lease("w1", KEY, 1, 2))


def test_what_was_given_back_is_kept_though_its_asker_is_gone(desk: OrderDesk) -> None:
    """And two that ask at once wait for one recall."""
    asked: list[str] = []

    async def scene() -> list[int]:
        answer = asyncio.Event()

        async def ask_back(worker: str, *_: object) -> Returned | None:
            asked.append(worker)
            await answer.wait()
            return Returned([6, 7], 2)

        desk.open(KEY, 8, {"w0": 2, "w1": 1, "w2": 1}, ask_back)
        for worker, free in (("w1", 1), ("w2", 1), ("w0", 2)):
            await desk.lease(worker, KEY, free, 0)
        leases = [asyncio.ensure_future(desk.lease(w, KEY, 1, 2)) for w in ("w1", "w2")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leases[0].cancel()
        answer.set()
        await asyncio.wait(leases)
        assert leases[0].cancelled()
        return leases[1].result()

    assert do(scene()) == [6, 7]
    assert asked == ["w0"]


@pytest.mark.parametrize(
    "key",
    [OrderKey("arm/load/c4", 1, "load"), OrderKey(POINT, 2, "load"), OrderKey(POINT, 1, "prewarm")],
    ids=["point", "attempt", "phase"],
)
def test_a_worker_of_another_order_gets_nothing(desk: OrderDesk, key: OrderKey) -> None:
    desk.open(KEY, 4, {"w0": 2}, nobody)
    assert do(desk.lease("w0", key, 1, 0)) == []


def test_no_lease_without_an_order_and_after_its_end(desk: OrderDesk) -> None:
    assert do(desk.lease("w0", KEY, 1, 0)) == []
    desk.open(KEY, 4, {"w0": 2}, nobody)
    desk.stop_leasing()
    assert do(desk.lease("w0", KEY, 1, 0)) == []
    desk.close()
    assert desk.order is None


def test_each_phase_and_kind_has_a_part_of_its_own(desk: OrderDesk, run: RunDirectory) -> None:
    for phase in ("prewarm", "load"):
        desk.open(OrderKey(POINT, 1, phase), 4, {"w0": 2}, nobody)
        for kind in ("requests", "worker"):
            do(desk.append("w0", OrderKey(POINT, 1, phase), kind, f"{phase} {kind}".encode()))
        desk.close()
    parts = {path.name: path.read_text() for path in run.parts_of(POINT, 1)}
    assert parts == {
        "w0.arrows": "load requests",
        "w0.worker.arrows": "load worker",
        "w0.prewarm.arrows": "prewarm requests",
        "w0.prewarm.worker.arrows": "prewarm worker",
    }


def test_o_r4_what_a_worker_sends_after_it_was_given_up_is_dropped(desk: OrderDesk, run: RunDirectory) -> None:
    desk.open(KEY, 4, {"w0": 2}, nobody)
    for piece in (b"one ", b"two"):
        do(desk.append("w0", KEY, "requests", piece))
    desk.close()
    for attempt in (1, 2):  # between two orders, and during the next one
        do(desk.append("w0", KEY, "requests", b"late"))
        desk.open(OrderKey(POINT, attempt + 1, "load"), 4, {"w1": 2}, nobody)
    assert [path.name for path in run.path.rglob("*.arrows")] == ["w0.arrows"]
    assert run.part(POINT, 1, "w0").read_bytes() == b"one two"


def test_the_parts_of_monitors_are_their_own_to_close(desk: OrderDesk, run: RunDirectory) -> None:
    name = run.relative(run.gpu_part("host"))
    do(desk.append_part(name, b"a"))
    desk.open(KEY, 4, {"w0": 2}, nobody)
    desk.close()
    do(desk.append_part(name, b"b"))
    do(desk.close_part(name))
    assert run.gpu_part("host").read_bytes() == b"ab"


def test_a_monitor_that_was_given_up_behind_a_cut_link_adds_nothing_later(
    desk: OrderDesk, run: RunDirectory
) -> None:
    name = run.relative(run.gpu_part("host"))
    do(desk.append_part(name, b"a"))
    do(desk.close_part(name))
    do(desk.append_part(name, b"late"))
    assert run.gpu_part("host").read_bytes() == b"a"


def test_what_an_attempt_is_judged_by_is_on_the_disk_at_its_end(
    desk: OrderDesk, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(Path(f"/proc/self/fd/{file}").resolve()))
    do(desk.append_part(run.relative(run.gpu_part("host")), b"a"))
    desk.open(KEY, 4, {"w0": 2}, nobody)
    do(desk.append("w0", KEY, "requests", b"b"))
    desk.close()
    files = [run.part(POINT, 1, "w0"), run.gpu_part("host")]
    assert {path.resolve() for file in files for path in (file, file.parent)} <= synced


# Progress

POINT_OF_PLAN = Point(POINT, "arm", "load", 3, 12, 64, 4, None, None, None)


def test_a_snapshot_before_anything_knows_nothing(desk: OrderDesk, clock: FakeClock) -> None:
    snapshot = Progress(desk, clock, [POINT] * 3).snapshot()
    assert (snapshot.arm, snapshot.point_id, snapshot.step) == (None, None, "start")
    assert (snapshot.requests, snapshot.left_s, snapshot.points_total) == (0, None, 3)


def test_a_snapshot_adds_up_the_workers_and_reckons_what_is_left(desk: OrderDesk, clock: FakeClock) -> None:
    progress = Progress(desk, clock, [POINT] * 3)
    progress.step(POINT_OF_PLAN, 2, "load")
    desk.open(OrderKey(POINT, 2, "load"), 12, {"w0": 2, "w1": 1}, nobody)
    assert progress.snapshot().left_s is None, "nothing is finished, so nothing can be reckoned"
    clock.ns += 4 * NS_PER_S
    do(desk.heartbeat("w0", 2, 5, 500))
    do(desk.heartbeat("w0", 2, 2, 200))
    do(desk.heartbeat("w1", 1, 2, 200))
    snapshot = progress.snapshot()
    assert (snapshot.point_id, snapshot.attempt, snapshot.step) == (POINT, 2, "load")
    assert (snapshot.in_flight, snapshot.completed, snapshot.requests) == (3, 4, 12)
    assert snapshot.output_tokens_per_s == pytest.approx(100.0)
    assert snapshot.left_s == pytest.approx(8.0)


def test_a_new_order_forgets_the_pulses_of_the_one_before(desk: OrderDesk, clock: FakeClock) -> None:
    desk.open(OrderKey(POINT, 1, "prewarm"), 2, {"w0": 2}, nobody)
    do(desk.heartbeat("w0", 2, 2, 8))
    desk.open(KEY, 12, {"w0": 2}, nobody)
    assert Progress(desk, clock, [POINT]).snapshot().completed == 0


def test_a_pulse_after_the_end_is_ignored(desk: OrderDesk) -> None:
    desk.open(KEY, 12, {"w0": 2}, nobody)
    desk.close()
    do(desk.heartbeat("w0", 0, 12, 48))
    assert desk.order is None


def test_finished_points_are_listed_in_order(desk: OrderDesk, clock: FakeClock) -> None:
    progress = Progress(desk, clock, [POINT] * 2)
    progress.arm_step("arm", "alive")
    assert (progress.snapshot().arm, progress.snapshot().point_id) == ("arm", None)
    progress.step(POINT_OF_PLAN, 1, "load")
    progress.point_done(POINT_OF_PLAN, "accepted")
    snapshot = progress.snapshot()
    assert (snapshot.points_done, snapshot.last_verdicts) == (1, ((POINT, "accepted"),))
