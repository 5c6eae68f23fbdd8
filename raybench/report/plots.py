"""Which figures a report has, and how: throughput and latencies over the level, throughput against latency,
and the proof of cold caches. Pure. Those of one point are in `point_plots`.

An arm has one colour and one marker everywhere. Both tell it, so that no figure needs colours to be read;
the colours are those of Okabe and Ito, which keep apart in every kind of colour vision. Void points are in
no figure that compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raybench.analysis.point_metrics import interval_of
from raybench.analysis.points import has_numbers, is_boundary
from raybench.report import numbers
from raybench.report.chart import Axis, Figure, Key, Panel, covering
from raybench.report.points import Point, by_level, level_kind, level_name, level_value
from raybench.report.source import Source
from raybench.report.text import Text

#: Okabe and Ito's colours but black and yellow; the first four are far apart whichever cones an eye has (a test).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#56B4E9", "#E69F00", "#CC79A7")
SHAPES = ("circle", "square", "triangle", "diamond", "down")

GRAY, BLACK = "#57606a", "#111111"

#: Where a hit rate stands that is zero, and one that nobody told; others stand at their power of ten.
_ZERO, _NOT_TOLD = -5.0, -6.0
_SOURCE_SHAPES = {"requests": "circle", "counters": "triangle", "log": "diamond"}


@dataclass(frozen=True)
class Style:
    color: str
    shape: str


def styles(arms: Sequence[str]) -> dict[str, Style]:
    """The colour and the marker of each arm; no two arms have both in common before thirty of them."""
    return {arm: Style(COLORS[k % len(COLORS)], SHAPES[k % len(SHAPES)]) for k, arm in enumerate(arms)}


def address(point: Point) -> str:
    """Where a page tells more of a point; empty for repeats, whose records are those of several."""
    return "" if point["index"] is None else f"#point-{point['index']}"


def file_name(*parts: str) -> str:
    """A name for a figure's file, from names that may hold anything."""
    return "_".join("".join(c if c.isalnum() or c in "-+." else "-" for c in part) for part in parts)


# -- over the level --------------------------------------------------------------------------------


def workload_figures(points: Sequence[Point], source: Source, text: Text) -> list[Figure]:
    """The figures of one workload; none for a boundary row, and none without valid points.

    Concurrencies, rates and speeds of a trace are no levels of one axis, and have figures of their own.
    """
    figures = []
    for kind in sorted({level_kind(point) for point in points}):
        own = [p for p in points if has_numbers(p) and level_kind(p) == kind and not is_boundary(p)]
        if len(own) > 1:  # a single dot says no more than its row
            figures += _level_figures(by_level(own, source.arms), styles(source.arms), text)
    return figures


def _level_figures(points: Sequence[Point], style: dict[str, Style], text: Text) -> list[Figure]:
    words = text.plots
    workload = str(points[0]["workload"])
    suffix = [(workload,), (workload, "rate"), (workload, "trace")][level_kind(points[0])]
    throughput = _over_level(
        points, style, text, words.output_throughput, {"output_tokens_per_s": ""}, numbers.rate, log=False
    )
    figures = [Figure(file_name("throughput", *suffix), f"{workload}: {words.output_throughput}", *throughput)]
    for metric, title, label in (
        ("ttft_ms", "TTFT", numbers.latency),
        ("tpot_ms", "TPOT", numbers.per_token),
    ):
        drawn = {f"{metric}_{part}": dash for part, dash in _PERCENTILES.items()}
        panels, legend = _over_level(points, style, text, title, drawn, label, log=True)
        told = [part for part in _PERCENTILES if any(p[f"{metric}_{part}"] is not None for p in points)]
        legend = [*legend, *(Key(part.upper(), GRAY, "line", _PERCENTILES[part]) for part in told)]
        figures.append(
            Figure(file_name(metric.removesuffix("_ms"), *suffix), f"{workload}: {title}", panels, legend)
        )
    figures.append(_pareto(points, style, text, suffix))
    return [figure for figure in figures if any(panel.marks for panel in figure.panels)]


_PERCENTILES = {"p50": "2 3", "p95": "", "p99": "7 4"}

Drawn = tuple[list[Panel], list[Key]]


def _over_level(
    points: Sequence[Point],
    style: dict[str, Style],
    text: Text,
    title: str,
    metrics: dict[str, str],
    label: Callable[[float | None], str],
    *,
    log: bool,
) -> Drawn:
    """metrics: columns to draw, each with the dashes of its line; the solid one has the markers."""
    levels = sorted({level_value(point) for point in points})
    values = [point[metric] for point in points for metric in metrics if point[metric] is not None]
    low, high = covering(values, log=log)
    x_title = (text.plots.level, text.plots.rate, text.plots.trace_speed)[level_kind(points[0])]
    x = Axis(x_title, *covering(levels, log=True), label=lambda value: f"{value:g}", log=True, ticks=levels)
    panel = Panel(
        x, Axis("", low, high, label=short_label(label), log=log), title=f"{points[0]['workload']}: {title}"
    )
    for arm, own in _by_arm(points):
        for metric, dash in metrics.items():
            known = [(level_value(p), p[metric]) for p in own if p[metric] is not None]
            panel.line(known, style[arm].color, dash=dash, width=1.3 if dash else 2, faint=0.8 if dash else 1)
    for point in points:
        for metric in (name for name, dash in metrics.items() if not dash and point[name] is not None):
            tip = f"{point['arm']} {level_name(point)}: {label(point[metric])} (n={point['ttft_ms_n']})"
            at, own_style = (level_value(point), point[metric]), style[point["arm"]]
            if (found := interval_of(point, metric)) is not None:
                tip += f", 95 %: {label(found.low)} .. {label(found.high)}"
                panel.whisker(at[0], found.low, found.high, own_style.color)
            panel.dot(
                at, own_style.color, own_style.shape, tip, hollow=bool(point["queueing"]), link=address(point)
            )
    return [panel], _arm_keys(points, style, text)


def short_label(label: Callable[[float | None], str]) -> Callable[[float], str]:
    """A label without the zeros behind the point: `5 s`, `100 ms`, `200`."""

    def short(value: float) -> str:
        told = label(value)
        head, _, unit = told.partition(" ")
        return f"{head.rstrip('0').rstrip('.') if '.' in head else head} {unit}".strip()

    return short


def _by_arm(points: Sequence[Point]) -> Iterator[tuple[str, list[Point]]]:
    for arm in dict.fromkeys(point["arm"] for point in points):
        yield arm, [point for point in points if point["arm"] == arm]


def _arm_keys(points: Sequence[Point], style: dict[str, Style], text: Text) -> list[Key]:
    keys = [Key(arm, style[arm].color, style[arm].shape) for arm in style if any(p["arm"] == arm for p in points)]
    if any(point["queueing"] for point in points):
        keys.append(Key(text.plots.queueing, GRAY, "circle", hollow=True))
    return keys


def _pareto(points: Sequence[Point], style: dict[str, Style], text: Text, suffix: Iterable[str]) -> Figure:
    """Output throughput over E2E latency (TTFT where no E2E is known); up and to the left is better."""
    words = text.plots
    latency = next((name for name in words.pareto_x if any(p[name] is not None for p in points)), "ttft_ms_p95")
    known = [p for p in points if p[latency] is not None and p["output_tokens_per_s"] is not None]
    x = Axis(
        words.pareto_x[latency],
        *covering([p[latency] for p in known], log=True),
        label=short_label(numbers.latency),
        log=True,
    )
    y = Axis("", *covering([p["output_tokens_per_s"] for p in known]), label=short_label(numbers.rate))
    panel = Panel(x, y, title=f"{points[0]['workload']}: {words.pareto}")
    front = _front([(p[latency], p["output_tokens_per_s"]) for p in known])
    if len(front) > 1:
        panel.line(front, GRAY, dash="1 4", width=3)
    for arm, own in _by_arm(known):
        panel.line([(p[latency], p["output_tokens_per_s"]) for p in own], style[arm].color, faint=0.5)
    for point in known:
        at, own_style = (point[latency], point["output_tokens_per_s"]), style[point["arm"]]
        told = f"{numbers.rate(at[1])} tok/s, {words.pareto_x[latency]} {numbers.latency(at[0])}"
        tip = f"{point['arm']} {level_name(point)}: {told}"
        panel.dot(at, own_style.color, own_style.shape, tip, hollow=bool(point["queueing"]), link=address(point))
        panel.note(at, f"{level_value(point):g}")
    legend = _arm_keys(points, style, text)
    if len(front) > 1:
        legend.append(Key(words.pareto_front, GRAY, "line", "1 4"))
    return Figure(file_name("pareto", *suffix), f"{points[0]['workload']}: {words.pareto}", [panel], legend)


def _front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other beats in both: lower x and higher y."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front


# -- cold ------------------------------------------------------------------------------------------


def hit_rate_figure(source: Source, text: Text) -> Figure | None:
    """The rate of every attempt by every source, on a logarithmic scale with a place of its own for zero.

    None where no attempt was made.
    """
    words, style = text.plots, styles(source.arms)
    attempts = [(point, attempt) for point in source.points for attempt in point["attempt_history"]]
    if not attempts:
        return None
    y = Axis("", _NOT_TOLD - 0.5, 0.3, label=lambda v: _hit_label(v, words.not_told), ticks=range(-6, 1))
    x = Axis(
        words.hit_rate_x, -0.7, len(attempts) - 0.3, label=lambda v: f"{v + 1:.0f}", ticks=_places(len(attempts))
    )
    panel = Panel(x, y, height=150, title=words.hit_rates)
    limits = {run.guards["hit_rate_max"] for run in source.runs if run.guards.get("hit_rate_max")}
    for limit in limits:
        panel.level(_hit_place(limit), BLACK, words.hit_limit.format(limit=limit))
    for place, (point, attempt) in enumerate(attempts):
        rates = attempt["hit_rates"] or {"": None}
        for k, (origin, rate) in enumerate(rates.items()):
            at = (place + (k - (len(rates) - 1) / 2) * 0.3, _hit_place(rate))
            counts = attempt["verdict"] == "accept"
            shape = _SOURCE_SHAPES.get(origin, "down") if counts else "cross"
            told = words.not_told if rate is None else numbers.share(rate)
            tip = f"{point['name']}, {attempt['attempt']}: {text.hit_sources.get(origin, origin)} {told}"
            panel.dot(at, style[point["arm"]].color, shape, tip, hollow=rate is None, link=address(point))
    legend = [Key(arm, style[arm].color) for arm in source.arms]
    legend += [
        Key(text.hit_sources[name], GRAY, shape) for name, shape in _SOURCE_SHAPES.items() if _told(attempts, name)
    ]
    if any(attempt["verdict"] != "accept" for _, attempt in attempts):
        legend.append(Key(words.does_not_count, GRAY, "cross"))
    return Figure("hit_rates", words.hit_rates, [panel], legend)


def _told(attempts: Sequence[tuple[Point, dict[str, Any]]], origin: str) -> bool:
    return any(attempt["hit_rates"].get(origin) is not None for _, attempt in attempts)


def _hit_place(rate: float | None) -> float:
    if rate is None:
        return _NOT_TOLD
    return float(np.log10(max(rate, 1e-4))) if rate > 0 else _ZERO


def _hit_label(place: float, not_told: str) -> str:
    if place == _NOT_TOLD:
        return not_told
    return "0" if place == _ZERO else f"{10.0**place:g}"


def _places(count: int) -> list[float]:
    step = max(1, -(-count // 8))
    return [float(place) for place in range(0, count, step)]
