"""A decoder that does not parse what it can count: the cheap way through a long stream.

Runs in the load worker, once a socket read. The full decoder reads the events up to the first token. After it,
an event that shows nothing but new tokens is counted, stamped and dropped, its text with it; every other one (a
finish reason, the usage, an error, no text, [DONE]) goes through the full decoder in its turn. The last
event is held back and always read, so that of a stream that breaks off nothing is missing.

Searched for are JSON keys with their quotes and colon. Generated text cannot hold them, since in a JSON string
each quote is escaped. JSON that is written with spaces, and CR line ends, simply stay with the full decoder.
"""

from __future__ import annotations

from collections.abc import Iterator

from raybench.engines.contract import Answer
from raybench.engines.decoder import MessageReader, StreamDecoder, add_chunk

_EVENT_END = b"\n\n"
_LINE_END = b"\n"
_DATA = b"data:"
_LATER_DATA = b"\ndata:"
_FINISH = b'"finish_reason":'
_ERROR = b'"error":'
_TEXT = b'"text":"'
#: The server's running count of tokens, in the words of all engines.
_COUNT = b'"completion_tokens":'
_QUOTE = ord('"')
_NEWLINE = ord("\n")
_DIGITS = frozenset(b"0123456789")
#: A count of more digits is none that a column holds.
_DIGITS_MAX = 9


class SkimmingDecoder:
    """`engines.contract.Decoder`.

    by_text: an event brings tokens when it has text (OpenAI; how many is known where events have a
    count), otherwise when the count in it is higher than before (SGLang's /generate).
    """

    def __init__(self, reader: MessageReader, *, event_bytes_max: int, by_text: bool) -> None:
        self._full = StreamDecoder(reader, event_bytes_max=event_bytes_max)
        self._reader = reader
        self._answer = reader.answer
        self._event_bytes_max = event_bytes_max
        self._plain_bytes_max = event_bytes_max
        self._by_text = by_text
        self._skimming = False
        self._may_skim = True
        self._skipped = False  # events, since the full decoder read one
        self._count: int | None = None  # the server's, as of the last chunk
        # Around the text, as the last event without a count had it: what has the same has nothing else.
        self._head = self._tail = _EVENT_END
        self._held: tuple[bytes, int] | None = None
        self._part: list[bytes] = []
        self._part_bytes = 0
        self._part_ns = 0

    def feed(self, data: bytes, stamp_ns: int) -> None:
        if not self._skimming and not (data := self._read_in_full(data, stamp_ns)):
            return
        self._answer.bytes_received += len(data)
        if self._part or not data.endswith(_EVENT_END):
            data = self._whole_events(data, stamp_ns)
        if data.startswith(_DATA) or _LATER_DATA in data:  # else comments, or nothing yet
            held, self._held = self._held, (data, stamp_ns)
            if held is None:
                return
            if held[0].find(_LINE_END) == len(held[0]) - 2:  # one line and the empty one
                self._take(*held)
            else:
                self._take_each(*held)

    def _read_in_full(self, data: bytes, stamp_ns: int) -> bytes:
        """What is left to skim: all behind the last event that ends here, once the first token has come."""
        end = last_event_end(data) if self._may_skim and b"\r" not in data else 0
        if not end:
            self._full.feed(data, stamp_ns)
            return b""
        self._full.feed(data[:end], stamp_ns)
        if self._answer.first_token_ns is not None and not self._full.overflowed:
            self._skimming = True
            self._count = self._reader.counted
            return data[end:]
        if end < len(data):
            self._full.feed(data[end:], stamp_ns)
        return b""

    def finish(self, *, complete: bool) -> Answer:
        self._stop_skimming()
        return self._full.finish(complete=complete)

    def _whole_events(self, data: bytes, stamp_ns: int) -> bytes:
        """What is complete of everything that has come; the rest waits."""
        self._part.append(data)
        self._part_bytes += len(data)
        self._part_ns = stamp_ns
        ended = last_event_end(data) > 0
        if b"\r" in data or (self._part_bytes > self._event_bytes_max and not ended):
            self._stop_skimming()
            return b""
        if not ended and not (data.startswith(_LINE_END) and len(self._part) > 1):
            return b""
        joined = b"".join(self._part)
        end = last_event_end(joined)
        rest = joined[end:]
        self._part, self._part_bytes = ([rest] if rest else []), len(rest)
        return joined[:end]

    def _stop_skimming(self) -> None:
        """Leave what was kept, and the rest of the stream, to the full decoder."""
        if not self._skimming:
            return
        self._skimming = self._may_skim = False
        if self._held is not None:
            self._read(*self._held)
        if self._part:
            self._read(b"".join(self._part), self._part_ns)

    def _take_each(self, block: bytes, stamp_ns: int) -> None:
        """The events of one read."""
        for event in split_events(block):
            take = self._take if event.startswith(_DATA) else self._read
            take(event, stamp_ns)

    def _take(self, event: bytes, stamp_ns: int) -> None:
        """An event whose first line is data."""
        if (
            self._count is None
            and event.startswith(self._head)
            and event.endswith(self._tail)
            and event[len(self._head)] != _QUOTE
            and len(event) <= self._plain_bytes_max
        ):
            add_chunk(self._answer, stamp_ns, None)
        elif not self._add_tokens(event, stamp_ns):
            self._read(event, stamp_ns)
            return
        self._answer.events += 1
        self._skipped = True

    def _add_tokens(self, event: bytes, stamp_ns: int) -> bool:
        """The event's chunk; False, and nothing done, when there is more to it."""
        finish = event.rfind(_FINISH)
        if finish >= 0:
            goes_on = event.startswith(b"null", finish + len(_FINISH))
        else:  # some servers that speak OpenAI leave it out
            goes_on = self._by_text and _ERROR not in event
        if not goes_on or len(event) > self._plain_bytes_max:
            return False
        before, at = self._count, event.rfind(_COUNT)
        if self._by_text:
            text = event.find(_TEXT) + len(_TEXT)
            if text < len(_TEXT) or event[text] == _QUOTE:
                return False
            if before is None and at < 0:
                if finish >= 0:
                    self._head, self._tail = event[:text], event[finish:]
                add_chunk(self._answer, stamp_ns, None)
                return True
        if at < 0 or before is None:
            return False
        end = at = at + len(_COUNT)
        while event[end] in _DIGITS:
            end += 1
        if not 0 < end - at <= _DIGITS_MAX or event[end] not in b",}":
            return False
        count = int(event[at:end])
        if count <= before:
            return False
        add_chunk(self._answer, stamp_ns, count - before)
        self._count = count
        return True

    def _read(self, data: bytes, stamp_ns: int) -> None:
        """Through the full decoder, which goes on from what was counted."""
        if self._skipped:
            self._skipped = False
            self._answer.text_complete = False
            self._reader.skipped(self._count)
        self._answer.bytes_received -= len(data)  # it counts them again
        self._full.feed(data, stamp_ns)
        self._count = self._reader.counted
        if self._full.overflowed:
            self._plain_bytes_max = -1  # the rest is nothing to it


# Ends of events are looked for by one byte: in a cumulative stream, whose events are long, the search for two
# costs sixty times as much, and more than all the rest.


def last_event_end(data: bytes) -> int:
    """Where the last event that ends in `data` ends; 0 when none does."""
    at = data.rfind(_LINE_END)
    while at > 0:
        if data[at - 1] == _NEWLINE:
            return at + 1
        at = data.rfind(_LINE_END, 0, at)
    return 0


def split_events(block: bytes) -> Iterator[bytes]:
    """The events of a block that holds whole ones, each with its end."""
    begin, at = 0, block.find(_LINE_END)
    while at >= 0:
        if block.startswith(_LINE_END, at + 1):
            yield block[begin : at + 2]
            begin = at = at + 2
        else:
            at += 1
        at = block.find(_LINE_END, at)
