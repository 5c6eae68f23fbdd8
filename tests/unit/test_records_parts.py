"""records/parts.py: bytes appended verbatim, inside the run directory, to parts that are written once."""

from pathlib import Path

import pyarrow as pa
import pytest

from raybench.errors import RunDirectoryError
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.records.stream import ArrowEncoder, read_part


def test_bytes_are_appended_verbatim_to_several_parts_at_once(tmp_path: Path) -> None:
    with PartFiles(tmp_path) as parts:
        parts.append("parts/gpu/h.arrows", b"\x00one")
        parts.append("parts/a/w.arrows", b"x")
        parts.append("parts/gpu/h.arrows", b"\ntwo")
        assert (tmp_path / "parts/gpu/h.arrows").read_bytes() == b"\x00one\ntwo"
    assert (tmp_path / "parts/a/w.arrows").read_bytes() == b"x"


def test_an_encoders_stream_comes_back_from_its_part(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create()
    encoder = ArrowEncoder(pa.schema([("n", pa.int64())]))
    path = run.part("a/16k/c1", 1, "w0")
    parts = PartFiles(run.path)
    for data in (encoder.encode([{"n": 1}]), encoder.encode([{"n": 2}])):
        parts.append(run.relative(path), data)
    assert read_part(path).closed is False
    parts.append(run.relative(path), encoder.close())
    parts.close(run.relative(path))
    part = read_part(path)
    assert part.closed
    assert part.table["n"].to_pylist() == [1, 2]


@pytest.mark.parametrize("outside", ["../x", "/etc/x", "parts/../../x", "", ".", "link/x"])
def test_a_path_outside_the_run_directory_is_refused(tmp_path: Path, outside: str) -> None:
    root = tmp_path / "run"
    root.mkdir()
    (root / "link").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(RunDirectoryError, match="outside the run directory"):
        PartFiles(root).append(outside, b"x")
    assert not (tmp_path / "x").exists()


def test_a_part_that_was_there_before_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "w.arrows").write_bytes(b"torn")
    with pytest.raises(RunDirectoryError, match="written once"):
        PartFiles(tmp_path).append("w.arrows", b"more")
    assert (tmp_path / "w.arrows").read_bytes() == b"torn"


def test_a_closed_part_takes_no_more(tmp_path: Path) -> None:
    parts = PartFiles(tmp_path)
    parts.append("w.arrows", b"x")
    parts.close("w.arrows")
    parts.close("w.arrows")
    with pytest.raises(RunDirectoryError, match="written once"):
        parts.append("w.arrows", b"y")


def test_sync_reaches_every_part_with_new_bytes_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = PartFiles(tmp_path)
    parts.append("a.arrows", b"x")
    parts.append("b.arrows", b"x")
    parts.sync()
    synced: list[int] = []
    monkeypatch.setattr("raybench.records.parts.os.fsync", synced.append)
    parts.append("a.arrows", b"y")
    parts.sync()
    parts.sync()
    assert len(synced) == 1
    parts.close("b.arrows")
    assert len(synced) == 1
    parts.append("a.arrows", b"z")
    parts.close("a.arrows")
    assert len(synced) == 2
