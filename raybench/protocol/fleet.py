"""The hands of the coordinator, as it sees them: load workers, monitors, a launcher on the target host.

Interfaces only. `cluster/fleet.py` and `cluster/target_host.py` fill them with Ray actors; tests fill them with
plain objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from raybench.load.leases import Recall, Returned
from raybench.load.order import Order, OrderKey, WorkerSummary
from raybench.records.clock import ClockOffset
from raybench.scenario.schema import Arm, Service

#: Clocks of the run: the coordinator's own, whose offset to itself is 0, and that of the target's host.
COORDINATOR, TARGET = "coordinator", "target"
#: Whose links went down or came up, beside the names of workers.
TARGET_HOST = "target host"


@dataclass(frozen=True)
class FleetResult:
    """What became of one set of orders. lost: worker -> why it is gone."""

    start_unix_ns: int
    end_unix_ns: int
    summaries: tuple[WorkerSummary, ...]
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LogReading:
    """The reading of a log: its part in the run directory; or the reason why there is none."""

    part: str | None = None
    reason: str | None = None


class LoadFleet(Protocol):
    """All load workers, in a fixed order."""

    @property
    def workers(self) -> list[str]: ...

    async def renew(self) -> list[str]:
        """Replace lost workers; the names of the new ones. Raises ClusterError when it cannot."""

    async def offsets(self) -> dict[str, ClockOffset]:
        """Each worker's clock against the coordinator's, measured now; lost workers are left out."""

    async def execute(
        self, orders: Mapping[str, Order], offsets: Mapping[str, ClockOffset], start_lead_s: float
    ) -> FleetResult:
        """Arm all, start them at one agreed time, wait for all."""

    async def recall(self, worker: str, key: OrderKey, recall: Recall) -> Returned | None:
        """Ask a worker for tickets that it holds ahead; None when it, or its order, is gone."""

    async def cancel(self) -> None:
        """Give up the orders under way."""


@dataclass(frozen=True)
class ServiceReport:
    """Where the service in use stands, by its keeper (`deploy/keeper.py`): the phase, and what is not right.

    is_back: it is as it was, also where it was never touched.
    """

    phase: str
    problems: tuple[str, ...]
    is_back: bool


@dataclass(frozen=True)
class GpuState:
    """reason: why there is no GPU data now, or none of some device; None when there is, or none was asked for.

    gaps: what is missing of the time that was asked about, a note each.
    """

    reason: str | None = None
    gaps: tuple[str, ...] = ()


class TargetHost(Protocol):
    """What happens on the host of the serving engine."""

    async def take_inventory(self, arm_name: str, arm: Arm) -> None:
        """Keep what the arm is made of. Raises ConfigError for what is not there."""

    async def take_service_down(self, service: Service) -> ServiceReport:
        """Make room: the phase is `down` when there is."""

    async def bring_service_back(self) -> ServiceReport:
        """After `take_service_down`, whatever it came to."""

    async def launch(self, arm_name: str, arm: Arm) -> tuple[str, float | None]:
        """Start the arm's engine there: its URL, and how long it took to be ready. Raises TargetError."""

    async def stop(self, arm_name: str) -> Mapping[str, object] | None:
        """Stop what `launch` started; how that process ended, None when nothing runs.

        Raises TargetError when something survived.
        """

    async def read_from(self, arm_name: str, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes of a file there, from `offset` on; `{folder}` in the path is the arm's folder.

        Raises TargetError when it cannot be read.
        """

    async def watch_gpus(self, arm_name: str, source: str, url: str, interval_s: float) -> str | None:
        """Start the GPU monitor; None, or the reason why there is no GPU data."""

    async def gpu_state(self, since_unix_ns: int) -> GpuState:
        """What is missing of the GPU data now, and was since a moment on the coordinator's clock."""

    async def watch_log(self, arm_name: str, arm: Arm) -> LogReading:
        """Start reading the engine's own log: that of what was launched, or the one that the arm names."""

    async def log_position(self) -> int | None:
        """The position after everything that is in the log now, whose rows are in the part by then.

        None when no log is read, or the host does not answer.
        """

    async def unwatch_log(self) -> None:
        """End the reading and close its part file; nothing when nothing is read."""

    async def watch_links(self) -> None:
        """Count from now on what becomes of the host's links to the clients."""

    async def link_changes(self) -> int | None:
        """How often they went down or came up since `watch_links`; None when that is not known."""

    async def unwatch_gpus(self) -> None:
        """End the monitor and close its part file; nothing when none runs."""

    async def clocks(self) -> dict[str, ClockOffset]:
        """The clocks that are no worker's, measured now: COORDINATOR, TARGET, and the GPU monitor's.

        Those that do not answer are left out.
        """
