"""Which figures a report has, and how: throughput and latencies over the level, throughput against latency,
and the proof of cold caches. Pure. Those of one point are in `point_plots`.

An arm has one colour and one marker everywhere. Both tell it, so that no figure needs colours to be read;
the colours are those of Okabe and Ito, which keep apart in every kind of colour vision. Void points are in
no figure that compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

#: Percentiles of a latency over the level, each with the dashes of its line.
_PERCENTILES = {"p50": "2 3", "p95": "", "p99": "7 4"}

#: Where a hit rate stands that is zero, and one that nobody told; others stand at their power of ten.
_ZERO, _NOT_TOLD = -5.0, -6.0
_SOURCE_SHAPES = {"requests": "circle", "counters": "triangle", "log": "diamond"}


#: A number as people read it.
Label = Callable[[float | None], str]


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
            figures += _OverLevel(by_level(own, source.arms), styles(source.arms), text).figures()
    return figures


@dataclass(frozen=True)
class _OverLevel:
    """Valid points of one workload whose levels share an axis, by level, and how each arm is drawn."""

    points: Sequence[Point]
    style: dict[str, Style]
    text: Text

    @property
    def _workload(self) -> str:
        return str(self.points[0]["workload"])

    def figures(self) -> list[Figure]:
        """Those that show anything."""
        throughput = self.text.plots.output_throughput
        figures = [
            self._figure("throughput", throughput, {"output_tokens_per_s": ""}, numbers.rate, log=False),
            self._latency("ttft", numbers.latency),
            self._latency("tpot", numbers.per_token),
            self._pareto(),
        ]
        return [figure for figure in figures if any(panel.marks for panel in figure.panels)]

    def _latency(self, metric: str, label: Label) -> Figure:
        drawn = {f"{metric}_ms_{part}": dash for part, dash in _PERCENTILES.items()}
        legend = [
            Key(part.upper(), GRAY, "line", dash)
            for part, dash in _PERCENTILES.items()
            if any(point[f"{metric}_ms_{part}"] is not None for point in self.points)
        ]
        return self._figure(metric, metric.upper(), drawn, label, legend, log=True)

    def _figure(
        self,
        name: str,
        title: str,
        metrics: dict[str, str],
        label: Label,
        legend: Sequence[Key] = (),
        *,
        log: bool,
    ) -> Figure:
        """metrics: columns to draw, each with the dashes of its line; the solid one has the markers."""
        levels = sorted({level_value(point) for point in self.points})
        values = [point[metric] for point in self.points for metric in metrics if point[metric] is not None]
        words = self.text.plots
        x_title = (words.level, words.rate, words.trace_speed)[level_kind(self.points[0])]
        x = Axis(x_title, *covering(levels, log=True), label=lambda value: f"{value:g}", log=True, ticks=levels)
        y = Axis("", *covering(values, log=log), label=short_label(label), log=log)
        panel = Panel(x, y, title=f"{self._workload}: {title}")
        for arm, own in _by_arm(self.points):
            for metric, dash in metrics.items():
                known = [(level_value(p), p[metric]) for p in own if p[metric] is not None]
                color = self.style[arm].color
                panel.line(known, color, dash=dash, width=1.3 if dash else 2, faint=0.8 if dash else 1)
        (solid,) = (metric for metric, dash in metrics.items() if not dash)
        for point in self.points:
            if point[solid] is not None:
                self._measured(panel, point, solid, label)
        return self._named(name, title, panel, legend)

    def _measured(self, panel: Panel, point: Point, metric: str, label: Label) -> None:
        """A point's value, with its interval where n allows one."""
        told = f"{label(point[metric])} (n={point['ttft_ms_n']})"
        if (found := interval_of(point, metric)) is not None:
            told += f", 95 %: {label(found.low)} .. {label(found.high)}"
            panel.whisker(level_value(point), found.low, found.high, self.style[point["arm"]].color)
        self._dot(panel, point, (level_value(point), point[metric]), told)

    def _dot(self, panel: Panel, point: Point, at: tuple[float, float], told: str) -> None:
        style, tip = self.style[point["arm"]], f"{point['arm']} {level_name(point)}: {told}"
        panel.dot(at, style.color, style.shape, tip, hollow=bool(point["queueing"]), link=address(point))

    def _named(self, name: str, title: str, panel: Panel, legend: Sequence[Key]) -> Figure:
        suffix = ((), ("rate",), ("trace",))[level_kind(self.points[0])]
        keys = [*self._arm_keys(), *legend]
        return Figure(file_name(name, self._workload, *suffix), f"{self._workload}: {title}", [panel], keys)

    def _arm_keys(self) -> Iterator[Key]:
        shown = {point["arm"] for point in self.points}
        yield from (Key(arm, own.color, own.shape) for arm, own in self.style.items() if arm in shown)
        if any(point["queueing"] for point in self.points):
            yield Key(self.text.plots.queueing, GRAY, "circle", hollow=True)

    def _pareto(self) -> Figure:
        """Output throughput over E2E latency (TTFT where no E2E is known); up and to the left is better."""
        words = self.text.plots
        told_of = (name for name in words.pareto_x if any(point[name] is not None for point in self.points))
        latency = next(told_of, "ttft_ms_p95")
        known = [p for p in self.points if p[latency] is not None and p["output_tokens_per_s"] is not None]
        x_range = covering([point[latency] for point in known], log=True)
        x = Axis(words.pareto_x[latency], *x_range, label=short_label(numbers.latency), log=True)
        y_range = covering([point["output_tokens_per_s"] for point in known])
        y = Axis("", *y_range, label=short_label(numbers.rate))
        panel = Panel(x, y, title=f"{self._workload}: {words.pareto}")
        front = _front([(point[latency], point["output_tokens_per_s"]) for point in known])
        if len(front) > 1:
            panel.line(front, GRAY, dash="1 4", width=3)
        for arm, own in _by_arm(known):
            places = [(point[latency], point["output_tokens_per_s"]) for point in own]
            panel.line(places, self.style[arm].color, faint=0.5)
        for point in known:
            at = (point[latency], point["output_tokens_per_s"])
            told = f"{numbers.rate(at[1])} tok/s, {words.pareto_x[latency]} {numbers.latency(at[0])}"
            self._dot(panel, point, at, told)
            panel.note(at, f"{level_value(point):g}")
        legend = [Key(words.pareto_front, GRAY, "line", "1 4")] if len(front) > 1 else []
        return self._named("pareto", words.pareto, panel, legend)


def short_label(label: Label) -> Callable[[float], str]:
    """A label without the zeros behind the point: `5 s`, `100 ms`, `200`."""

    def short(value: float) -> str:
        told = label(value)
        head, _, unit = told.partition(" ")
        return f"{head.rstrip('0').rstrip('.') if '.' in head else head} {unit}".strip()

    return short


def _by_arm(points: Sequence[Point]) -> Iterator[tuple[str, list[Point]]]:
    for arm in dict.fromkeys(point["arm"] for point in points):
        yield arm, [point for point in points if point["arm"] == arm]


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
