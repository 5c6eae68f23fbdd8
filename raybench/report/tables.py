"""The tables of points of a report, as rows of text. Pure: points in, cells out; Markdown, page and terminal draw.

A void point's numbers are cells that are struck through, and no summary reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from raybench.analysis.difference import MAIN_METRICS
from raybench.analysis.point_metrics import interval_of
from raybench.analysis.points import has_numbers, is_boundary
from raybench.analysis.pooling import lead_between
from raybench.report import numbers
from raybench.report.document import Row, Table, Tone
from raybench.report.metric_words import shown
from raybench.report.points import (
    Point,
    by_level,
    is_open_loop,
    level,
    level_kind,
    level_name,
    level_value,
)
from raybench.report.source import Source
from raybench.report.text import Text

#: By the verdict of a point.
TONES: Mapping[str | None, Tone] = {
    "accepted": "good",
    "imported": "good",
    "void": "bad",
    "skipped": "warn",
    None: "warn",
}


def verdict(point: Point, text: Text) -> str:
    """The verdict, and for a point without a valid number why."""
    word = _word(point, text)
    reasons = why(point, text)
    return f"{word}: {reasons}" if reasons else word


def _word(point: Point, text: Text) -> str:
    """`accepted`; of repeats with the runs that are valid: `accepted (2/3)`."""
    word = text.verdicts[point["verdict"]]
    return word if "repeats" not in point else "{} ({}/{})".format(word, *point["repeats"])


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
        tone=TONES[point["verdict"]],
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
_COMPARED = dict(enumerate(MAIN_METRICS, 2))


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
            verdict(point, text) if why else _word(point, text),
        )
        values = {6: point["ttft_ms_n"]} | {k: point[metric] for k, metric in _COMPARED.items()}
        strong = [k for k, metric in _COMPARED.items() if leads(point, points, metric)]
        rows.append(_row(point, cells, values, level_at=0, strong=strong))
    columns = _columns(text.result_columns, points, 0, text)
    return Table(columns, rows, right=frozenset(range(2, 7)))


def leads(point: Point, points: Sequence[Point], metric: str) -> bool:
    """Whether a point is clearly ahead of every other arm at its level, of which there is at least one."""
    at = (level_kind(point), level_value(point))
    others = [
        other
        for other in points
        if other["arm"] != point["arm"] and (level_kind(other), level_value(other)) == at and has_numbers(other)
    ]
    return bool(others) and all(lead_between(point, other, metric) < 0 for other in others)


def _ordered(source: Source) -> Iterator[Point]:
    """All points, workload by workload, by level."""
    for points in source.workloads.values():
        yield from by_level(points, source.arms)


#: A cell of a point: the column that it is sorted by, and what it shows.
_Cell = tuple[str, Callable[[Point], str]]


def _fixed(metric: str, decimals: int) -> _Cell:
    return metric, lambda point: numbers.fixed(point[metric], decimals)


def _shown(metric: str) -> _Cell:
    return metric, lambda point: shown(metric, point[metric])


def _count(metric: str) -> _Cell:
    return metric, lambda point: numbers.count(point[metric])


def _memory(metric: str) -> _Cell:
    return metric, lambda point: numbers.memory(point[metric])


def _percent(metric: str) -> _Cell:
    return metric, lambda point: numbers.percent(point[metric])


def _several(sorted_by: str, *metrics: str, decimals_ms: int = 0) -> _Cell:
    """Latencies of one unit side by side."""
    return sorted_by, lambda point: numbers.latencies([point[name] for name in metrics], decimals_ms=decimals_ms)


def _whole_and_steady(metric: str) -> _Cell:
    return metric, lambda point: f"{numbers.rate(point[metric])} / {numbers.rate(point[f'{metric}_steady'])}"


def _ok_of(point: Point) -> str:
    """Successful / planned requests: one that was lost with its worker stays in n."""
    n = point["requests_planned"] if point["requests_planned"] is not None else point["requests"]
    return numbers.UNKNOWN if point["requests"] is None else f"{point['requests_ok']}/{n}"


def _late_of(point: Point) -> str:
    return f"{numbers.count(point['late_sends'])}/{point['requests']}"


def _rows(points: Iterable[Point], told: Sequence[_Cell], text: Text, *, verdict: bool) -> list[Row]:
    """Workload, level, arm and these cells of each point; the verdict behind them."""
    rows = []
    for point in points:
        cells = (point["workload"], level(point), point["arm"], *(show(point) for _, show in told))
        last = (text.verdicts[point["verdict"]],) if verdict else ()
        values = {k: point[name] for k, (name, _) in enumerate(told, 3)}
        rows.append(_row(point, (*cells, *last), values, level_at=1))
    return rows


_APPENDIX: tuple[_Cell, ...] = (
    ("requests_ok", _ok_of),
    _fixed("wall_s", 2),
    _fixed("output_tokens_per_s", 2),
    _fixed("input_tokens_per_s", 2),
    _several("ttft_ms_p95", "ttft_ms_mean", "ttft_ms_p95", "ttft_ms_max"),
    _several("tpot_ms_p95", "tpot_ms_mean", "tpot_ms_p95", "tpot_ms_max", decimals_ms=1),
    _count("preemptions"),
    _fixed("accept_length", 3),
    _memory("gpu_memory_peak_bytes"),
    _memory("gpu_headroom_min_bytes"),
)


def appendix_table(source: Source, text: Text) -> Table:
    """Every point with everything: the seed's appendix B, GPU memory and the verdict."""
    rows = _rows(_ordered(source), _APPENDIX, text, verdict=True)
    columns = _columns(text.appendix_columns, source.points, 1, text)
    return Table(columns, rows, right=frozenset(range(3, 13)))


_STEADY: tuple[_Cell, ...] = (
    _count("in_flight_peak"),
    _percent("in_flight_share"),
    _several("handover_gap_ms_p50", "handover_gap_ms_p50", "handover_gap_ms_p99", decimals_ms=1),
    _percent("steady_share"),
    _whole_and_steady("input_tokens_per_s"),
    _whole_and_steady("output_tokens_per_s"),
    _shown("ttft_ms_p95_steady"),
    _shown("tpot_ms_p95_steady"),
    _shown("connect_wait_ms_p95"),
    _shown("send_wait_ms_p95"),
)


def steady_table(source: Source, text: Text) -> Table:
    """Whole point and steady-state window side by side, and what the client itself took."""
    points = [point for point in _ordered(source) if point["requests"] is not None and not is_open_loop(point)]
    rows = _rows(points, _STEADY, text, verdict=False)
    columns = _columns(text.steady_columns, source.points, 1, text)
    return Table(columns, rows, right=frozenset(range(3, 13)))


_OPEN_LOOP: tuple[_Cell, ...] = (
    _shown("offered_rate_per_s"),
    _shown("sent_rate_per_s"),
    _shown("requests_per_s"),
    ("late_sends", _late_of),
    _several("send_delay_ms_p50", "send_delay_ms_p50", "send_delay_ms_p99", "send_delay_ms_max", decimals_ms=1),
    _several("ttft_ms_p95", "ttft_ms_p95", "ttft_scheduled_ms_p95"),
    _several("e2e_ms_p95", "e2e_ms_p95", "e2e_scheduled_ms_p95"),
    _count("in_flight_peak"),
)


def open_loop_table(source: Source, text: Text) -> Table:
    """Open loops: the three rates, how late the client was, and latencies from both starts."""
    points = [point for point in _ordered(source) if point.get("offered_rate_per_s") is not None]
    rows = _rows(points, _OPEN_LOOP, text, verdict=True)
    return Table(text.open_loop_columns, rows, right=frozenset(range(3, 11)))


#: What an interval is told of, by the column of the table behind n.
_INTERVALS = ("ttft_ms_p50", "ttft_ms_p95", "tpot_ms_p50", "tpot_ms_p95", "output_tokens_per_s_steady")


def interval_table(source: Source, text: Text) -> Table:
    """The 95 % intervals of each point that has one: empty where n never allows one."""
    told: list[_Cell] = [
        _count("ttft_ms_n"),
        *((metric, partial(_interval, metric=metric)) for metric in _INTERVALS),
    ]
    points = [
        point
        for point in _ordered(source)
        if any(_interval(point, metric) != numbers.UNKNOWN for metric in _INTERVALS)
    ]
    rows = _rows(points, told, text, verdict=False)
    columns = _columns(text.interval_columns, source.points, 1, text)
    return Table(columns, rows, right=frozenset(range(3, 9)))


def _interval(point: Point, metric: str) -> str:
    """`146 [140, 151]`; a dash where n allows no interval."""
    found = interval_of(point, metric)
    if found is None:
        return numbers.UNKNOWN
    value, *ends = (shown(metric, told) for told in (point[metric], found.low, found.high))
    return f"{value} [{', '.join(ends)}]"


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
