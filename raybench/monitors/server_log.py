"""Reads the engine's own log while it is written: what it tells of its cache. Runs on the target's host.

Only lines that come after the start are read. A position counts the bytes read since then, whatever
happens to the file, so two positions enclose the lines of one load without any clock.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from raybench.engines.contract import LogLine
from raybench.records.clock import Clock
from raybench.records.schema import SERVER_LOG
from raybench.records.stream import ArrowEncoder

#: Between two looks at the file, so that what is kept in memory stays small.
READ_S = 0.5
CHUNK_BYTES = 4 * 1024 * 1024

AppendPart = Callable[[str, bytes], Awaitable[None]]
ClosePart = Callable[[str], Awaitable[None]]


class LogTail:
    """Rows of `records.schema.SERVER_LOG` from one file. `read_line` is the engine's (`Engine.read_log_line`)."""

    def __init__(self, path: Path, read_line: Callable[[str], LogLine | None], clock: Clock, arm: str) -> None:
        self.path = path
        self.position = 0
        self._read_line = read_line
        self._clock = clock
        self._arm = arm
        self._file: BinaryIO | None = None
        self._torn = b""

    def start(self) -> str | None:
        """Go to the end of the file as it is now. The reason when it cannot be read."""
        try:
            self._file = self.path.open("rb", buffering=0)
        except OSError as error:
            return f"the log {self.path} cannot be read on the target host: {error.strerror or error}"
        if self._file.seek(0, os.SEEK_END) > 0:
            self._file.seek(-1, os.SEEK_END)
            # A line that is half written now is none of ours: its beginning is not read.
            self._torn = b"" if self._file.read(1) == b"\n" else b"?"
        return None

    def drain(self) -> list[dict[str, object]]:
        """What has come since the last time. Blocks while the disk works."""
        rows: list[dict[str, object]] = []
        if self._file is None:
            return rows
        try:
            renewed = self.path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            renewed = False  # moved away, and the new one is not there yet
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            self._torn = b""
            rows.append(self._read_now() | {"kind": "gap", "note": "the file was cut short while it was read"})
        self._read_on(rows)
        if renewed:
            self._turn_over(rows)
        return rows

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _turn_over(self, rows: list[dict[str, object]]) -> None:
        """The log was rotated: the old file is read to its end, now comes the new one."""
        try:
            fresh = self.path.open("rb", buffering=0)
        except OSError as error:
            note = f"the new file cannot be read: {error.strerror or error}"
            rows.append(self._read_now() | {"kind": "gap", "note": note})
            return
        self.close()
        self._file, self._torn = fresh, b""
        self._read_on(rows)

    def _read_on(self, rows: list[dict[str, object]]) -> None:
        assert self._file is not None
        while data := self._file.read(CHUNK_BYTES):
            *lines, torn = data.split(b"\n")
            if lines:
                lines[0], self._torn = self._torn + lines[0], b""
            self._torn += torn
            for line in lines:
                self.position += len(line) + 1
                told = self._read_line(line.decode("utf-8", "replace"))
                if told is not None:
                    rows.append(self._read_now() | asdict(told))

    def _read_now(self) -> dict[str, object]:
        return {
            "arm": self._arm,
            "position": self.position,
            "sample_ns": self._clock.monotonic_ns(),
            "sample_unix_ns": self._clock.unix_ns(),
        }


class LogWatch:
    """Ships a tail's rows into its part file, every READ_S and at each mark. `metadata` is the part's."""

    def __init__(
        self, tail: LogTail, part: str, metadata: Mapping[str, str], append: AppendPart, close: ClosePart
    ) -> None:
        self._tail = tail
        self._part = part
        self._append = append
        self._close = close
        self._encoder = ArrowEncoder(SERVER_LOG, metadata)
        self._lock = asyncio.Lock()
        self._pump: asyncio.Task[None] | None = None

    async def start(self) -> str | None:
        """The reason when there is no log to read; then nothing runs."""
        reason = await asyncio.to_thread(self._tail.start)
        if reason is None:
            await self._append(self._part, self._encoder.start())
            self._pump = asyncio.ensure_future(self._pump_for_ever())
        return reason

    async def mark(self) -> int:
        """The position after everything that is in the file now, all of it in the part."""
        async with self._lock:
            rows = await asyncio.to_thread(self._tail.drain)
            if rows:
                await self._append(self._part, self._encoder.encode(rows))
            return self._tail.position

    async def stop(self) -> None:
        if self._pump is None:
            return
        self._pump.cancel()
        with suppress(asyncio.CancelledError):
            await self._pump  # a bug of the reading comes up here
        self._pump = None
        await self.mark()
        await asyncio.to_thread(self._tail.close)
        await self._append(self._part, self._encoder.close())
        await self._close(self._part)

    async def _pump_for_ever(self) -> None:
        while True:
            await asyncio.sleep(READ_S)
            await self.mark()
