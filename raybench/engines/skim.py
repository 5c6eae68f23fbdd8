"""A decoder that does not parse what it can count: the cheap way through a long stream.

Runs in the load worker, once a socket read. Events up to the first token and the last few go through the
full decoder, which knows the dialect and finds the usage, the finish reason, the errors; those between
are only cut at their blank lines, counted and stamped; their text is not kept. What a stream is at its ends
decides what it is: engines end a stream after an error, and put their counts into the last events.

A stream that is not framed as expected (CR line ends) simply stays with the full decoder.
"""

from __future__ import annotations

import re
from collections import deque

from raybench.engines.contract import Answer
from raybench.engines.decoder import MessageReader, StreamDecoder, add_chunk

#: All engines name their running count so, without a space behind.
COUNT_KEY = b'"completion_tokens":'

_END = b"\n\n"
_START = b"data:"
_NEXT_START = b"\ndata:"
#: A completions chunk without text: a finish reason, or bytes that do not make a character yet.
_NO_TEXT = b'"text":""'
_DIGITS = frozenset(b"0123456789")


class SkimmingDecoder:
    """`engines.contract.Decoder`.

    count_key: bytes before the server's cumulative token count in each event (`"completion_tokens":`), so
    that a chunk's tokens are known without parsing. held: how many of the last reads may hold more than
    tokens; these are kept for the full decoder.
    """

    def __init__(self, reader: MessageReader, *, event_bytes_max: int, count_key: bytes, held: int) -> None:
        self._full = StreamDecoder(reader, event_bytes_max=event_bytes_max)
        self._reader = reader
        self._answer = reader.answer
        self._event_bytes_max = event_bytes_max
        self._count_key = count_key
        self._counts = re.compile(re.escape(count_key) + rb"([0-9]+)").findall
        self._held_max = held
        self._held: deque[tuple[bytes, int]] = deque()
        self._part: list[bytes] = []
        self._part_bytes = 0
        self._last_ns = 0
        self._skimming = False
        self._skimmed = False
        self._count: int | None = None

    def feed(self, data: bytes, stamp_ns: int) -> None:
        if not self._skimming:
            self._full.feed(data, stamp_ns)
            if not self._skimmed and self._answer.first_token_ns is not None:
                self._skimming = data.endswith(_END) and b"\r" not in data
                self._count = self._answer.output_tokens
            return
        self._answer.bytes_received += len(data)
        self._last_ns = stamp_ns
        if self._part or not data.endswith(_END):
            data = self._whole_events(data)
            if not data:
                return
        held = self._held
        held.append((data, stamp_ns))
        if len(held) > self._held_max:
            self._skim(*held.popleft())

    def finish(self, *, complete: bool) -> Answer:
        self._back_to_full()
        return self._full.finish(complete=complete)

    def _whole_events(self, data: bytes) -> bytes:
        """What is complete of everything that has come; the rest waits."""
        self._part.append(data)
        self._part_bytes += len(data)
        if _END not in data and not (data.startswith(b"\n") and len(self._part) > 1):
            if self._part_bytes > self._event_bytes_max:
                self._back_to_full()  # which says so, in its own words
            return b""
        joined = b"".join(self._part)
        end = joined.rfind(_END)
        rest = joined[end + 2 :] if end >= 0 else joined
        self._part, self._part_bytes = ([rest] if rest else []), len(rest)
        return joined[: end + 2] if end >= 0 else b""

    def _back_to_full(self) -> None:
        """Hand what was kept to the full decoder, and leave the rest of the stream to it."""
        if not self._skimming:
            return
        self._skimming = False
        counted = self._answer.bytes_received
        if self._skimmed:
            self._answer.text_complete = False
            self._reader.skipped(self._count)
        for block, stamp_ns in self._held:
            self._full.feed(block, stamp_ns)
        for part in self._part:
            self._full.feed(part, self._last_ns)
        self._held.clear()
        self._part.clear()
        self._answer.bytes_received = counted

    def _skim(self, block: bytes, stamp_ns: int) -> None:
        """Count and stamp the events of one read."""
        self._skimmed = True
        events = block.count(_NEXT_START) + block.startswith(_START)
        self._answer.events += events
        if events == 1:
            at = block.rfind(self._count_key)
            counts = [self._number_at(block, at + len(self._count_key))] if at >= 0 else []
        else:
            counts = [int(digits) for digits in self._counts(block)]
        if len(counts) == events:
            for count in counts:
                self._add(count, stamp_ns)
        else:
            for _ in range(events - block.count(_NO_TEXT)):
                add_chunk(self._answer, stamp_ns, None)

    def _add(self, count: int, stamp_ns: int) -> None:
        before = self._count or 0
        if count > before:
            add_chunk(self._answer, stamp_ns, count - before)
            self._count = count

    @staticmethod
    def _number_at(block: bytes, at: int) -> int:
        end = at
        while block[end] in _DIGITS:
            end += 1
        return int(block[at:end] or b"0")
