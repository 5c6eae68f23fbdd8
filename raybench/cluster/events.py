"""What the job tells the submitter, as marked lines in the job's log.

The Job API carries only a log; a line that begins with the mark is an event, any other is text. Events
are JSON objects with a `kind`: `error` of any command, `run`, `note`, `snapshot`, `outcome` of `run`, `archive`
of `export`, and `roofline_step`, `roofline` of `roofline`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

MARK = "@raybench "
#: Set by the submitter for the job: tell events instead of drawing.
EVENTS_VARIABLE = "RAYBENCH_EVENTS"


def event_line(kind: str, **fields: object) -> str:
    """One event as a line of log, without its end."""
    return MARK + json.dumps({"kind": kind, **fields}, allow_nan=False)


def tells_events() -> bool:
    """Whether this process is a job's, whose output a submitter reads."""
    return bool(os.environ.get(EVENTS_VARIABLE))


def say(kind: str, **fields: object) -> None:
    """Tell the submitter."""
    print(event_line(kind, **fields), flush=True)


def read_line(line: str) -> dict[str, object] | None:
    """The event that a log line carries; None for ordinary text and for a damaged event."""
    if not line.startswith(MARK):
        return None
    try:
        event = json.loads(line[len(MARK) :])
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and "kind" in event else None


class LineSplitter:
    """Pieces of a log in, whole lines out."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, piece: str) -> Iterator[str]:
        *lines, self._rest = (self._rest + piece).split("\n")
        yield from lines
