"""What a keeper (`deploy/keeper.py`) tells, as others read it: phases, and its last word.

Reports of runs import this: it needs none of what a keeper works with.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from raybench.records.strict_json import read_json

MODULE = "raybench.deploy.keeper"
REPORT = "service.json"
#: What a keeper prints, beside its report.
LOG = "keeper.log"
_POLL_S = 0.05

#: waiting: for another keeper. refused: the service was not touched. verified, not_verified, refused are ends.
Phase = Literal[
    "waiting", "looking", "taking_down", "down", "bringing_back", "verified", "not_verified", "refused"
]
ENDS = frozenset({"verified", "not_verified", "refused"})
_WELL = frozenset({"verified", "refused"})


def is_back(report: Mapping[str, Any]) -> bool:
    """Whether the service is as it was, also where it was never touched."""
    return report["phase"] in _WELL


def last_report(path: Path, on_phase: Callable[[str], None]) -> dict[str, Any]:
    """What a keeper tells at its end, waited for while it lives on this host; its last word where it does not.

    on_phase: called with each phase on the way. A keeper that is gone before its end is `not_verified`.
    """
    first = _read_report(path)
    if first.get("host") not in (None, socket.gethostname()):
        return first
    return wait_for(path, ENDS, lambda: _is_keeper(_read_report(path).get("pid")), on_phase=on_phase)


def wait_for(
    path: Path,
    phases: frozenset[str],
    lives: Callable[[], bool],
    *,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> dict[str, Any]:
    """The report once its phase is one of these, or `not_verified` for a keeper that ended before."""
    told = None
    while True:
        alive = lives()  # asked first: what a keeper writes before its end is read after it
        report = _read_report(path)
        phase = report.get("phase")
        if phase in phases:
            return report
        if not alive:
            reason = f"its keeper ended before its time; see {path.with_name(LOG)}"
            return report | {"phase": "not_verified", "problems": [*report.get("problems", []), reason]}
        if phase is not None and phase != told:
            on_phase(phase)
            told = phase
        time.sleep(_POLL_S)


def _is_keeper(pid: object) -> bool:
    """Whether the process of this number is one, and not another that was given the number later."""
    try:
        return isinstance(pid, int) and MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _read_report(path: Path) -> dict[str, Any]:
    """What a keeper has told so far; nothing when it has not begun."""
    if not path.exists():
        return {}
    report = read_json(path)
    assert isinstance(report, dict), f"{path} is written by a keeper only"
    return report
