"""What went in, by content: sha256 of files and of directories, for the manifest, the inventory and the reports.

Runs wherever the file lies. Large files are hashed once: a `DigestCache` knows them by size, time of change and
inode. A directory's digest is the sha256 of the text that `sha256sum` prints for
its files, sorted by path, so that anybody can check it without raybench.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raybench.errors import ConfigError, ConfigProblem, RunDirectoryError
from raybench.records.strict_json import read_json, write_json

LARGE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class FileDigest:
    """path: relative to the directory, with `/`; for a single file its name."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class DirectoryDigest:
    """All files below a directory, sorted by path, links followed."""

    files: tuple[FileDigest, ...]
    size_bytes: int
    sha256: str


class DigestCache:
    """Digests of large files of this host, in a file of the user's cache folder.

    A file that is changed without a change of its size, its inode and its time in nanoseconds is taken for
    the old one. Several processes may use one cache: each adds what it found, and the last one wins.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        if path.is_file():
            try:
                found = read_json(path)
            except RunDirectoryError:  # a cache that is broken is an empty cache
                found = {}
            self._known = found if isinstance(found, dict) else {}

    @classmethod
    def of_user(cls) -> DigestCache:
        folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(folder) / "raybench" / "sha256.json")

    def find(self, path: Path, status: os.stat_result) -> str | None:
        known = self._known.get(str(path.resolve()))
        if not isinstance(known, dict) or known.get("state") != _state(status):
            return None
        return str(known["sha256"])

    def keep(self, path: Path, status: os.stat_result, sha256: str) -> None:
        self._known[str(path.resolve())] = {"state": _state(status), "sha256": sha256}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, self._known)


def digest_file(path: Path, cache: DigestCache | None = None) -> FileDigest:
    """cache: for files from LARGE_BYTES on. Raises ConfigError when the file cannot be read."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            cache = cache if status.st_size >= LARGE_BYTES else None
            if cache is not None and (known := cache.find(path, status)) is not None:
                return FileDigest(path.name, status.st_size, known)
            # Reads in chunks; the size is taken from the same open file as the content.
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            if cache is not None:
                cache.keep(path, status, sha256)
            return FileDigest(path.name, file.tell(), sha256)
    except OSError as error:
        raise _unreadable(path, error) from error


def digest_directory(root: Path, cache: DigestCache | None = None) -> DirectoryDigest:
    """Raises ConfigError when a file cannot be read, a broken link included."""
    if not root.is_dir():
        raise ConfigError(str(root), "not a directory")
    files = []
    for relative in sorted(_files_below(root)):
        digest = digest_file(root / relative, cache)
        files.append(FileDigest(relative, digest.size_bytes, digest.sha256))
    listing = "".join(f"{file.sha256}  {file.path}\n" for file in files)
    return DirectoryDigest(
        tuple(files), sum(file.size_bytes for file in files), hashlib.sha256(listing.encode()).hexdigest()
    )


def digest_input(path: Path, cache: DigestCache | None = None) -> dict[str, object]:
    """The manifest's entry for a file or a directory: what it is called, its size, its sha256."""
    if path.is_dir():
        directory = digest_directory(path, cache)
        return {
            "name": path.name,
            "kind": "directory",
            "size_bytes": directory.size_bytes,
            "sha256": directory.sha256,
            "files": [{"path": f.path, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in directory.files],
        }
    file = digest_file(path, cache)
    return {"name": file.path, "kind": "file", "size_bytes": file.size_bytes, "sha256": file.sha256}


def _state(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _files_below(root: Path) -> list[str]:
    """Relative paths of all files. Links to directories are entered (model caches are made of links),
    each real directory once on a way down, so that a circle ends."""
    found: list[str] = []
    pending: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    while pending:
        directory, above = pending.pop()
        real = os.path.realpath(directory)
        if real in above:
            continue
        try:
            entries = list(directory.iterdir())
        except OSError as error:
            raise _unreadable(directory, error) from error
        for entry in entries:
            if entry.is_dir():
                pending.append((entry, (*above, real)))
            else:
                found.append(entry.relative_to(root).as_posix())
    return found


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(str(path), ConfigProblem(f"cannot be read: {error.strerror or error}"))
