"""A serving engine, a fleet and a target host made of plain objects, on a clock that a test owns.

The engine keeps text in a device cache that a flush empties, and optionally in a host tier that none
does. The fleet leases tickets from the real desk and writes real part files through it, one service time a
request, so that everything behind the sockets is what a run uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from raybench.corpus.prompts import read_prompt_sets
from raybench.corpus.tokens import TokenCorpus, load_corpus
from raybench.engines import ENGINES
from raybench.engines.contract import (
    BodyTemplate,
    Counters,
    Decoder,
    Facts,
    FlushReply,
    Gauges,
    Http,
    LogLine,
    QueueState,
    Reply,
    RequestShape,
)
from raybench.engines.histogram import Histogram
from raybench.errors import TargetError
from raybench.load.leases import Recall, Returned, TicketQueue
from raybench.load.order import Endpoint, Order, OrderKey, WorkerSummary
from raybench.protocol.context import RunContext
from raybench.protocol.coordinator import Coordinator
from raybench.protocol.desk import OrderDesk
from raybench.protocol.fleet import FleetResult, GpuState, LogReading, ServiceReport
from raybench.protocol.invocation import Earlier, Outcome
from raybench.records.clock import ClockAnchor, ClockOffset
from raybench.records.journal import Journal, read_journal
from raybench.records.parts import PartFiles
from raybench.records.roofline import Roofline
from raybench.records.rundir import RunDirectory
from raybench.records.schema import REQUESTS
from raybench.records.stream import ArrowEncoder, part_metadata
from raybench.records.strict_json import write_json
from raybench.scenario.load import effective, parse_scenario
from raybench.scenario.schema import Arm, Scenario, Service
from raybench.scenario.trace import read_traces

NS_PER_S = 1_000_000_000
OK = Reply(200, b"ok")
_SGLANG = ENGINES["sglang"]
#: What the fake client host is said to carry: far more than any test sends.
ROOMY = Roofline("host", "wire", 64, 32, 25.0, 10**6, "local ports", 1e9, "node CPU", 0.0, "test", 0, ())


class FakeClock:
    """Time passes by `sleep` only."""

    def __init__(self) -> None:
        self.ns = 5 * NS_PER_S

    def monotonic_ns(self) -> int:
        return self.ns

    def unix_ns(self) -> int:
        return self.ns + 1_700_000_000 * NS_PER_S

    async def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * NS_PER_S)
        await asyncio.sleep(0)


@dataclass
class FakeEngine:
    """`engines.contract.Engine`, SGLang's bodies, and the server behind it. `log` says what was asked of it."""

    log: list[str] = field(default_factory=list)
    host_tier: bool = False
    always_hit: bool = False
    flush_replies: list[Reply] = field(default_factory=list)  # used up first; then 200
    flush_forever: Reply | None = None
    instance: str | None = "pid-1"
    context_tokens: int | None = None
    max_running_requests: int | None = None
    ttft_s: Callable[[int], float] = lambda streams: 0.5  # of so many streams at once
    service_s: Callable[[int], float] = lambda streams: 1.0
    hits_at: set[int] = field(default_factory=set)  # with so many streams, everything is a hit
    name: str = "sglang"
    prompts: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device: set[tuple[int, ...]] = set()
        self.host: set[tuple[int, ...]] = set()
        self.streams = 0
        self.counters = dict.fromkeys(Counters.__dataclass_fields__, 0.0)

    def serve(self, prompt: tuple[int, ...], output_tokens: int) -> int:
        """One request; how many of its tokens came from a cache."""
        self.prompts.append(prompt)
        known = (
            self.always_hit
            or self.streams in self.hits_at
            or prompt in self.device
            or (self.host_tier and prompt in self.host)
        )
        self.device.add(prompt)
        self.host.add(prompt)
        cached = len(prompt) - 1 if known else 0
        moved = {
            "requests": 1,
            "input_tokens": len(prompt),
            "output_tokens": output_tokens,
            "cached_tokens": cached,
        }
        moved |= {"prefix_queried_tokens": len(prompt), "prefix_hit_tokens": cached}
        for counter, value in moved.items():
            self.counters[counter] += value
        return cached

    def template(self, shape: RequestShape) -> BodyTemplate:
        return _SGLANG.template(shape)

    def decoder(self, shape: RequestShape, *, event_bytes_max: int) -> Decoder:
        return _SGLANG.decoder(shape, event_bytes_max=event_bytes_max)

    async def alive(self, http: Http) -> Reply:
        self.log.append("alive")
        return OK

    async def queue(self, http: Http) -> QueueState | None:
        self.log.append("idle")
        return QueueState(0, 0)

    async def flush(self, http: Http, *, timeout_s: float, storage: bool = False) -> FlushReply:
        self.log.append("flush")
        reply = self.flush_forever or (self.flush_replies.pop(0) if self.flush_replies else OK)
        if reply.ok:
            self.device.clear()
        return FlushReply(reply.ok, reply)

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        self.log.append("counters")
        return Counters(**self.counters), Gauges()

    async def latencies(self, http: Http) -> dict[str, Histogram]:
        return {}

    async def facts(self, http: Http) -> Facts:
        return Facts(
            engine=self.name,
            instance=self.instance,
            context_tokens=self.context_tokens,
            max_running_requests=self.max_running_requests,
        )

    async def abort(self, http: Http, rid: str) -> Reply | None:
        self.log.append(f"abort {rid}")
        return OK

    def read_log_line(self, line: str) -> LogLine | None:
        return None


class FakeControl:
    """The engine above asks nothing of it."""

    def __init__(self) -> None:
        self.closed = False

    async def request(self, method: str, path: str, **_: Any) -> Reply:
        raise AssertionError(f"{method} {path}: the fake engine has no sockets")

    async def close(self) -> None:
        self.closed = True


@dataclass
class FakeFleet:
    """`protocol.fleet.LoadFleet`. `lose_in`: (load of the run, worker): it dies after its first second."""

    engine: FakeEngine
    desk: OrderDesk
    clock: FakeClock
    corpus: TokenCorpus
    names: list[str]
    lose_in: tuple[int, str] | None = None
    hang_in: int | None = None
    late_ns: int = 0
    executed: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    cancelled: int = 0

    def __post_init__(self) -> None:
        self._lost: set[str] = set()
        self._scheduled: set[str] = set()
        self._loads = 0
        self._queues: dict[str, TicketQueue] = {}
        self.hanging = asyncio.Event()

    @property
    def workers(self) -> list[str]:
        return list(self.names)

    async def renew(self) -> list[str]:
        fresh = []
        for name in sorted(self._lost):
            self.names[self.names.index(name)] = f"{name}r1"
            fresh.append(f"{name}r1")
        self._lost.clear()
        return fresh

    async def offsets(self) -> dict[str, ClockOffset]:
        return {name: ClockOffset(0, 0) for name in self.names if name not in self._lost}

    async def recall(self, worker: str, _key: OrderKey, recall: Recall) -> Returned | None:
        return self._queues[worker].give_back(recall)

    async def cancel(self) -> None:
        self.cancelled += 1

    async def execute(
        self, orders: Mapping[str, Order], offsets: Mapping[str, ClockOffset], start_lead_s: float
    ) -> FleetResult:
        phase = next(iter(orders.values())).phase
        self.engine.log.append(phase)
        self.engine.streams = sum(order.slots for order in orders.values())
        self.executed.append((phase, {name: order.slots for name, order in orders.items()}))
        self.orders += orders.values()
        self._loads += phase == "load"
        if phase == "load" and self._loads == self.hang_in:
            self.hanging.set()
            await asyncio.Event().wait()
        await self.clock.sleep(start_lead_s)
        self._scheduled = set()
        start = self.clock.unix_ns()
        loser = self.lose_in[1] if phase == "load" and self.lose_in and self.lose_in[0] == self._loads else None
        rows: dict[str, list[dict[str, object]]] = {name: [] for name in orders}
        self._queues = {name: TicketQueue(order.slots) for name, order in orders.items()}
        working = True
        while working:
            working = False
            for name, order in orders.items():
                if name == loser and rows[name]:
                    continue
                sent = await self._one_round(name, order)
                rows[name] += [self._row(name, order, ticket) for ticket in sent]
                working |= bool(sent)
            await self.clock.sleep(self.engine.service_s(self.engine.streams) if working else 0.0)
        summaries = [await self._store(name, orders[name], rows[name], lost=name == loser) for name in orders]
        lost = {} if loser is None else {loser: "its process is gone"}
        self._lost |= set(lost)
        return FleetResult(start, self.clock.unix_ns(), tuple(s for s in summaries if s is not None), lost)

    async def _one_round(self, name: str, order: Order) -> list[int]:
        """A ticket for each slot as far as there are any, or the whole schedule, sent and answered."""
        if order.sends is not None:
            first = name not in self._scheduled
            self._scheduled.add(name)
            return order.sends.tickets.tolist() if first else []
        queue, free = self._queues[name], self._queues[name].free_slots
        if free and not queue.drained:
            queue.answered(await self.desk.lease(name, order.key, free, queue.settled), free)
        sent = [queue.take() for _ in range(min(order.slots, len(queue)))]
        for _ in sent:
            queue.slot_ended()
        return sent

    def _row(self, name: str, order: Order, ticket: int) -> dict[str, object]:
        """Sent now, or when it is due, and answered when the engine's service time is over."""
        shape = order.shape_of(ticket)
        start = int(order.windows[ticket])
        end = start + shape.input_tokens
        named = order.prompt_of(ticket)
        prompt = tuple(self.corpus.ids[start:end].tolist() if named is None else named.body)
        cached = self.engine.serve(prompt, shape.output_tokens)
        now = self.clock.monotonic_ns()
        scheduled = None
        if order.sends is not None:
            now += int(order.sends.due_ns[order.sends.tickets.tolist().index(ticket)])
            scheduled = now - self.late_ns
        ended = now + round(self.engine.service_s(self.engine.streams) * NS_PER_S)
        return {
            "point_id": order.point_id,
            "attempt": order.attempt,
            "phase": order.phase,
            "worker": name,
            "ticket": ticket,
            "rid": order.rid(ticket),
            "window_start": start,
            "window_end": end,
            "prompt": None if named is None else named.name,
            "tries": 1,
            "scheduled_ns": scheduled,
            "asked_ns": now,
            "connected_ns": now,
            "sent_ns": now,
            "first_token_ns": now + round(self.engine.ttft_s(self.engine.streams) * NS_PER_S),
            "last_token_ns": ended,
            "end_ns": ended,
            "outcome": "ok",
            "input_tokens_asked": shape.input_tokens,
            "output_tokens_asked": shape.output_tokens,
            "input_tokens": len(prompt),
            "output_tokens": shape.output_tokens,
            "tokens_source": "server",
            "cached_tokens": cached,
        }

    async def _store(
        self, name: str, order: Order, rows: Sequence[Mapping[str, object]], *, lost: bool
    ) -> WorkerSummary | None:
        labels = {"worker": name, "phase": order.phase, "client": ROOMY.client, **ClockOffset(0, 0).to_metadata()}
        encoder = ArrowEncoder(REQUESTS, part_metadata("requests", ClockAnchor.now(self.clock, "host"), **labels))
        data = encoder.encode(rows) + (b"" if lost else encoder.close())
        await self.desk.append(name, order.key, "requests", data)
        return None if lost else WorkerSummary(name, len(rows))


@dataclass
class FakeHost:
    """`protocol.fleet.TargetHost`."""

    log: list[str] = field(default_factory=list)
    reason: str | None = None
    changes: int | None = None
    links_watched: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    launch_error: TargetError | None = None
    gpu_held: tuple[str, ...] = ()
    service_down: ServiceReport = field(default_factory=lambda: ServiceReport("down", ()))
    service_back: ServiceReport = field(default_factory=lambda: ServiceReport("verified", ()))

    async def take_inventory(self, arm_name: str, arm: Arm) -> None:
        self.log.append(f"inventory {arm_name}")

    async def take_service_down(self, service: Service) -> ServiceReport:
        self.log.append("service down")
        return self.service_down

    async def bring_service_back(self) -> ServiceReport:
        self.log.append("service back")
        return self.service_back

    async def launch(self, arm_name: str, arm: Arm) -> tuple[str, float | None]:
        self.log.append(f"launch {arm_name}")
        if self.launch_error is not None:
            raise self.launch_error
        return "http://127.0.0.1:9", 2.5

    async def stop(self, arm_name: str) -> Mapping[str, object] | None:
        self.log.append(f"stop {arm_name}")
        return {"process_s": 9.5, "exit_code": 143, "reason": "stopped", "gpu_held": self.gpu_held}

    async def read_from(self, arm_name: str, path: str, offset: int, size: int) -> bytes:
        return self.files.get(path, b"")[offset : offset + size]

    async def watch_gpus(self, arm_name: str, source: str, url: str, interval_s: float) -> str | None:
        self.log.append(f"watch {arm_name} {source}")
        return self.reason

    async def gpu_state(self, since_unix_ns: int) -> GpuState:
        return GpuState(self.reason)

    async def clocks(self) -> dict[str, ClockOffset]:
        return {"coordinator": ClockOffset(0, 0)}

    async def watch_log(self, arm_name: str, arm: Arm) -> LogReading:
        self.log.append(f"watch log {arm_name}")
        return LogReading(reason="there is no log on this stage")

    async def log_position(self) -> int | None:
        return None

    async def unwatch_log(self) -> None:
        self.log.append("unwatch log")

    async def watch_links(self) -> None:
        self.links_watched = True

    async def link_changes(self) -> int | None:
        return self.changes if self.links_watched else None

    async def unwatch_gpus(self) -> None:
        self.log.append("unwatch")


SCENARIO = """
name: test
arms: {{arm: {{url: "http://target:30000"}}}}
workloads:
{workloads}
corpus: {{synthetic: {{tokens: {corpus_tokens}}}}}
guards: {{{guards}}}
monitors: {{gpu: {{source: none}}, server: {{enabled: false}}}}
"""

ONE = "  - {name: load, input_tokens: 64, output_tokens: 4, concurrency: [2], requests: 4}"
TWO = "  - {name: load, input_tokens: 64, output_tokens: 4, concurrency: [2, 3], requests: 4}"


def scenario(
    workloads: str = ONE, *, guards: str = "prewarm_requests: 1", corpus_tokens: int = 65_536
) -> Scenario:
    return parse_scenario(
        SCENARIO.format(workloads=workloads, guards=guards, corpus_tokens=corpus_tokens), "test.yaml"
    )


@dataclass
class Stage:
    """One run directory and what plays in it; `run` may be called again for a resume."""

    path: Path
    scenario: Scenario
    engine: FakeEngine = field(default_factory=FakeEngine)
    workers: int = 2
    lose_in: tuple[int, str] | None = None
    hang_in: int | None = None
    late_ns: int = 0

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        assert self.scenario.corpus is not None
        self.corpus = load_corpus(self.scenario.corpus, self.path)
        self.run = RunDirectory(self.path / "run")
        self.run.create()
        write_json(self.run.manifest, {"run_id": "test-run", "scenario": effective(self.scenario)})
        self.host = FakeHost()
        self.rooflines = {"host": ROOMY}
        self.controls: list[FakeControl] = []

    def make_control(self, _endpoint: Endpoint, _admin_key: str | None) -> FakeControl:
        self.controls.append(FakeControl())
        return self.controls[-1]

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        return [event for event in read_journal(self.run.journal) if name is None or event["event"] == name]

    def steps(self) -> list[str]:
        return [f"{event['step']}" for event in self.events("step")]

    def verdicts(self) -> list[str]:
        return [event["verdict"] for event in self.events("verdict")]

    def commits(self) -> list[tuple[str, int | None, str]]:
        return [(e["point_id"], e["attempt"], e["verdict"]) for e in self.events("point_committed")]

    async def play_interrupted(self) -> Outcome:
        """One invocation that is given up, as by Ctrl-C, once the load number `hang_in` hangs."""
        run = asyncio.ensure_future(self.play())
        while not run.done() and not (hasattr(self, "fleet") and self.fleet.hanging.is_set()):
            await asyncio.sleep(0)
        run.cancel()
        return await run

    async def play(self) -> Outcome:
        """One invocation, as `cluster/coordinator_actor.py` does it."""
        earlier = read_journal(self.run.journal) if self.run.journal.exists() else []
        journal = Journal(self.run.journal, self.clock)
        files = PartFiles(self.run.path)
        desk = OrderDesk(self.run, files, self.clock)
        names = [f"w{number:03d}" for number in range(self.workers)]
        self.fleet = FakeFleet(
            self.engine,
            desk,
            self.clock,
            self.corpus,
            names,
            lose_in=self.lose_in,
            hang_in=self.hang_in,
            late_ns=self.late_ns,
        )
        context = RunContext(
            scenario=self.scenario,
            run_id="test-20260101-000000-deadbeef",
            corpus=self.corpus,
            traces=read_traces(self.scenario, self.path),
            prompt_sets=read_prompt_sets(self.scenario, self.path),
            rooflines=self.rooflines,
            fleet=self.fleet,
            host=self.host,
            make_control=self.make_control,
            run=self.run,
            journal=journal,
            files=files,
            desk=desk,
            ledger_dir=self.path / ".ledger",
            clock=self.clock,
            sleep=self.clock.sleep,
        )
        coordinator = Coordinator(context, Earlier.of(earlier))
        self.progress = coordinator.progress
        try:
            return await coordinator.run()
        finally:
            files.close_all()
            journal.close()


def first_ids(prompt: Sequence[int], count: int = 64) -> tuple[int, ...]:
    return tuple(np.asarray(prompt[:count]).tolist())
