"""What went in, by content: sha256 of files and of directories, for the manifest and the reports.

Runs wherever the file lies. A directory's digest is the sha256 of the text that `sha256sum` prints for
its files, sorted by path, so that anybody can check it without raybench.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from raybench.errors import ConfigError, ConfigProblem


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


def digest_file(path: Path) -> FileDigest:
    """Raises ConfigError when the file cannot be read."""
    try:
        with path.open("rb") as file:
            # Reads in chunks; the size is taken from the same open file as the content.
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            return FileDigest(path.name, file.tell(), sha256)
    except OSError as error:
        raise _unreadable(path, error) from error


def digest_directory(root: Path) -> DirectoryDigest:
    """Raises ConfigError when a file cannot be read, a broken link included."""
    if not root.is_dir():
        raise ConfigError(str(root), "not a directory")
    files = []
    for relative in sorted(_files_below(root)):
        digest = digest_file(root / relative)
        files.append(FileDigest(relative, digest.size_bytes, digest.sha256))
    listing = "".join(f"{file.sha256}  {file.path}\n" for file in files)
    return DirectoryDigest(
        tuple(files), sum(file.size_bytes for file in files), hashlib.sha256(listing.encode()).hexdigest()
    )


def digest_input(path: Path) -> dict[str, object]:
    """The manifest's entry for a file or a directory: what it is called, its size, its sha256."""
    if path.is_dir():
        directory = digest_directory(path)
        return {
            "name": path.name,
            "kind": "directory",
            "size_bytes": directory.size_bytes,
            "sha256": directory.sha256,
            "files": [{"path": f.path, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in directory.files],
        }
    file = digest_file(path)
    return {"name": file.path, "kind": "file", "size_bytes": file.size_bytes, "sha256": file.sha256}


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
