"""Framing of server-sent events: bytes as they were read -> the payload of each event.

Runs in the load worker, once a socket read. The result does not depend on where reads begin and end
(case O-S1). Accepted: LF, CRLF and CR line ends, several `data:` lines in one event, `data:` with or
without the space, a missing blank line at the end. Skipped: comments, `event:`, `id:` and `retry:`
lines, events without data. Source: WHATWG HTML, section 9.2.6 (interpreting an event stream).
"""

from __future__ import annotations

_EVENT_END = b"\n\n"


class EventReader:
    """Cuts a byte stream into the payloads of its events.

    event_bytes_max bounds the memory of one event, field names and comments included. A larger one
    sets `overflowed`; nothing is read after it, so that one bad answer costs no more than itself.
    """

    __slots__ = (
        "_event_bytes_max",
        "_pending",
        "_pending_bytes",
        "_pending_newline",
        "_skip_lf",
        "overflowed",
    )

    def __init__(self, event_bytes_max: int) -> None:
        self._event_bytes_max = event_bytes_max
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_newline = False
        self._skip_lf = False
        self.overflowed = False

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads of all events that `data` completes, in order."""
        if self._skip_lf or b"\r" in data:
            data = self._with_lf_only(data)
        if not data or self.overflowed:
            return []
        payloads: list[bytes] = []
        if self._pending_newline and data.startswith(b"\n"):
            # The blank line lies across two reads.
            if not self._close_block(b"", payloads):
                return payloads
            data = data[1:]
        *blocks, rest = data.split(_EVENT_END)
        for block in blocks:
            if not self._close_block(block, payloads):
                return payloads
        self._keep(rest)
        return payloads

    def close(self) -> list[bytes]:
        """The payload of a last event that lacks its blank line, if there is one."""
        payloads: list[bytes] = []
        if not self.overflowed:
            self._close_block(b"", payloads)
        return payloads

    def _with_lf_only(self, data: bytes) -> bytes:
        if not data:
            return data
        if self._skip_lf and data.startswith(b"\n"):
            # The second half of a CRLF whose first half ended the read before.
            data = data[1:]
            if not data:
                self._skip_lf = False
                return data
        self._skip_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _close_block(self, block: bytes, payloads: list[bytes]) -> bool:
        """Read one whole block; False when it is over the limit."""
        if self._pending:
            self._pending.append(block)
            block = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            self._pending_newline = False
        block = block.removesuffix(b"\n")
        if len(block) > self._event_bytes_max:
            self.overflowed = True
            return False
        payload = _payload(block)
        if payload:
            payloads.append(payload)
        return True

    def _keep(self, rest: bytes) -> None:
        if not rest:
            return
        self._pending.append(rest)
        self._pending_bytes += len(rest)
        self._pending_newline = rest.endswith(b"\n")
        if self._pending_bytes - self._pending_newline > self._event_bytes_max:
            self.overflowed = True
            self._pending.clear()


def _payload(block: bytes) -> bytes:
    """Payload of the lines of one event; empty when it has none."""
    if block.startswith(b"data:") and b"\n" not in block:
        return block[6:] if block.startswith(b"data: ") else block[5:]
    values = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(values)
