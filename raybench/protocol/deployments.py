"""What runs on the target's host around a run: the service in use makes room, arms are started and ended.

Runs in the coordinator. What is done there is the target host's (`protocol/fleet.py`); here it is put in its
order and into the journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import cast

from raybench.errors import TargetError
from raybench.protocol.fleet import TargetHost
from raybench.protocol.progress import Progress
from raybench.records.journal import Journal
from raybench.scenario.schema import Arm, Service

#: What the progress calls the service in use, in the place of an arm.
SERVICE = "service"


class Deployments:
    """The arms of one run, and the service in whose place they stand."""

    def __init__(self, host: TargetHost, journal: Journal, progress: Progress) -> None:
        self._host = host
        self._journal = journal
        self._progress = progress
        self._service_in_hand = False

    async def make_room(self, arms: Mapping[str, Arm], service: Service | None) -> None:
        """Look at what the arms are made of, then take the service down; nothing where no arm is left to measure.

        Raises ConfigError for artifacts that are not there, TargetError when the service is not down.
        """
        for arm_name, arm in arms.items():
            self._progress.arm_step(arm_name, "inventory")
            await self._host.take_inventory(arm_name, arm)
        if service is None or not arms:
            return
        self._progress.arm_step(SERVICE, "take_down")
        self._service_in_hand = True
        report = await self._host.take_service_down(service)
        self._journal.append("service", phase=report.phase, problems=report.problems)
        if report.phase != "down":
            raise TargetError("service", f"it was not taken down: {'; '.join(report.problems)}")

    async def bring_service_back(self) -> bool:
        """After whatever happened; whether it is as it was, as it also is where nobody touched it."""
        if not self._service_in_hand:
            return True
        self._progress.arm_step(SERVICE, "bring_back")
        report = await self._host.bring_service_back()
        self._journal.append("service", phase=report.phase, problems=report.problems)
        return report.is_back

    async def url_of(self, arm_name: str, arm: Arm, stack: AsyncExitStack) -> str:
        """Where the arm answers; started first when the scenario says so, and then ended with the stack."""
        if arm.url is not None and not arm.is_started:
            return arm.url
        self._progress.arm_step(arm_name, "launch")
        stack.push_async_callback(self._stop, arm_name)
        url, load_s = await self._host.launch(arm_name, arm)
        self._journal.append("arm_launched", arm=arm_name, url=url, load_s=load_s)
        return url

    async def _stop(self, arm_name: str) -> None:
        """Raises TargetError when the GPUs are not as they were before the arm."""
        self._progress.arm_step(arm_name, "stop")
        ended = await self._host.stop(arm_name)
        if ended is None:
            return
        self._journal.append("arm_stopped", arm=arm_name, **ended)
        if held := cast("Sequence[str]", ended["gpu_held"]):
            raise TargetError.gpu_memory_held(arm_name, held)
