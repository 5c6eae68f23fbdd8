"""The fleet for 100,000 and 1,000,000 streams, as arithmetic from what was measured; prints Markdown.

    python benchmarks/fleet.py BENCH.log COORDINATOR.log [--tokens-per-s 20] [--output-tokens 512] ...

The logs are what `make bench` and `make bench-coordinator` printed; the JSON object on their last line is read.
Nothing here was run at that size: it says how many nodes each limit asks for, and which limit is met first.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

from raybench.cluster.capacity import OWN_FILES, SPARE_PORTS
from raybench.load.worker import FLUSH_S

#: Up to this share of its core a worker reads in time; above it, it is close to being what is measured.
CORE_SHARE = 0.7
#: Linux' default range of local ports, 32768 to 60999, for one source address and one target.
LOCAL_PORTS = 28232
#: Ethernet, IP and TCP (with time stamps) around each event that travels alone.
PACKET_BYTES = 14 + 20 + 32
#: What a worker sends at each flush: records, its health, its sign of life.
CALLS_A_FLUSH = 3
#: An order carries the start of every window of the point to every worker, as int64.
WINDOW_BYTES = 8
#: A worker leases again when half of its ticket a slot ahead is used up (`load/leases.py`).
LEASES_A_ROUND = 2


#: (what, how it comes about, how much)
Rows = list[tuple[str, str, str]]


@dataclass(frozen=True)
class Measured:
    """From the two logs. stream_kb: memory of one more stream in a worker; worker_mb: of one with none."""

    token_cpu_us: float
    token_bytes: float
    worker_mb: float
    stream_kb: float
    idle_share: float
    call_cpu_us: float
    record_mb_cpu_ms: float
    record_bytes: float
    judge_mb_per_million: float

    @classmethod
    def of(cls, bench: dict[str, float], desk: dict[str, float], output_tokens: int) -> Measured:
        # 10,000 streams ran on two workers, 1,024 on one.
        slope = (bench["worker_rss_mb_10000"] - bench["worker_rss_mb_1024"]) / (5000 - 1024)
        one, many = desk["record_bytes_1_token"], desk["record_bytes_128_tokens"]
        record_bytes = one + (many - one) / 127 * (output_tokens - 1)
        return cls(
            token_cpu_us=bench["cpu_s_per_million_10000"],
            token_bytes=bench["bytes_per_token_1024"],
            worker_mb=bench["worker_rss_mb_1024"] - 1024 * slope,
            stream_kb=slope * 1e3,
            idle_share=desk["idle_cpu_ms_per_s"] / 1e3,
            call_cpu_us=desk["call_cpu_us"],
            record_mb_cpu_ms=desk["record_mb_cpu_ms"],
            record_bytes=record_bytes,
            judge_mb_per_million=desk["judge_mb_per_million_records"] * record_bytes / many,
        )


@dataclass(frozen=True)
class Load:
    """What is asked for: streams at once at one token rate, answers of one length; client nodes of one kind."""

    streams: int
    tokens_per_s: float
    output_tokens: int
    requests_per_slot: int
    node_cores: int
    node_gb: float
    targets: int

    @property
    def requests_per_s(self) -> float:
        return self.streams * self.tokens_per_s / self.output_tokens


def streams_per_worker(load: Load, measured: Measured) -> int:
    return int(CORE_SHARE / (load.tokens_per_s * measured.token_cpu_us / 1e6))


def clients(load: Load, measured: Measured) -> Rows:
    """What the client nodes need."""
    per_worker = streams_per_worker(load, measured)
    workers = math.ceil(load.streams / per_worker)
    by_cores = math.ceil(workers / load.node_cores)
    by_ports = math.ceil(load.streams / (LOCAL_PORTS - SPARE_PORTS) / load.targets)
    memory_gb = (workers * measured.worker_mb + load.streams * measured.stream_kb / 1e3) / 1e3
    by_memory = math.ceil(memory_gb / load.node_gb)
    gbit_per_s = load.streams * load.tokens_per_s * (measured.token_bytes + PACKET_BYTES) * 8 / 1e9
    a_node = gbit_per_s / max(by_cores, by_ports, by_memory)
    cpu = f"({load.tokens_per_s:g} tokens/s x {measured.token_cpu_us:.1f} us)"
    ports = f"({LOCAL_PORTS:,} - {SPARE_PORTS}) ports x {load.targets} targets"
    memory = f"{measured.worker_mb:.0f} MB a worker + {measured.stream_kb:.0f} KB a stream"
    network = f"streams x tokens/s x ({measured.token_bytes:.0f} + {PACKET_BYTES} bytes)"
    return [
        ("streams a worker", f"{CORE_SHARE:.0%} of a core / {cpu}", f"{per_worker:,}"),
        ("workers", "streams / streams a worker", f"{workers:,}"),
        ("client nodes by cores", f"workers / {load.node_cores}", f"{by_cores:,}"),
        ("client nodes by ports", f"streams / {ports}", f"{by_ports:,}"),
        ("client nodes by memory", f"{memory}, {load.node_gb:g} GB each", f"{by_memory:,} ({memory_gb:,.0f} GB)"),
        ("open files a worker", f"streams + {OWN_FILES}", f"{per_worker + OWN_FILES:,}"),
        ("network into the clients", network, f"{gbit_per_s:,.1f} Gbit/s, {a_node:,.2f} a node"),
    ]


def coordinator(load: Load, measured: Measured) -> Rows:
    """What the coordinator's one process has to do."""
    per_worker = streams_per_worker(load, measured)
    workers = math.ceil(load.streams / per_worker)
    call = f"{measured.call_cpu_us:.0f} us"

    def calls(per_s: float) -> str:
        return f"{per_s:,.0f} calls/s, {per_s * measured.call_cpu_us / 1e6:.2f} cores"

    records_mb = load.requests_per_s * measured.record_bytes / 1e6
    record = f"{measured.record_bytes:,.0f} bytes x {measured.record_mb_cpu_ms:.1f} ms a MB"
    millions = load.streams * load.requests_per_slot / 1e6
    memory = f"{load.requests_per_slot} requests a slot x {measured.judge_mb_per_million / 1e3:.1f} GB a million"
    orders_gb = millions * WINDOW_BYTES * workers / 1e3
    return [
        (
            "signs of life, health, records",
            f"workers x {CALLS_A_FLUSH} / {FLUSH_S} s x {call}",
            calls(workers * CALLS_A_FLUSH / FLUSH_S),
        ),
        (
            "leases",
            f"requests/s / (streams a worker / {LEASES_A_ROUND}) x {call}",
            calls(load.requests_per_s * LEASES_A_ROUND / per_worker),
        ),
        (
            "record bytes",
            f"requests/s x {record}",
            f"{records_mb:,.1f} MB/s, {records_mb * measured.record_mb_cpu_ms / 1e3:.2f} cores",
        ),
        ("memory to judge a point", memory, f"{millions * measured.judge_mb_per_million / 1e3:,.1f} GB"),
        ("orders of a point", f"requests x {WINDOW_BYTES} bytes x workers", f"{orders_gb:,.1f} GB"),
    ]


def full_core_at(load: Load, measured: Measured) -> float:
    """Streams at which the coordinator's one event loop has no CPU left."""
    worker_share = load.tokens_per_s * measured.token_cpu_us / 1e6 / CORE_SHARE
    requests = load.tokens_per_s / load.output_tokens
    leases = requests * LEASES_A_ROUND / streams_per_worker(load, measured)
    calls = worker_share * CALLS_A_FLUSH / FLUSH_S + leases
    share = calls * measured.call_cpu_us / 1e6 + requests * measured.record_bytes / 1e9 * measured.record_mb_cpu_ms
    return (1 - measured.idle_share) / share


def last_json(path: Path) -> dict[str, float]:
    """`time make bench` prints lines of its own behind the object."""
    return dict(json.loads(next(line for line in reversed(path.read_text().splitlines()) if line.startswith("{"))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    parser.add_argument("coordinator", type=Path)
    parser.add_argument("--tokens-per-s", type=float, default=20, help="of one stream")
    parser.add_argument("--output-tokens", type=int, default=512)
    parser.add_argument("--requests-per-slot", type=int, default=4)
    parser.add_argument("--node-cores", type=int, default=64)
    parser.add_argument("--node-gb", type=float, default=256)
    parser.add_argument("--targets", type=int, default=1, help="addresses and ports that the load goes to")
    given = vars(parser.parse_args())
    bench, desk = last_json(given.pop("bench")), last_json(given.pop("coordinator"))
    measured = Measured.of(bench, desk, given["output_tokens"])
    few, many = (Load(streams, **given) for streams in (100_000, 1_000_000))
    for side in (clients, coordinator):
        print(f"| {side.__name__} | how | {few.streams:,} streams | {many.streams:,} streams |\n|---|---|---|---|")
        for (what, how, small), (_, _, large) in zip(side(few, measured), side(many, measured), strict=True):
            print(f"| {what} | {how} | {small} | {large} |")
        print()
    load = Load(1, **given)
    full = full_core_at(load, measured)
    print(f"The coordinator's core is full at {full:,.0f} streams.")


if __name__ == "__main__":
    main()
