"""A disk that takes no more: said with the way out, and what was written before stays whole.

The disk is the real one with a limit on the size of a file, which the system enforces in the middle of a write
as it does when a disk is full.
"""

import asyncio
import errno
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from protocol_fakes import FakeClock

from raybench.corpus.windows import WindowLedger
from raybench.errors import RunDirectoryError
from raybench.records.files import replacing, write_file
from raybench.records.journal import Journal, read_journal
from raybench.records.parts import PartFiles
from raybench.records.stream import ArrowEncoder, read_part


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_told_with_the_way_out() -> None:
    error = RunDirectoryError.unwritten(Path("run/x"), OSError(errno.ENOSPC, "No space left on device"))
    assert str(error) == (
        "run/x: cannot be written: No space left on device; free space on its disk and try again"
        " (a run: go on with --resume, what is committed stays)"
    )
    assert "mend that and try again" in str(RunDirectoryError.unwritten(Path("x"), OSError(errno.EIO, "broken")))


def test_a_journal_line_that_does_not_fit_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", FakeClock())
    journal.append("run_started")
    before = journal.path.read_bytes()
    with files_end_at(len(before) + 10), pytest.raises(RunDirectoryError, match="go on with --resume"):
        journal.append("point_committed", point_id="a/w/c1")
    assert journal.path.read_bytes() == before
    journal.append("run_ended")  # there is space again
    journal.close()
    assert [line["event"] for line in read_journal(journal.path)] == ["run_started", "run_ended"]


def test_a_batch_that_does_not_fit_tears_nothing_that_comes_before_or_after(tmp_path: Path) -> None:
    encoder = ArrowEncoder(pa.schema([("n", pa.int64())]))
    parts = PartFiles(tmp_path)
    parts.append("p.arrows", encoder.encode([{"n": 1}]))
    size = (tmp_path / "p.arrows").stat().st_size
    with files_end_at(size + 20), pytest.raises(RunDirectoryError, match="cannot be written"):
        parts.append("p.arrows", encoder.encode([{"n": 2}]))
    parts.append("p.arrows", encoder.encode([{"n": 3}]) + encoder.close())
    parts.close_all()
    part = read_part(tmp_path / "p.arrows")
    assert (part.table["n"].to_pylist(), part.warning) == ([1, 3], None)


def test_a_file_that_does_not_fit_leaves_the_old_one_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_file(path, b"old")
    with files_end_at(10), pytest.raises(RunDirectoryError, match="cannot be written"):
        write_file(path, b"x" * 100)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


def test_arrow_is_told_in_the_same_words(tmp_path: Path) -> None:
    table = pa.table({"n": np.arange(100_000)})
    path = tmp_path / "t.arrow"
    with files_end_at(1000), pytest.raises(RunDirectoryError, match="cannot be written"), replacing(path) as new:
        pa.OSFile(str(new), "wb").write(bytes(table["n"].chunk(0).buffers()[1]))
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_cannot_grow_gives_out_no_text(tmp_path: Path) -> None:
    ids = np.random.default_rng(1).integers(0, 1000, 4096, dtype=np.uint32)
    ledger = WindowLedger(tmp_path / "l.jsonl", "pid-1")
    with files_end_at(50), pytest.raises(RunDirectoryError, match="go on with --resume"):
        ledger.take(ids, 2, 64, "first")
    starts = ledger.take(ids, 2, 64, "again")
    ledger.close()
    again = WindowLedger(tmp_path / "l.jsonl", "pid-1")
    assert not set(again.take(ids, 2, 64, "other")) & set(starts)
    again.close()


def test_bytes_that_come_while_a_thread_syncs_are_synced_later(tmp_path: Path) -> None:
    """The coordinator syncs in a thread while its loop appends to, makes and closes parts."""
    parts = PartFiles(tmp_path)

    async def both() -> None:
        for number in range(50):
            syncing = asyncio.create_task(asyncio.to_thread(parts.sync))
            for part in range(20):
                parts.append(f"{number}/{part}.arrows", b"x")
                parts.close(f"{number}/{part - 5}.arrows")
                await asyncio.sleep(0)
            await syncing
        parts.close_all()

    asyncio.run(both())
    assert sum(1 for path in tmp_path.rglob("*.arrows") if path.read_bytes() == b"x") == 1000
