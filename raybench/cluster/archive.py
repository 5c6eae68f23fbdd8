"""Bring a run directory home over the Job API: as an archive in the log of a small job of its own.

The Job API has no file transfer, and no other port of a cluster can be counted on. `export` runs on
the head node and prints the archive in lines; `Importer` puts it together again, checks its digest
and unpacks it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from raybench.cluster.events import event_line
from raybench.errors import ClusterError, RunDirectoryError

PIECE_BYTES = 256 * 1024
DAMAGED = "the run directory came back damaged; it has to be fetched again"


def export(run_path: Path, write: Callable[[str], object]) -> None:
    """Print the run directory as events of kind `archive`, the last with the digest of the whole."""
    if not run_path.is_dir():
        raise RunDirectoryError(f"{run_path}: no such run directory on this node")
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=3) as archive:
            archive.add(run_path, arcname=".")
        packed.seek(0)
        digest = hashlib.sha256()
        number = 0
        while piece := packed.read(PIECE_BYTES):
            digest.update(piece)
            write(event_line("archive", number=number, data=base64.b64encode(piece).decode()))
            number += 1
        write(event_line("archive", pieces=number, sha256=digest.hexdigest()))


class Importer:
    """Events of kind `archive` in, a run directory out. Pieces come in order; doubled ones are dropped."""

    def __init__(self) -> None:
        self._packed = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the importer
        self._digest = hashlib.sha256()
        self._next = 0
        self.complete = False

    def take(self, event: dict[str, object]) -> None:
        """Raises ClusterError for a missing or damaged piece and for a wrong digest."""
        if "sha256" in event:
            if event["pieces"] != self._next or event["sha256"] != self._digest.hexdigest():
                raise ClusterError(DAMAGED)
            self.complete = True
            return
        if event["number"] != self._next:
            return
        try:
            piece = base64.b64decode(str(event["data"]), validate=True)
        except binascii.Error:
            raise ClusterError(DAMAGED) from None
        self._digest.update(piece)
        self._packed.write(piece)
        self._next += 1

    def unpack(self, target: Path) -> None:
        """Into `target`, replacing older copies of the same files."""
        self._packed.seek(0)
        target.mkdir(parents=True, exist_ok=True)
        with self._packed, tarfile.open(fileobj=self._packed, mode="r:gz") as archive:
            archive.extractall(target, filter="data")
