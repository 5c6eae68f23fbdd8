"""Files that are either old or new, never half: written beside, synced, then renamed.

Runs on the coordinator's host and wherever the merge runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raybench.errors import RunDirectoryError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the disk refuses inside comes out as a RunDirectoryError with the way out."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError.unwritten(path, error) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to; on success that file takes the place of `path`.

    On an error the new file is removed and an old one stays as it was. The folder must exist. Raises
    RunDirectoryError when the disk refuses.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    with writing(path):
        try:
            yield beside
            with beside.open("rb") as written:
                os.fsync(written.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        sync_folder(path.parent)


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file, replacing an old one atomically."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_bytes(data)


def append_whole(file: int, data: bytes, path: Path) -> None:
    """`append_all` to a file of a run. Raises RunDirectoryError, naming `path`."""
    with writing(path):
        append_all(file, data)


def append_all(file: int, data: bytes) -> None:
    """Append every byte, or none: what a full disk took of them is taken back, so that nothing torn gets
    between what is appended later. The file has one writer. Raises OSError.
    """
    before = os.fstat(file).st_size
    try:
        view = memoryview(data)
        while view:  # the system may take them in pieces
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, before)
        raise


def sync_folder(folder: Path) -> None:
    """Make a new or renamed entry of `folder` survive a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_piece(path: Path, offset: int, size: int) -> bytes:
    """At most `size` bytes from `offset` on; empty at the end. Raises OSError."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)
