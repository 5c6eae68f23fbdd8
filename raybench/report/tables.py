"""The tables of a report, as rows of text. Pure: points in, cells out; Markdown and terminal draw them.

A void point's numbers are cells that are struck through, and no summary reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raybench.report import numbers
from raybench.report.source import Point, Source, points_rows
from raybench.report.text import Text

__all__ = [
    "Row",
    "Table",
    "active_limit_table",
    "appendix_table",
    "attempt_table",
    "boundary_table",
    "fact_table",
    "points_rows",
    "result_table",
    "steady_table",
    "vram_table",
    "window_table",
]

QUEUEING_MARK = "†"


@dataclass(frozen=True)
class Row:
    """Cells of one line; those at the indices `struck` hold numbers that do not count."""

    cells: tuple[str, ...]
    struck: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Table:
    """A heading line and rows of equal width; `right` are the indices of columns of numbers."""

    columns: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    right: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        assert all(len(row.cells) == len(self.columns) for row in self.rows), "a row of another width"


def is_boundary(point: Point) -> bool:
    """One output token: the row proves capacity and prefill, and has no TPOT."""
    return bool(point["output_tokens"] == 1)


def concurrency(point: Point) -> str:
    return f"{point['concurrency']} {QUEUEING_MARK}" if point["queueing"] else str(point["concurrency"])


def shape(point: Point) -> str:
    """`16k -> 512`."""
    return f"{numbers.tokens(point['input_tokens'])} -> {numbers.tokens(point['output_tokens'])}"


def verdict(point: Point, text: Text) -> str:
    """The verdict, and for a point without a valid number why."""
    word = text.verdicts[point["verdict"]]
    reasons = [reason for reason in point["reasons"] or [] if reason != word]
    return f"{word}: {'; '.join(reasons)}" if reasons else word


def by_level(points: Sequence[Point], arms: Sequence[str]) -> list[Point]:
    """Points of one workload by concurrency, the arms of one level together."""
    return sorted(points, key=lambda point: (point["concurrency"], arms.index(point["arm"])))


def result_table(points: Sequence[Point], arms: Sequence[str], text: Text, *, why: bool = True) -> Table:
    """One workload: the seed report's columns, n and the verdict. why: with the reasons behind it."""
    rows = []
    for point in by_level(points, arms):
        cells = (
            concurrency(point),
            point["arm"],
            numbers.rate(point["input_tokens_per_s"]),
            numbers.rate(point["output_tokens_per_s"]),
            numbers.latency(point["ttft_ms_p95"]),
            numbers.per_token(point["tpot_ms_p95"]),
            numbers.count(point["ttft_ms_n"]),
            verdict(point, text) if why else text.verdicts[point["verdict"]],
        )
        rows.append(_row(point, cells, numbers_at=range(2, 7)))
    return Table(text.result_columns, rows, right=frozenset(range(2, 7)))


def _row(point: Point, cells: tuple[str, ...], numbers_at: Sequence[int]) -> Row:
    struck = frozenset(k for k in numbers_at if cells[k] != numbers.UNKNOWN)
    return Row(cells, struck if point["verdict"] == "void" else frozenset())


def appendix_table(source: Source, text: Text) -> Table:
    """Every point with everything: the seed's appendix B, GPU memory and the verdict."""
    rows = []
    for points in source.workloads.values():
        for point in by_level(points, source.arms):
            cells = (
                point["workload"],
                concurrency(point),
                point["arm"],
                _ok_of(point),
                numbers.fixed(point["wall_s"], 2),
                numbers.fixed(point["output_tokens_per_s"], 2),
                numbers.fixed(point["input_tokens_per_s"], 2),
                numbers.latencies([point[f"ttft_ms_{part}"] for part in ("mean", "p95", "max")]),
                numbers.latencies([point[f"tpot_ms_{part}"] for part in ("mean", "p95", "max")], decimals_ms=1),
                numbers.count(point["preemptions"]),
                numbers.fixed(point["accept_length"], 3),
                numbers.memory(point["gpu_memory_peak_bytes"]),
                numbers.memory(point["gpu_headroom_min_bytes"]),
                text.verdicts[point["verdict"]],
            )
            rows.append(_row(point, cells, numbers_at=range(3, 13)))
    return Table(text.appendix_columns, rows, right=frozenset(range(3, 13)))


def _ok_of(point: Point) -> str:
    """Successful / planned requests: one that was lost with its worker stays in n."""
    n = point["requests_planned"] if point["requests_planned"] is not None else point["requests"]
    return numbers.UNKNOWN if point["requests"] is None else f"{point['requests_ok']}/{n}"


def steady_table(source: Source, text: Text) -> Table:
    """Whole point and steady-state window side by side, and what the client itself took."""
    rows = []
    for points in source.workloads.values():
        for point in by_level(points, source.arms):
            if point["requests"] is None:
                continue
            cells = (
                point["workload"],
                concurrency(point),
                point["arm"],
                numbers.count(point["in_flight_peak"]),
                numbers.percent(point["in_flight_share"]),
                numbers.latencies([point["handover_gap_ms_p50"], point["handover_gap_ms_p99"]], decimals_ms=1),
                numbers.percent(point["steady_share"]),
                _beside(point["input_tokens_per_s"], point["input_tokens_per_s_steady"]),
                _beside(point["output_tokens_per_s"], point["output_tokens_per_s_steady"]),
                numbers.latency(point["ttft_ms_p95_steady"]),
                numbers.per_token(point["tpot_ms_p95_steady"]),
                numbers.latency(point["connect_wait_ms_p95"]),
                numbers.latency(point["send_wait_ms_p95"]),
            )
            rows.append(_row(point, cells, numbers_at=range(3, 13)))
    return Table(text.steady_columns, rows, right=frozenset(range(3, 13)))


def _beside(whole: float | None, steady: float | None) -> str:
    return f"{numbers.rate(whole)} / {numbers.rate(steady)}"


def boundary_table(source: Source, text: Text) -> Table:
    """Workloads with one output token, one row an arm: what it completed, and why not the rest."""
    rows = []
    for points in source.workloads.values():
        for arm in source.arms:
            own = by_level([p for p in points if p["arm"] == arm and is_boundary(p)], source.arms)
            if not own:
                continue
            done = [point for point in own if point["verdict"] == "accepted"]
            missing = [f"C={p['concurrency']} {verdict(p, text)}" for p in own if p["verdict"] != "accepted"]
            cells = (
                numbers.tokens(own[0]["input_tokens"]),
                arm,
                "/".join(concurrency(point) for point in done) or numbers.UNKNOWN,
                numbers.rate(done[0]["input_tokens_per_s"] if done else None),
                f"{numbers.latency(done[-1]['ttft_ms_p95'])} (C={done[-1]['concurrency']})"
                if done
                else numbers.UNKNOWN,
                "; ".join(missing) or numbers.UNKNOWN,
            )
            rows.append(Row(cells))
    return Table(text.boundary_columns, rows, right=frozenset({3, 4}))


def active_limit_table(source: Source, text: Text) -> Table:
    """How many requests of each workload can run at once on each arm, and what bounds them."""
    rows = []
    for workload, points in source.workloads.items():
        cells = [f"{workload} ({shape(points[0])})"]
        cells += [_active_limit([p for p in points if p["arm"] == arm], source, text) for arm in source.arms]
        rows.append(Row(tuple(cells)))
    return Table((text.workload, *source.arms), rows)


def _active_limit(points: Sequence[Point], source: Source, text: Text) -> str:
    if not points:
        return numbers.UNKNOWN
    if all(point["verdict"] == "skipped" for point in points):
        return verdict(points[0], text)
    limit = points[0]["active_limit"]
    running = source.limits.get(points[0]["arm"], {}).get("max_running_requests")
    if limit is None or running is None:
        return numbers.count(limit)
    return f"{limit} ({text.limit_by_running if limit == running else text.limit_by_pool})"


def fact_table(source: Source, text: Text) -> Table:
    """What each engine says of itself, one column an arm; facts that no engine gives are left out."""
    rows = []
    for name, label in text.engine_facts.items():
        values = [source.facts.get(arm, {}).get(name) for arm in source.arms]
        if any(value is not None for value in values):
            rows.append(Row((label, *(_fact(value, text) for value in values))))
    devices = [_devices(source.gpus.get(arm, {}), text) for arm in source.arms]
    if any(devices):
        rows.append(Row((text.gpus, *(described or numbers.UNKNOWN for described in devices))))
    return Table((text.fact, *source.arms), rows)


def _fact(value: object, text: Text) -> str:
    if isinstance(value, bool):
        return text.yes if value else text.no
    if isinstance(value, int):
        return numbers.count(value)
    return numbers.UNKNOWN if value is None else str(value)


def _devices(inventory: Mapping[str, Any], text: Text) -> str:
    """`8 x NVIDIA X (83.6 GiB), driver 580.1` of each host; empty when there is no inventory."""
    told = []
    for host in inventory.values():
        if not host.get("available"):
            told.append(text.gpu_unavailable.format(reason=host.get("reason")))
            continue
        kinds: dict[str, int] = {}
        for device in host.get("devices") or []:
            driver = f", driver {device['driver_version']}" if device.get("driver_version") else ""
            kind = f"{device.get('name') or 'GPU'} ({numbers.memory(device.get('memory_total_bytes'))}){driver}"
            kinds[kind] = kinds.get(kind, 0) + 1
        told += [f"{number} x {kind}" for kind, number in kinds.items()]
    return "; ".join(told)


def attempt_table(source: Source, text: Text) -> Table:
    """Attempts that do not count: rejected, void, or interrupted before their verdict."""
    rows = []
    for point in source.points:
        for attempt in point["attempt_history"]:
            if attempt["verdict"] == "accept":
                continue
            voiding = [found["message"] for found in attempt["findings"] if found["severity"] == "void"]
            if attempt["verdict"] is None:
                voiding = [text.interrupted]
            cells = (
                point["point_id"],
                str(attempt["attempt"]),
                attempt["verdict"] or numbers.UNKNOWN,
                numbers.share(attempt["hit_rates"].get("requests")),
                numbers.share(attempt["hit_rates"].get("counters")),
                _span(attempt["windows"].get("load")),
                "; ".join(voiding) or numbers.UNKNOWN,
            )
            rows.append(Row(cells))
    return Table(text.attempt_columns, rows, right=frozenset({3, 4}))


def window_table(source: Source, text: Text) -> Table:
    """Which text each attempt sent, rejected ones included."""
    rows = [
        Row(
            (
                point["point_id"],
                str(attempt["attempt"]),
                attempt["verdict"] or numbers.UNKNOWN,
                _span(attempt["windows"].get("load")),
                _span(attempt["windows"].get("prewarm")),
            )
        )
        for point in source.points
        for attempt in point["attempt_history"]
    ]
    return Table(text.window_columns, rows)


def _span(windows: Mapping[str, int] | None) -> str:
    if not windows:
        return numbers.UNKNOWN
    return f"{windows['first']:,} .. {windows['last']:,} ({windows['count']:,})"


def vram_table(source: Source, text: Text) -> Table:
    """GPU memory of each arm and device over its accepted points."""
    rows = []
    for arm in source.arms:
        devices: dict[tuple[str, str], list[tuple[Point, dict[str, Any]]]] = {}
        for point in source.points:
            if point["arm"] == arm and point["verdict"] == "accepted":
                for gpu in point["gpus"]:
                    devices.setdefault((gpu["host"], gpu["gpu_uuid"]), []).append((point, gpu))
        rows += [_device_row(arm, seen) for seen in devices.values()]
    return Table(text.vram_columns, [row for row in rows if row is not None], right=frozenset(range(2, 7)))


def _device_row(arm: str, seen: Sequence[tuple[Point, dict[str, Any]]]) -> Row | None:
    known = [(point, gpu) for point, gpu in seen if gpu["peak_bytes"] is not None]
    if not known:
        return None
    at, highest = max(known, key=lambda pair: pair[1]["peak_bytes"])
    samples = sum(gpu["samples"] for _, gpu in known)
    mean = sum(gpu["mean_bytes"] * gpu["samples"] for _, gpu in known) / samples
    idle = [gpu["idle_bytes"] for _, gpu in known if gpu["idle_bytes"] is not None]
    index = highest["gpu_index"] if highest["gpu_index"] is not None else highest["gpu_uuid"]
    cells = (
        arm,
        f"{highest['host']} {index}",
        numbers.memory(highest["memory_total_bytes"]),
        numbers.memory(min(idle, default=None)),
        numbers.memory(round(mean)),
        numbers.memory(highest["peak_bytes"]),
        numbers.memory(min(gpu["headroom_min_bytes"] for _, gpu in known)),
        f"{at['workload']} C={at['concurrency']}",
    )
    return Row(cells)
