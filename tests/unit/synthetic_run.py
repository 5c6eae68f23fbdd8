"""A small run directory as coordinator, workers and monitors leave it, made on a fake time line.

Two arms on one target host; client `c1` is 3 s ahead of the coordinator, the GPU host 2.5 s behind.
Times are seconds after the run's start on the coordinator's clock.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from request_rows import ns, request

from raybench.records.clock import ClockAnchor, ClockOffset
from raybench.records.journal import Journal
from raybench.records.parts import PartFiles
from raybench.records.rundir import RunDirectory
from raybench.records.schema import GPU, REQUESTS, SERVER
from raybench.records.stream import ArrowEncoder, part_metadata
from raybench.records.strict_json import write_json

START_UNIX_NS = 1_800_000_000 * 1_000_000_000
GIB = 1024**3

Rows = Sequence[Mapping[str, object]]


class RunClock:
    """The coordinator's clock; `now_s` is set by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_ns(self) -> int:
        return 7_000_000_000 + ns(self.now_s)

    def unix_ns(self) -> int:
        return START_UNIX_NS + ns(self.now_s)


class Host:
    """Another machine: its wall clock is `ahead_s` of the coordinator's, its monotonic zero is its own."""

    def __init__(self, name: str, ahead_s: float, monotonic_at_start_s: float) -> None:
        self.name = name
        self.offset = ClockOffset(ns(ahead_s), 200_000)
        self._monotonic_at_start_ns = ns(monotonic_at_start_s)

    def monotonic_ns(self, at_s: float) -> int:
        return self._monotonic_at_start_ns + ns(at_s)

    def unix_ns(self, at_s: float) -> int:
        return START_UNIX_NS + ns(at_s) + self.offset.offset_ns

    def metadata(self, schema: str, at_s: float, **labels: str) -> dict[str, str]:
        anchor = ClockAnchor(self.name, f"boot-{self.name}", self.unix_ns(at_s), self.monotonic_ns(at_s))
        return part_metadata(schema, anchor, **labels) | self.offset.to_metadata()


COORDINATOR = Host("head", 0.0, 7.0)
CLIENTS = {"w0": COORDINATOR, "w1": Host("c1", 3.0, 100_000.0)}
GPU_HOST = Host("gpu-host", -2.5, 5.0)


class SyntheticRun:
    """Writes a run step by step through the records API."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory(path)
        self.run.create()
        self.clock = RunClock()
        self.journal = Journal(self.run.journal, self.clock)
        self.files = PartFiles(path)
        self._serial = 0

    def manifest(self, points: Rows) -> None:
        manifest = {
            "run_id": "demo-20270115",
            "raybench_version": "0.1.0",
            "scenario": {"name": "demo", "arms": {}},
            "scenario_sha256": "ab" * 32,
            "corpus": {"name": "corpus.npy", "sha256": "cd" * 32},
            "points": [dict(point) for point in points],
        }
        write_json(self.run.manifest, manifest)

    def event(self, at_s: float, event: str, **fields: object) -> None:
        self.clock.now_s = at_s
        self.journal.append(event, **fields)

    def attempt(
        self,
        at_s: float,
        point_id: str,
        attempt: int,
        rows: Rows,
        load_s: tuple[float, float],
        verdict: Mapping[str, object],
        preemptions: float | None = None,
    ) -> None:
        """One attempt: its journal lines and its workers' parts. Row stamps are on the run's time line."""
        self._serial += 1
        where: dict[str, object] = {"point_id": point_id, "attempt": attempt}
        windows = {
            "load": {"first": 100 * attempt, "last": 100 * attempt + 50, "count": len(rows)},
            "prewarm": None,
        }
        self.event(at_s, "attempt_started", **where, serial=self._serial, windows=windows)
        for worker, host in CLIENTS.items():
            offset = {"offset_ns": host.offset.offset_ns, "uncertainty_ns": host.offset.uncertainty_ns}
            self.event(at_s, "clock", **where, phase="load", when="start", worker=worker, **offset)
            self.request_part(point_id, attempt, worker, [row for row in rows if row["worker"] == worker], at_s)
        step = {**where, "status": "done"}
        self.event(at_s, "step", **step, step="counters_before", counters={"preemptions": 4.0})
        for event, stamp_s in zip(("load_started", "load_ended"), load_s, strict=True):
            self.event(load_s[1], event, **where, unix_ns=START_UNIX_NS + ns(stamp_s))
        after = None if preemptions is None else 4.0 + preemptions
        self.event(load_s[1], "step", **step, step="counters_after", counters={"preemptions": after})
        self.event(load_s[1], "verdict", **where, **verdict)

    def request_part(self, point_id: str, attempt: int, worker: str, rows: Rows, at_s: float) -> None:
        host = CLIENTS[worker]
        encoder = ArrowEncoder(REQUESTS, host.metadata("requests", at_s, worker=worker, phase="load"))
        name = self.run.relative(self.run.part(point_id, attempt, worker))
        own = [_on_clock(row, host) | {"point_id": point_id, "attempt": attempt} for row in rows]
        self.files.append(name, encoder.encode(own) + encoder.close())
        self.files.close(name)

    def gpu_part(self, samples: Sequence[tuple[float, str, int | None]], *, cut_bytes: int = 0) -> None:
        """(time, uuid, bytes in use or None) of devices with 80 GiB; the file may lack its last bytes."""
        encoder = ArrowEncoder(GPU, GPU_HOST.metadata("gpu", 0.0))
        data = b""
        for at_s, uuid, in_use in samples:
            row: dict[str, object] = {
                "host": GPU_HOST.name,
                "gpu_uuid": uuid,
                "gpu_index": int(uuid[-1]),
                "sample_ns": GPU_HOST.monotonic_ns(at_s),
                "sample_unix_ns": GPU_HOST.unix_ns(at_s),
                "memory_api": "v2",
                "gap": in_use is None,
            }
            if in_use is not None:
                row |= {"memory_total_bytes": 80 * GIB, "memory_free_bytes": 80 * GIB - in_use}
            data += encoder.encode([row])
        data += encoder.close()
        path = self.run.gpu_part(GPU_HOST.name)
        self.files.append(self.run.relative(path), data[: len(data) - cut_bytes])

    def server_part(self, arm: str, times_s: Sequence[float]) -> None:
        encoder = ArrowEncoder(SERVER, COORDINATOR.metadata("server", 0.0, arm=arm))
        rows = [
            {
                "arm": arm,
                "sample_ns": COORDINATOR.monotonic_ns(at_s),
                "sample_unix_ns": COORDINATOR.unix_ns(at_s),
                "running_requests": 2.0,
            }
            for at_s in times_s
        ]
        self.files.append(
            self.run.relative(self.run.next_server_part(arm)), encoder.encode(rows) + encoder.close()
        )

    def done(self) -> RunDirectory:
        self.files.close_all()
        self.journal.close()
        return self.run


def _on_clock(row: Mapping[str, object], host: Host) -> dict[str, object]:
    """The row with its stamps as the host's own monotonic clock gives them."""
    shift = host.monotonic_ns(0.0)
    own = dict(row)
    for name, value in row.items():
        if name.endswith("_ns") and isinstance(value, int):
            own[name] = value + shift
        elif name == "chunk_ns" and isinstance(value, list):
            own[name] = [stamp + shift for stamp in value]
    return own


def wave(start_s: float, requests: int, *, tokens: int = 11, worker: str | None = None, **changes: object) -> Rows:
    """Requests in pairs of one second: TTFT 400 ms, TPOT 60 ms at 11 tokens; spread over both workers."""
    rows = []
    for ticket in range(requests):
        sent = start_s + ticket // 2
        name = worker or f"w{ticket % 2}"
        row = request(
            ticket,
            sent,
            sent + 1.0,
            first_s=sent + 0.4,
            output_tokens=tokens,
            worker=name,
            window_start=ticket,
        )
        rows.append(row | changes)
    return rows


def planned(point_id: str, **changes: object) -> dict[str, object]:
    arm, workload, level = point_id.split("/")
    point: dict[str, object] = {
        "point_id": point_id,
        "arm": arm,
        "workload": workload,
        "concurrency": int(level[1:]),
        "requests": 4,
        "input_tokens": 1024,
        "output_tokens": 11,
        "active_limit": 2,
        "queueing": False,
        "skip_reason": None,
    }
    return point | changes


def finding(code: str, severity: str, message: str) -> dict[str, object]:
    return {"code": code, "severity": severity, "message": message, "data": {}}


ACCEPT: dict[str, object] = {
    "verdict": "accept",
    "findings": [],
    "hit_rates": {"requests": 0.0, "counters": None},
}
NOT_COLD = "not cold: prefix hit rate 0.9998 by requests is over the limit 0.01"
LOST = "client lost: worker w1 (killed); 2 of 4 requests have a record"
SKIP = "input 524288 + output 1 exceeds the context of 270336 tokens"

POINTS = [
    planned("tp2pp4/1k/c2"),
    planned("tp2pp4/1k/c4", concurrency=4, queueing=True),
    planned("tp8/1k/c2"),
    planned("tp8/512k/c1", output_tokens=1, input_tokens=524288, active_limit=0, skip_reason=SKIP),
    planned("tp8/1k/c4", concurrency=4),
]


def whole_run(path: Path) -> RunDirectory:
    """An accepted point, one accepted at its second attempt, a void one, a skipped one, one not measured.

    The first arm's GPU samples end in a torn batch at 33 s; there are none for the second arm.
    """
    made = SyntheticRun(path)
    made.manifest(POINTS)
    made.event(0.0, "run_started", run_id="demo-20270115", raybench_version="0.1.0")
    made.event(1.0, "arm_ready", arm="tp2pp4", limits={"max_running_requests": 2, "kv_pool_tokens": 1_040_384})
    cached = wave(10.0, 4, cached_tokens=0, accept_length=2.0, retractions=0)
    made.attempt(5.0, "tp2pp4/1k/c2", 1, cached, (10.0, 12.0), ACCEPT)
    made.event(13.0, "point_committed", point_id="tp2pp4/1k/c2", attempt=1, verdict="accepted", reasons=[])

    hot = finding("hit_rate_exceeded", "void", NOT_COLD)
    retry = {"verdict": "retry", "findings": [hot], "hit_rates": {"requests": 0.9998, "counters": 0.9998}}
    made.attempt(15.0, "tp2pp4/1k/c4", 1, wave(20.0, 4), (20.0, 22.0), retry)
    made.attempt(25.0, "tp2pp4/1k/c4", 2, wave(30.0, 4, cached_tokens=0), (30.0, 32.0), ACCEPT, preemptions=3.0)
    made.event(33.0, "point_committed", point_id="tp2pp4/1k/c4", attempt=2, verdict="accepted", reasons=[])

    made.event(50.0, "arm_ready", arm="tp8", limits={"max_running_requests": 64, "kv_pool_tokens": 276_480})
    void = {"verdict": "void", "findings": [finding("worker_lost", "void", LOST)], "hit_rates": {}}
    made.attempt(55.0, "tp8/1k/c2", 1, wave(60.0, 4, worker="w0")[:2], (60.0, 61.5), void)
    made.event(62.0, "point_committed", point_id="tp8/1k/c2", attempt=1, verdict="void", reasons=[LOST])
    made.event(63.0, "point_committed", point_id="tp8/512k/c1", attempt=None, verdict="skipped", reasons=[SKIP])
    made.event(64.0, "run_ended", status="stopped")

    samples = [(0.5 * k, "GPU-0", (70 if 10 <= 0.5 * k <= 12 else 60) * GIB) for k in range(2, 68)]
    samples += [(0.5 * k, "GPU-1", 65 * GIB if k % 3 else None) for k in range(2, 67)]
    made.gpu_part(sorted(samples, key=lambda sample: (sample[0], sample[1])), cut_bytes=12)
    made.server_part("tp2pp4", [4.0, 11.0, 31.0])
    return made.done()
