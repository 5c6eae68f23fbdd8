"""A log that is read while it is written, cut and rotated."""

import asyncio
from pathlib import Path

import pytest
from protocol_fakes import FakeClock

from raybench.engines.sglang_log import read_log_line
from raybench.monitors.server_log import LogTail, LogWatch
from raybench.records.clock import ClockAnchor
from raybench.records.parts import PartFiles
from raybench.records.stream import part_metadata, read_part


def line(tokens: int) -> str:
    return f"[2026-01-01 00:00:01] Prefill batch, #new-seq: 1, #new-token: {tokens}, #cached-token: 0, x\n"


def write(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "engine.log"
    path.write_text("started\n" + line(1))
    return path


def tail(path: Path) -> LogTail:
    return LogTail(path, read_log_line, FakeClock(), "arm")


def tokens(rows: list[dict[str, object]]) -> list[object]:
    return [row["new_tokens"] for row in rows]


def test_what_was_there_before_is_not_read(log: Path) -> None:
    one = tail(log)
    assert one.start() is None
    assert one.drain() == []
    write(log, "noise\n" + line(20) + line(300))
    rows = one.drain()
    assert tokens(rows) == [20, 300]
    assert [row["position"] for row in rows] == [6 + len(line(20)), 6 + len(line(20)) + len(line(300))]
    assert one.drain() == []


def test_a_log_that_cannot_be_read_is_a_reason_and_no_error(tmp_path: Path) -> None:
    one = tail(tmp_path / "none.log")
    reason = one.start()
    assert reason is not None
    assert "No such file" in reason
    assert one.drain() == []


def test_a_line_is_read_once_it_is_whole(log: Path) -> None:
    one = tail(log)
    one.start()
    whole = line(20)
    for piece in (whole[:30], whole[30:60]):
        write(log, piece)
        assert one.drain() == []
    assert one.position == 0
    write(log, whole[60:] + line(3))
    assert tokens(one.drain()) == [20, 3]


def test_a_line_that_was_half_written_at_the_start_is_left_out(log: Path) -> None:
    whole = line(20)
    write(log, whole[:40])
    one = tail(log)
    one.start()
    write(log, whole[40:] + line(3))
    assert tokens(one.drain()) == [3]


def test_a_rotated_log_is_read_to_its_end_and_on(log: Path) -> None:
    one = tail(log)
    one.start()
    write(log, line(20))
    log.rename(log.with_suffix(".1"))
    write(log.with_suffix(".1"), line(30))
    assert tokens(one.drain()) == [20, 30]  # the new file is not there yet
    write(log, line(4))
    rows = one.drain()
    assert tokens(rows) == [4]
    assert rows[0]["position"] == len(line(20)) + len(line(30)) + len(line(4))


def test_a_log_that_was_cut_short_has_a_gap(log: Path) -> None:
    one = tail(log)
    one.start()
    log.write_text(line(7))
    gap, first = one.drain()
    assert (gap["kind"], gap["note"]) == ("gap", "the file was cut short while it was read")
    assert first["new_tokens"] == 7


def test_a_mark_is_behind_everything_that_was_written_and_all_of_it_is_in_the_part(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raybench.monitors.server_log.READ_S", 0)
    files = PartFiles(tmp_path)

    async def append(part: str, data: bytes) -> None:
        files.append(part, data)

    async def close(part: str) -> None:
        files.close(part)

    async def go() -> list[int]:
        metadata = part_metadata("server_log", ClockAnchor("h", None, 0, 0), arm="arm")
        watch = LogWatch(tail(log), "log.arrows", metadata, append, close)
        assert await watch.start() is None
        write(log, line(20))
        marks = [await watch.mark(), await watch.mark()]
        part = read_part(tmp_path / "log.arrows")
        assert (part.table.num_rows, part.closed) == (1, False)
        write(log, line(300))
        await watch.stop()
        await watch.stop()
        return marks

    assert asyncio.run(go()) == [len(line(20))] * 2
    part = read_part(tmp_path / "log.arrows")
    assert (part.table["new_tokens"].to_pylist(), part.closed) == ([20, 300], True)
