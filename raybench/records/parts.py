"""Parts on the coordinator's disk: bytes of Arrow streams appended as they come from workers and monitors.

The recorder (an actor on the coordinator's host) owns one `PartFiles` and calls `sync` at least every
second. A part is written once: an existing file is never opened for writing again.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

from raybench.errors import RunDirectoryError
from raybench.records.files import append_whole, sync_folder, writing


class PartFiles:
    """Open parts under one run directory, by their path relative to it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._files: dict[str, int] = {}
        self._closed: set[str] = set()
        self._unsynced: set[str] = set()
        self._new_folders: set[Path] = set()
        #: `sync` runs in a thread beside the others: no file is closed under its hands.
        self._closing = threading.Lock()

    def append(self, relative_path: str, data: bytes) -> None:
        """Append bytes verbatim; the first call makes the file.

        Raises RunDirectoryError for a path outside the run directory, for a part that was there
        before, or was closed, and when the disk refuses: then none of the bytes are in the file.
        """
        file = self._files.get(relative_path)
        if file is None:
            file = self._create(relative_path)
        append_whole(file, data, self._root / relative_path)
        self._unsynced.add(relative_path)

    def sync(self) -> None:
        """Bring all bytes appended so far to the disk. Blocks while the disk works; may run in a thread.

        Raises RunDirectoryError when the disk refuses.
        """
        for relative_path in list(self._unsynced):
            with self._closing, writing(self._root / relative_path):
                if relative_path in self._unsynced:
                    self._unsynced.discard(relative_path)  # before: bytes that come meanwhile are not forgotten
                    os.fsync(self._files[relative_path])
        for folder in list(self._new_folders):
            self._new_folders.discard(folder)
            with writing(folder):
                sync_folder(folder)

    def close(self, relative_path: str) -> None:
        """Sync and close one part; a part that is not open is left alone."""
        with self._closing:
            file = self._files.pop(relative_path, None)
            if file is None:
                return
            self._closed.add(relative_path)
            try:
                if relative_path in self._unsynced:
                    with writing(self._root / relative_path):
                        os.fsync(file)
            finally:
                self._unsynced.discard(relative_path)
                os.close(file)

    def was_closed(self, relative_path: str) -> bool:
        """Whether this part was written and closed here, so that nothing more can be appended."""
        return relative_path in self._closed

    def close_all(self) -> None:
        for relative_path in list(self._files):
            self.close(relative_path)
        self.sync()

    def __enter__(self) -> PartFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_all()

    def _create(self, relative_path: str) -> int:
        # Resolved, because a link inside the run directory may lead out of it as well as `..` does.
        path = (self._root / relative_path).resolve()
        if path == self._root or not path.is_relative_to(self._root):
            raise RunDirectoryError(f"{relative_path}: lies outside the run directory {self._root}")
        missing = [folder for folder in path.parents if not folder.exists()]
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                file = os.open(path, flags, 0o644)
            except FileExistsError:
                raise RunDirectoryError(f"{path}: exists; a part is written once, by one writer") from None
        self._files[relative_path] = file
        self._new_folders.update((path.parent, *(folder.parent for folder in missing)))
        return file
