"""A keeper (`deploy/keeper.py`) as raybench sees it: started as a daemon, read by its report.

Runs on the target's host. Calls block; an event loop uses `asyncio.to_thread`.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from raybench.deploy.guard import OUTLIVES
from raybench.deploy.keeper_report import ENDS, LOG, MODULE, REPORT, wait_for
from raybench.deploy.process import own_environment
from raybench.records.strict_json import write_json
from raybench.scenario.schema import Service

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
        order = {"service": service.model_dump(mode="json"), "base": str(base), "report": str(folder / REPORT)}
        write_json(folder / _ORDER, order | {"only_restore": only_restore})
        (folder / REPORT).unlink(missing_ok=True)
        keeper_end, lifeline = os.pipe()
        sign_of_life, its_end = os.pipe()
        try:
            with (folder / LOG).open("ab") as log:
                subprocess.run(
                    [sys.executable, "-c", _DETACH, "-m", MODULE, str(folder / _ORDER)],
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

        return wait_for(self._folder / REPORT, phases, lives)
