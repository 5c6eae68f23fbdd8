"""How much one client host carries: growing loads from null servers on the same host, until its stamps go wrong.

Runs in an actor on the client host (`cluster/roofline.py`), with the workers that a run would use. Two
ladders: tokens/s, with tokens in quick succession, and streams, with a token a second. What is found is a lower
bound of what the host can carry, since the null servers take their share of its CPU.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from raybench.analysis.history import History
from raybench.analysis.in_flight import in_flight
from raybench.analysis.metrics import of_load
from raybench.analysis.parts import AttemptParts
from raybench.analysis.stamp_error import StampErrors, stamp_errors
from raybench.engines.contract import Http, RequestShape
from raybench.errors import TargetError
from raybench.load.leases import split_slots
from raybench.load.order import Endpoint, Order
from raybench.protocol.client_checks import CPU_SATURATED
from raybench.protocol.desk import OrderDesk
from raybench.protocol.fleet import FleetResult, LoadFleet
from raybench.protocol.sending import send
from raybench.records.roofline import Step
from raybench.records.rundir import RunDirectory
from raybench.scenario.schema import Load, Placement

#: By ladder: from token to token of a stream, and the streams of its first step.
GAP_MS = {"tokens_per_s": 20, "streams": 1000}
FIRST_STREAMS = {"tokens_per_s": 64, "streams": 256}
INPUT_TOKENS = 128
#: The first token comes this long after the last start, so that the start is no part of what is measured.
SETTLE_MS = 300
#: Of the tokens that the pace asks for, at least so many must have been read.
RATE_SHARE_MIN = 0.9
#: From these shares on, CPU is what a failed step is put down to.
CORE_FULL, NODE_FULL = 0.85, 0.95
#: Of all cores; from here on a roofline says more about the other work than about the host.
OTHERS_BUSY = 0.2
TRUTH_TIMEOUT_S = 60.0
START_LEAD_S = 0.25
EMPTY = History({}, {}, {})

WorkersPerNode = int | Literal["auto"]


@dataclass(frozen=True)
class Effort:
    """How long the probe takes: seconds of full load a step, factor from step to step, steps after a failure."""

    steady_s: float = 2.5
    factor: int = 2
    refinements: int = 2

    def told(self) -> str:
        return f"{'about two minutes' if self.steady_s > QUICK.steady_s else 'about half a minute'} a node"


QUICK = Effort(steady_s=1.0, factor=4, refinements=1)


@dataclass(frozen=True)
class Settings:
    """What a step must keep, and what it is made with. client: `auto` or `plain`."""

    stamp_error_ms_max: float = 25.0
    client: str = "auto"
    effort: Effort = Effort()


@dataclass(frozen=True)
class RooflineRequest:
    """What the user asked to be measured. nodes: hosts or addresses; empty = all that may carry load."""

    runs_dir: Path
    placement: Placement
    nodes: tuple[str, ...]
    workers_per_node: WorkersPerNode
    settings: Settings


class Ladder:
    """Which number of streams comes next: times `factor` until a load is not carried, then between. Pure.

    A load that was not carried is tried once more: a single pause of the host is not its limit.
    """

    def __init__(self, first: int, most: int, effort: Effort) -> None:
        self._next: int | None = min(first, most)
        self._most = most
        self._effort = effort
        self._refined = 0
        self._again = False
        self._carried = 0
        self._failed: int | None = None

    @property
    def next(self) -> int | None:
        """None = the ladder has ended."""
        return self._next

    @property
    def topped_out(self) -> bool:
        """The largest load that may be tried was carried."""
        return self._carried == self._most

    def tell(self, *, carried: bool) -> None:
        """How the last step went."""
        streams = self._next
        assert streams is not None
        if not carried and not self._again:
            self._again = True
            return
        self._again = False
        if carried:
            self._carried = streams
        else:
            self._failed = streams
        self._next = self._choose()

    def _choose(self) -> int | None:
        if self._failed is None:
            grown = min(self._carried * self._effort.factor, self._most)
            return grown if grown > self._carried else None
        if not self._carried or self._refined >= self._effort.refinements:
            return None
        self._refined += 1
        between = round(math.sqrt(self._carried * self._failed))
        return between if self._carried < between < self._failed else None


class Probe:
    """One host's workers and null servers. workers_for: how many workers a run would use for so many streams."""

    def __init__(
        self,
        *,
        fleet: LoadFleet,
        desk: OrderDesk,
        run: RunDirectory,
        servers: Sequence[tuple[str, Http]],
        workers_for: Callable[[int], int],
        cores: int,
        settings: Settings,
    ) -> None:
        self._fleet = fleet
        self._desk = desk
        self._run = run
        self._servers = list(servers)
        self._workers_for = workers_for
        self._cores = cores
        self._settings = settings
        self._serial = 0

    async def step(self, kind: str, streams: int) -> Step:
        """Carry one load and say how it went. Raises TargetError when a null server does not answer."""
        self._serial += 1
        order = self._order(kind, streams)
        workers = self._fleet.workers[: self._workers_for(streams)]
        ramp_ms = max(split_slots(streams, len(workers))) // order.load.starts_per_ms
        pace = {"ttft_ms": SETTLE_MS + 2 * ramp_ms, "gap_ms": GAP_MS[kind]}
        await self._ask("/null/pace", pace)
        offsets = await self._fleet.offsets()
        sent = await send(order, workers, None, self._fleet, self._desk, offsets, START_LEAD_S)
        told = await self._ask("/null/truth", None)
        return await asyncio.to_thread(self._judge, kind, order, len(workers), sent.result, told)

    def _order(self, kind: str, streams: int) -> Order:
        tokens = max(3, round(self._settings.effort.steady_s * 1000 / GAP_MS[kind]) + 1)
        urls = [url for url, _ in self._servers]
        return Order(
            point_id=f"roofline/{kind}/c{streams}",
            attempt=self._serial,
            phase="load",
            endpoint=Endpoint(urls[0], "sglang", load_urls=tuple(urls[1:])),
            shape=RequestShape("completions", INPUT_TOKENS, tokens),
            load=Load.model_validate({"client": self._settings.client}),
            slots=streams,
            windows=np.zeros(streams, np.int64),
            rid_prefix=f"rb-null-{self._serial:05d}-l",
        )

    async def _ask(self, path: str, body: object) -> list[dict[str, Any]]:
        """The same question to all null servers."""
        method: Literal["GET", "POST"] = "GET" if body is None else "POST"
        calls = [http.request(method, path, json=body, timeout_s=TRUTH_TIMEOUT_S) for _, http in self._servers]
        replies = await asyncio.gather(*calls)
        for reply in replies:
            if not reply.ok:
                raise TargetError("roofline", f"a null server does not answer: {reply.summary}")
        return [dict(json.loads(reply.body)) for reply in replies]

    def _judge(
        self, kind: str, order: Order, workers: int, result: FleetResult, told: list[dict[str, Any]]
    ) -> Step:
        streams = order.slots
        parts = AttemptParts(self._run, order.point_id, order.attempt, EMPTY)
        rows = of_load(parts.requests().table)
        writes = {rid: stamps for one in told for rid, stamps in one["writes"].items()}
        errors = stamp_errors(rows.select(["rid", "chunk_ns", "chunk_tokens"]).to_pylist(), writes)
        peak = in_flight(
            rows["sent_unix_ns"].drop_null().to_numpy(), rows["end_unix_ns"].drop_null().to_numpy()
        ).peak
        server_cpu = [one["cpu_share"] for one in told if one["cpu_share"] is not None]
        servers = sum(server_cpu) / self._cores if server_cpu else None
        node = max((one["node_cpu_share"] for one in told if one["node_cpu_share"] is not None), default=None)
        worker_cpu = _worker_cpu(parts.health().table.to_pylist(), errors)
        others = None
        if servers is not None and node is not None and worker_cpu:
            others = max(0.0, node - servers - sum(worker_cpu) / self._cores)
        step = Step(
            kind=kind,
            streams=streams,
            gap_ms=GAP_MS[kind],
            workers=workers,
            tokens_per_s=errors.tokens_per_s,
            ttft_error_ms_p50=errors.ttft_ms_p50,
            ttft_error_ms_p99=errors.ttft_ms_p99,
            stamp_error_ms_p99=errors.stamp_ms_p99,
            gap_error_ms_p99=errors.gap_ms_p99,
            worker_cpu_share=max(worker_cpu, default=None),
            server_cpu_share=max(server_cpu, default=None),
            servers_node_share=servers,
            node_cpu_share=node,
            others_node_share=others,
            limited_by=None,
        )
        wrong = _incomplete(rows["error_class"].drop_null().to_pylist(), result, errors.unmatched, peak == streams)
        return replace(step, limited_by=wrong or limit_of(step, self._settings.stamp_error_ms_max))


def _worker_cpu(health: list[dict[str, Any]], errors: StampErrors) -> list[float]:
    """Each worker's share of a core while all streams were under way. health: rows of records.schema.WORKER."""
    if errors.window_ns is None:
        return []
    begin, end = errors.window_ns
    shares: dict[str, list[float]] = {}
    for row in health:
        if begin < row["sample_ns"] <= end and row["cpu_share"] is not None:
            shares.setdefault(row["worker"], []).append(row["cpu_share"])
    return [sum(values) / len(values) for values in shares.values()]


def _incomplete(failed: list[str], result: FleetResult, unmatched: int, all_at_once: bool) -> str | None:
    """Why a step is no measurement at all; None when it is one. failed: error class of each failed request."""
    if result.lost:
        return "a worker was lost"
    if failed:
        error_class, count = Counter(failed).most_common(1)[0]
        return f"requests failed ({error_class}: {count})"
    if not all_at_once:
        return "streams ended before all had begun"
    return f"tokens missing in {unmatched} streams" if unmatched else None


def limit_of(step: Step, error_ms_max: float) -> str | None:
    """What kept this step from being carried; None when it was.

    It was when the stamps of first tokens and of all tokens are within the limit at P99, the tokens came at
    the pace asked, and no worker's core was full.
    """
    late = [step.ttft_error_ms_p99, step.stamp_error_ms_p99]
    wrong = any(error is None or error > error_ms_max for error in late)
    slow = step.tokens_per_s is None or step.tokens_per_s < RATE_SHARE_MIN * step.streams * 1000 / step.gap_ms
    full = (step.worker_cpu_share or 0.0) >= CPU_SATURATED
    if not (wrong or slow or full):
        return None
    for share, limit, name in (
        (step.worker_cpu_share, CORE_FULL, "client CPU"),
        (step.server_cpu_share, CORE_FULL, "null server CPU"),
        (step.others_node_share, OTHERS_BUSY, "other work on the host"),
        (step.node_cpu_share, NODE_FULL, "CPU of the whole host"),
    ):
        if share is not None and share >= limit:
            return name
    return "stamp error" if wrong else "null server's pace"
