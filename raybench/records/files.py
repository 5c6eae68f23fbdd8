"""Files that are either old or new, never half: written beside, synced, then renamed.

Runs on the coordinator's host and wherever the merge runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to; on success that file takes the place of `path`.

    On an error the new file is removed and an old one stays as it was. The folder must exist.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_bytes(data)


def append_all(file: int, data: bytes) -> None:
    """Write every byte to an open file descriptor; the system may take them in pieces."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


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
