"""A keeper (`deploy/keeper.py`) as others see it: started as a daemon, read by the report that it writes.

Calls block; an event loop uses `asyncio.to_thread`.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from raybench.deploy.guard import OUTLIVES
from raybench.deploy.process import own_environment
from raybench.records.strict_json import read_json, write_json

if TYPE_CHECKING:
    from raybench.scenario.schema import Service

_MODULE = "raybench.deploy.keeper"
_REPORT = "service.json"
#: What a keeper prints, beside its report.
_LOG = "keeper.log"
_POLL_S = 0.05

#: waiting: for another keeper. refused: the service was not touched. verified, not_verified, refused are ends.
Phase = Literal[
    "waiting", "looking", "taking_down", "down", "bringing_back", "verified", "not_verified", "refused"
]
ENDS = frozenset({"verified", "not_verified", "refused"})
_WELL = frozenset({"verified", "refused"})

_ORDER = "keeper-order.json"
#: Twice forked, so that neither a terminal nor Ray, which ends the children of its workers, takes it for ours.
_DETACH = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Keeping:
    """One keeper at work. Forgetting it is the order to bring the service back."""

    def __init__(self, folder: Path, lifeline: int, sign_of_life: int) -> None:
        self._folder = folder
        self._lifeline: int | None = lifeline
        self._sign_of_life = sign_of_life

    @classmethod
    def start(cls, service: Service, base: Path, folder: Path, *, only_restore: bool = False) -> Self:
        """base: where the service's commands run. folder: for the report and the keeper's log."""
        order = {"service": service.model_dump(mode="json"), "base": str(base), "report": str(folder / _REPORT)}
        write_json(folder / _ORDER, order | {"only_restore": only_restore})
        (folder / _REPORT).unlink(missing_ok=True)
        keeper_end, lifeline = os.pipe()
        sign_of_life, its_end = os.pipe()
        try:
            with (folder / _LOG).open("ab") as log:
                subprocess.run(
                    [sys.executable, "-c", _DETACH, "-m", _MODULE, str(folder / _ORDER)],
                    stdin=keeper_end,
                    stdout=log,
                    stderr=log,
                    env={**own_environment(), OUTLIVES: "1"},
                    pass_fds=(its_end,),
                    check=True,
                )
        finally:
            os.close(keeper_end)
            os.close(its_end)
        return cls(folder, lifeline, sign_of_life)

    @property
    def lifeline(self) -> int:
        """To be held by all processes that have to end before the service comes back."""
        assert self._lifeline is not None, "the service is on its way back already"
        return self._lifeline

    def wait_down(self) -> dict[str, Any]:
        """The report, once the service is down or will not be; each step of the keeper has a limit."""
        return self._wait(ENDS | {"down"})

    def bring_back(self) -> dict[str, Any]:
        """Order it; the report at the end. May be called twice."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        return self._wait(ENDS)

    def _wait(self, phases: frozenset[str]) -> dict[str, Any]:
        def lives() -> bool:
            return not select.select([self._sign_of_life], [], [], 0)[0]

        return _wait_for(self._folder / _REPORT, phases, lives)


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
    return _wait_for(path, ENDS, lambda: _is_keeper(_read_report(path).get("pid")), on_phase=on_phase)


def _wait_for(
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
            reason = f"its keeper ended before its time; see {path.with_name(_LOG)}"
            return report | {"phase": "not_verified", "problems": [*report.get("problems", []), reason]}
        if phase is not None and phase != told:
            on_phase(phase)
            told = phase
        time.sleep(_POLL_S)


def _is_keeper(pid: object) -> bool:
    """Whether the process of this number is one, and not another that was given the number later."""
    try:
        return isinstance(pid, int) and _MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _read_report(path: Path) -> dict[str, Any]:
    """What a keeper has told so far; nothing when it has not begun."""
    if not path.exists():
        return {}
    report = read_json(path)
    assert isinstance(report, dict), f"{path} is written by a keeper only"
    return report
