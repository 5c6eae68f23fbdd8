"""The journal of a run: one JSON line a step, on both clocks, on disk before the next step begins.

Written by the coordinator only. A line is true once it is in the file: a point is committed by its
line here, and `--resume` goes on after the last one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from raybench.errors import RunDirectoryError
from raybench.records.clock import Clock
from raybench.records.files import append_whole, sync_folder, writing
from raybench.records.strict_json import from_json, to_json

#: Event that stands in for a line which was torn by the death of its writer.
TORN_LINE = "torn_line"
#: First event of a process that opened an existing journal.
REOPENED = "journal_reopened"
#: Ends a torn line so that it can never parse, even if only its line end was missing.
SEAL = b" ~torn"


class Journal:
    """Appends lines; each is synced before `append` returns. Only one process may write a journal."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            sync_folder(path.parent)
        size = os.fstat(self._file).st_size
        if size:
            torn = os.pread(self._file, 1, size - 1) != b"\n"
            self._write((SEAL + b"\n" if torn else b"") + self._line(REOPENED, {}))

    def append(self, event: str, **fields: object) -> None:
        """Write one line with `event`, `unix_ns`, `monotonic_ns` and the fields.

        A field named as one of the two stamps takes its place: an instant that the caller measured says
        more than that of the writing. NaN and infinities become null. Raises RunDirectoryError when the
        disk refuses the line; the journal is then as it was.
        """
        self._write(self._line(event, fields))

    def close(self) -> None:
        os.close(self._file)

    def _line(self, event: str, fields: Mapping[str, object]) -> bytes:
        stamps = {"unix_ns": self._clock.unix_ns(), "monotonic_ns": self._clock.monotonic_ns()}
        return to_json({"event": event, **stamps, **fields}).encode() + b"\n"

    def _write(self, data: bytes) -> None:
        append_whole(self._file, data, self.path)
        with writing(self.path):
            os.fsync(self._file)


def read_journal(path: Path) -> list[dict[str, object]]:
    """All lines in order; a torn one is given as event `torn_line` with its `line` and `dropped_bytes`.

    A line without its line end is torn even if it parses: its writer never said that it is true.
    Raises RunDirectoryError for a missing file, and for a broken line that no crash explains: one that
    is not the last, and behind which the journal was not opened again.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be read: {error.strerror}") from None
    *lines, tail = data.split(b"\n")
    events: list[dict[str, object]] = []
    unexplained: RunDirectoryError | None = None
    for number, line in enumerate(lines, start=1):
        try:
            event = _read_line(line, f"{path}:{number}")
        except RunDirectoryError as error:
            unexplained = error
            events.append(_torn(number, line))
            continue
        if unexplained is not None and event["event"] != REOPENED:
            raise unexplained
        unexplained = None
        events.append(event)
    if tail:
        events.append(_torn(len(lines) + 1, tail))
    return events


def _read_line(line: bytes, source: str) -> dict[str, object]:
    event = from_json(line.decode("utf-8", "replace"), source)
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise RunDirectoryError(f"{source}: not a line of a journal")
    return event


def _torn(number: int, line: bytes) -> dict[str, object]:
    return {"event": TORN_LINE, "line": number, "dropped_bytes": len(line.removesuffix(SEAL))}
