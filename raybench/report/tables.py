"""The tables of points of a report, as rows of text. Pure: points in, cells out; Markdown, page and terminal draw.

A void point's numbers are cells that are struck through, and no summary reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raybench.analysis.difference import NOISE_FLOOR_PERCENT, leader, value_of
from raybench.analysis.point_metrics import interval_columns
from raybench.analysis.points import has_numbers
from raybench.report import numbers
from raybench.report.points import (
    Point,
    by_level,
    is_boundary,
    is_open_loop,
    level,
    level_kind,
    level_name,
    level_value,
)
from raybench.report.source import Source
from raybench.report.text import Text

Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Row:
    """Cells of one line.

    struck: indices of numbers that do not count; strong: of those clearly better than all they compete with.
    values: what the cells are sorted by, where that is a number. point: index of the point behind the row.
    """

    cells: tuple[str, ...]
    struck: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()
    values: Mapping[int, float | None] = field(default_factory=dict)
    point: int | None = None


@dataclass(frozen=True)
class Table:
    """A heading line and rows of equal width; `right` are the indices of columns of numbers."""

    columns: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    right: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        assert all(len(row.cells) == len(self.columns) for row in self.rows), "a row of another width"


def verdict(point: Point, text: Text) -> str:
    """The verdict, and for a point without a valid number why."""
    word = text.verdicts[point["verdict"]]
    reasons = why(point, text)
    return f"{word}: {reasons}" if reasons else word


def why(point: Point, text: Text) -> str:
    """The reasons of a point without a valid number, in the words of the run."""
    own = text.verdicts[point["verdict"]]
    return "; ".join(reason for reason in point["reasons"] or [] if reason not in (own, "not measured"))


def _row(
    point: Point,
    cells: tuple[str, ...],
    values: Mapping[int, float | None],
    *,
    level_at: int,
    strong: Sequence[int] = (),
) -> Row:
    """values: by cell, the number behind it; of a void point these cells are struck through."""
    struck = frozenset(k for k in values if cells[k] != numbers.UNKNOWN)
    return Row(
        cells,
        struck=struck if point["verdict"] == "void" else frozenset(),
        strong=frozenset(strong),
        values={level_at: level_value(point), **values},
        point=point.get("index"),
    )


def _columns(columns: tuple[str, ...], points: Sequence[Point], at: int, text: Text) -> tuple[str, ...]:
    """The heading, where the column of the concurrency tells rates as well."""
    if not any(is_open_loop(point) for point in points):
        return columns
    return tuple(text.level_column if k == at else name for k, name in enumerate(columns))


#: Columns of the result table that are compared between arms, by cell.
_COMPARED = {2: "input_tokens_per_s", 3: "output_tokens_per_s", 4: "ttft_ms_p95", 5: "tpot_ms_p95"}


def result_table(points: Sequence[Point], arms: Sequence[str], text: Text, *, why: bool = True) -> Table:
    """One workload: the seed report's columns, n and the verdict. why: with the reasons behind it."""
    rows = []
    for point in by_level(points, arms):
        cells = (
            level(point),
            point["arm"],
            numbers.rate(point["input_tokens_per_s"]),
            numbers.rate(point["output_tokens_per_s"]),
            numbers.latency(point["ttft_ms_p95"]),
            numbers.per_token(point["tpot_ms_p95"]),
            numbers.count(point["ttft_ms_n"]),
            verdict(point, text) if why else text.verdicts[point["verdict"]],
        )
        values = {6: point["ttft_ms_n"]} | {k: point[metric] for k, metric in _COMPARED.items()}
        strong = [k for k, metric in _COMPARED.items() if leads(point, points, metric)]
        rows.append(_row(point, cells, values, level_at=0, strong=strong))
    columns = _columns(text.result_columns, points, 0, text)
    return Table(columns, rows, right=frozenset(range(2, 7)))


def leads(point: Point, points: Sequence[Point], metric: str) -> bool:
    """Whether a point is clearly ahead of every other arm at its level, of which there is at least one."""
    own = value_of(point, metric)
    at = (level_kind(point), level_value(point))
    others = [
        value_of(other, metric)
        for other in points
        if other["arm"] != point["arm"] and (level_kind(other), level_value(other)) == at and has_numbers(other)
    ]
    if own is None or not others:
        return False
    return all(other is not None and leader(metric, own, other, NOISE_FLOOR_PERCENT) < 0 for other in others)


def _ordered(source: Source) -> Iterator[Point]:
    """All points, workload by workload, by level."""
    for points in source.workloads.values():
        yield from by_level(points, source.arms)


def appendix_table(source: Source, text: Text) -> Table:
    """Every point with everything: the seed's appendix B, GPU memory and the verdict."""
    rows = []
    for point in _ordered(source):
        cells = (
            point["workload"],
            level(point),
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
        rows.append(_row(point, cells, _values(point, _APPENDIX), level_at=1))
    columns = _columns(text.appendix_columns, source.points, 1, text)
    return Table(columns, rows, right=frozenset(range(3, 13)))


_APPENDIX = {
    3: "requests_ok",
    4: "wall_s",
    5: "output_tokens_per_s",
    6: "input_tokens_per_s",
    7: "ttft_ms_p95",
    8: "tpot_ms_p95",
    9: "preemptions",
    10: "accept_length",
    11: "gpu_memory_peak_bytes",
    12: "gpu_headroom_min_bytes",
}


def _values(point: Point, columns: Mapping[int, str]) -> dict[int, float | None]:
    return {k: point[name] for k, name in columns.items()}


def _ok_of(point: Point) -> str:
    """Successful / planned requests: one that was lost with its worker stays in n."""
    n = point["requests_planned"] if point["requests_planned"] is not None else point["requests"]
    return numbers.UNKNOWN if point["requests"] is None else f"{point['requests_ok']}/{n}"


def steady_table(source: Source, text: Text) -> Table:
    """Whole point and steady-state window side by side, and what the client itself took."""
    rows = []
    for point in _ordered(source):
        if point["requests"] is None or is_open_loop(point):
            continue
        cells = (
            point["workload"],
            level(point),
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
        rows.append(_row(point, cells, _values(point, _STEADY), level_at=1))
    columns = _columns(text.steady_columns, source.points, 1, text)
    return Table(columns, rows, right=frozenset(range(3, 13)))


_STEADY = {
    3: "in_flight_peak",
    4: "in_flight_share",
    5: "handover_gap_ms_p50",
    6: "steady_share",
    7: "input_tokens_per_s",
    8: "output_tokens_per_s",
    9: "ttft_ms_p95_steady",
    10: "tpot_ms_p95_steady",
    11: "connect_wait_ms_p95",
    12: "send_wait_ms_p95",
}


def open_loop_table(source: Source, text: Text) -> Table:
    """Open loops: the three rates, how late the client was, and latencies from both starts."""
    rows = []
    for point in _ordered(source):
        if point.get("offered_rate_per_s") is None:
            continue
        cells = (
            point["workload"],
            level(point),
            point["arm"],
            numbers.rate(point["offered_rate_per_s"]),
            numbers.rate(point["sent_rate_per_s"]),
            numbers.rate(point["requests_per_s"]),
            f"{numbers.count(point['late_sends'])}/{point['requests']}",
            numbers.latencies([point[f"send_delay_ms_{part}"] for part in ("p50", "p99", "max")], decimals_ms=1),
            numbers.latencies([point["ttft_ms_p95"], point["ttft_scheduled_ms_p95"]]),
            numbers.latencies([point["e2e_ms_p95"], point["e2e_scheduled_ms_p95"]]),
            numbers.count(point["in_flight_peak"]),
            text.verdicts[point["verdict"]],
        )
        rows.append(_row(point, cells, _values(point, _OPEN_LOOP), level_at=1))
    return Table(text.open_loop_columns, rows, right=frozenset(range(3, 11)))


_OPEN_LOOP = {
    3: "offered_rate_per_s",
    4: "sent_rate_per_s",
    5: "requests_per_s",
    6: "late_sends",
    7: "send_delay_ms_p50",
    8: "ttft_ms_p95",
    9: "e2e_ms_p95",
    10: "in_flight_peak",
}


#: What an interval is told of, by the column of the table behind n.
_INTERVALS = ("ttft_ms_p50", "ttft_ms_p95", "tpot_ms_p50", "tpot_ms_p95", "output_tokens_per_s_steady")


def interval_table(source: Source, text: Text) -> Table:
    """The 95 % intervals of each point that has one: empty where n never allows one."""
    rows = []
    for point in _ordered(source):
        told = [_interval(point, metric) for metric in _INTERVALS]
        if all(cell == numbers.UNKNOWN for cell in told):
            continue
        cells = (point["workload"], level(point), point["arm"], numbers.count(point["ttft_ms_n"]), *told)
        values = {3: point["ttft_ms_n"]} | {k: point[metric] for k, metric in enumerate(_INTERVALS, 4)}
        rows.append(_row(point, cells, values, level_at=1))
    columns = _columns(text.interval_columns, source.points, 1, text)
    return Table(columns, rows, right=frozenset(range(3, 9)))


def _interval(point: Point, metric: str) -> str:
    """`146 [140, 151]`; a dash where n allows no interval."""
    low, high = (point.get(name) for name in interval_columns(metric))
    if low is None or high is None:
        return numbers.UNKNOWN
    shown = numbers.rate if metric.startswith("output_") else numbers.latency
    return f"{shown(point[metric])} [{shown(low)}, {shown(high)}]"


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
            done = [point for point in own if has_numbers(point)]
            missing = [f"{level_name(p)} {verdict(p, text)}" for p in own if not has_numbers(p)]
            cells = (
                numbers.tokens(own[0]["input_tokens"]),
                arm,
                "/".join(level(point) for point in done) or numbers.UNKNOWN,
                numbers.rate(done[0]["input_tokens_per_s"] if done else None),
                f"{numbers.latency(done[-1]['ttft_ms_p95'])} ({level_name(done[-1])})"
                if done
                else numbers.UNKNOWN,
                "; ".join(missing) or numbers.UNKNOWN,
            )
            values = {0: own[0]["input_tokens"]}
            if done:
                values |= {3: done[0]["input_tokens_per_s"], 4: done[-1]["ttft_ms_p95"]}
            rows.append(Row(cells, values=values, point=done[-1].get("index") if done else None))
    return Table(text.boundary_columns, rows, right=frozenset({3, 4}))


def attempt_table(points: Sequence[Point], text: Text) -> Table:
    """Attempts that do not count: rejected, void, or interrupted before their verdict."""
    rows = []
    for point, attempt in _attempts(points):
        if attempt["verdict"] == "accept":
            continue
        voiding = [found["message"] for found in attempt["findings"] if found["severity"] == "void"]
        if attempt["verdict"] is None:
            voiding = [text.interrupted]
        cells = (
            point["name"],
            str(attempt["attempt"]),
            attempt["verdict"] or numbers.UNKNOWN,
            hit_rates_text(attempt["hit_rates"], text),
            _span(attempt["windows"].get("load")),
            "; ".join(voiding) or numbers.UNKNOWN,
        )
        rows.append(Row(cells, point=point.get("index")))
    return Table(text.attempt_columns, rows)


def hit_rates_text(rates: Mapping[str, float | None], text: Text) -> str:
    """`requests 0.9998, counters 0.9998`: every source that told a rate; what was not told is no zero."""
    told = [
        f"{text.hit_sources.get(name, name)} {numbers.share(rate)}"
        for name, rate in rates.items()
        if rate is not None
    ]
    return ", ".join(told) or numbers.UNKNOWN


def _attempts(points: Sequence[Point]) -> Iterator[tuple[Point, dict[str, Any]]]:
    for point in points:
        for attempt in point["attempt_history"]:
            yield point, attempt


def window_table(source: Source, text: Text) -> Table:
    """Which text each attempt sent, rejected ones included."""
    rows = [
        Row(
            (
                point["name"],
                str(attempt["attempt"]),
                attempt["verdict"] or numbers.UNKNOWN,
                _span(attempt["windows"].get("load")),
                _span(attempt["windows"].get("prewarm")),
            ),
            values={3: (attempt["windows"].get("load") or {}).get("first")},
            point=point.get("index"),
        )
        for point, attempt in _attempts(source.points)
    ]
    return Table(text.window_columns, rows)


def _span(windows: Mapping[str, int] | None) -> str:
    if not windows:
        return numbers.UNKNOWN
    return f"{windows['first']:,} .. {windows['last']:,} ({windows['count']:,})"


def invalid_table(source: Source, text: Text) -> Table:
    """Points without numbers that count, and why."""
    rows = [
        Row(
            (point["name"], text.verdicts[point["verdict"]], why(point, text) or numbers.UNKNOWN),
            point=point["index"],
        )
        for point in source.points
        if not has_numbers(point)
    ]
    return Table(text.invalid_columns, rows)
