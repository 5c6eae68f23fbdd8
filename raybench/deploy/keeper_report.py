"""What a keeper (`deploy/keeper.py`) tells, as others read it: phases, and its last word.

Reports of runs import this: it needs none of what a keeper works with.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from raybench.records.strict_json import read_json

MODULE = "raybench.deploy.keeper"
REPORT = "service.json"
_POLL_S = 0.05

#: waiting: for another keeper. refused: the service was not touched. verified, not_verified, refused are ends.
Phase = Literal[
    "waiting", "looking", "taking_down", "down", "bringing_back", "verified", "not_verified", "refused"
]
ENDS = frozenset({"verified", "not_verified", "refused"})


def last_report(path: Path, on_phase: Callable[[str], None]) -> dict[str, Any]:
    """What a keeper tells at its end, waited for while it lives on this host; its last word where it does not.

    on_phase: called with each phase on the way. A keeper that is gone before its end is `not_verified`.
    """
    phase = None
    while (report := read_report(path)).get("phase") not in ENDS:
        if report.get("host") not in (None, socket.gethostname()):
            return report
        if not _is_keeper(report.get("pid")):
            reason = "its keeper ended before its time"
            return read_report(path) | {"phase": "not_verified", "problems": [*report.get("problems", []), reason]}
        if report["phase"] != phase:
            phase = report["phase"]
            on_phase(phase)
        time.sleep(_POLL_S)
    return report


def _is_keeper(pid: object) -> bool:
    """Whether the process of this number is one, and not another that was given the number later."""
    try:
        return isinstance(pid, int) and MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def read_report(path: Path) -> dict[str, Any]:
    """What a keeper has told so far; nothing when it has not begun."""
    if not path.exists():
        return {}
    report = read_json(path)
    assert isinstance(report, dict), f"{path} is written by a keeper only"
    return report
