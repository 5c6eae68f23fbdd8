"""The figures of one point: its requests over time, in flight and GPU memory below them; its chunk gaps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from raybench.report import numbers
from raybench.report.chart import Axis, Box, Figure, Key, Panel, covering
from raybench.report.details import GAP_EDGES_MS, PointDetail, Timeline
from raybench.report.plots import BLACK, GRAY, file_name, short_label, styles
from raybench.report.points import Point
from raybench.report.text import Text

#: Of the phases of a request; its decode has the colour of the arm.
PHASE_COLORS = {"queue": "#cfd4d9", "first": "#868e96", "prefill": "#868e96", "failed": BLACK}
#: The engine's own counts beside what the client saw: (colour, dashes).
_ENGINE_LINES = {"running": (BLACK, "6 3"), "queued": (GRAY, "2 3")}


def point_figures(point: Point, detail: PointDetail, arms: Sequence[str], text: Text) -> list[Figure]:
    """Its requests over time with in flight and GPU memory below them, and its chunk gaps."""
    color = styles(arms)[point["arm"]].color
    end_s = max(detail.end_s, detail.in_flight.at_s[-1], 1e-6)
    panels = [_waterfall(point, detail, end_s, color, text), _in_flight(detail, end_s, color, text)]
    seen = {phase for row in detail.requests for phase, _, _ in phases(row)}
    colors = PHASE_COLORS | {"decode": color}
    legend = [Key(text.plots.phases[name], colors[name]) for name in colors if name in seen]
    legend.append(Key(text.plots.in_flight_client, color, "line"))
    for name, (own, dash) in _ENGINE_LINES.items():
        if getattr(detail, name) is not None:
            legend.append(Key(getattr(text.plots, name), own, "line", dash))
    if detail.gpu is not None:
        panels.append(_gpu_memory(detail.gpu, end_s, text))
    # Panels on one time line need its title once.
    panels[:-1] = [_untitled(panel) for panel in panels[:-1]]
    name = file_name(point["name"])
    figures = [Figure(f"{name}_requests", text.plots.waterfall.format(point=point["name"]), panels, legend)]
    gaps = _chunk_gaps(point, detail, color, text)
    if gaps is not None:
        figures.append(Figure(f"{name}_gaps", f"{point['name']}: {text.plots.chunk_gaps}", [gaps]))
    return figures


def _untitled(panel: Panel) -> Panel:
    panel.x = replace(panel.x, title="")
    return panel


def _seconds(end_s: float, text: Text) -> Axis:
    return Axis(text.plots.seconds, 0.0, end_s, label=lambda value: f"{value:g}")


def phases(row: dict[str, Any]) -> list[tuple[str, float, float]]:
    """(phase, from, to) of one request, in seconds. What the engine does not tell is not taken apart."""
    if row["outcome"] != "ok":
        return [("failed", row["sent_s"], row["end_s"])]
    parts = []
    first, queue = row["first_s"] if row["first_s"] is not None else row["end_s"], row["queue_s"]
    if queue is not None and row["sent_s"] <= queue <= first:
        parts += [("queue", row["sent_s"], queue), ("prefill", queue, first)]
    else:
        parts.append(("first", row["sent_s"], first))
    return [*parts, ("decode", first, row["last_s"] if row["last_s"] is not None else row["end_s"])]


def _waterfall(point: Point, detail: PointDetail, end_s: float, color: str, text: Text) -> Panel:
    rows = detail.requests
    shown = text.plots.thinned.format(shown=len(rows), total=numbers.count(detail.total))
    panel = Panel(
        _seconds(end_s, text),
        Axis(shown, 0.0, float(max(len(rows), 1)), label=lambda value: f"{value:g}", falls=True),
        height=200,
        title=text.plots.waterfall.format(point=point["name"]),
    )
    gap = 0.1 if len(rows) <= 64 else 0.0
    for place, row in enumerate(rows):
        tip = (
            f"{row['ticket']}: TTFT {numbers.latency(row['ttft_ms'])}, TPOT {numbers.per_token(row['tpot_ms'])},"
            f" E2E {numbers.latency(row['e2e_ms'])}"
        )
        own = [
            Box(start, end, place + gap, place + 1 - gap, PHASE_COLORS.get(phase, color))
            for phase, start, end in phases(row)
            if end > start
        ]
        panel.boxes(own, tip)
    return panel


def _in_flight(detail: PointDetail, end_s: float, color: str, text: Text) -> Panel:
    lines = [line for line in (detail.in_flight, detail.running, detail.queued) if line is not None]
    top = covering([value for line in lines for value in line.high])[1]
    panel = Panel(
        _seconds(end_s, text),
        Axis("", 0.0, top, label=lambda value: f"{value:g}"),
        height=90,
        title=text.plots.in_flight,
    )
    _steps(panel, detail.in_flight, color)
    for name, (own, dash) in _ENGINE_LINES.items():
        line: Timeline | None = getattr(detail, name)
        if line is not None:
            panel.line(list(zip(line.at_s, line.high, strict=True)), own, dash=dash)
    return panel


def _steps(panel: Panel, line: Timeline, color: str) -> None:
    high = list(zip(line.at_s, line.high, strict=True))
    low = list(zip(line.at_s, line.low, strict=True))
    if low != high:
        panel.band(low, high, color)
    panel.steps(high, color)


def _gpu_memory(line: Timeline, end_s: float, text: Text) -> Panel:
    """Memory in use of the fullest and the emptiest device, in GiB, not from zero: it is the change that tells."""
    gib = [[value / numbers.GIB for value in values] for values in (line.low, line.high)]
    low, high = covering([*gib[0], *gib[1]], from_zero=False)
    panel = Panel(
        _seconds(end_s, text),
        Axis(f"{text.plots.highest_gpu} / {text.plots.lowest_gpu}", low - (high - low) * 0.06, high, label=_gib),
        height=90,
        title=text.plots.gpu_memory,
    )
    lows, highs = (list(zip(line.at_s, values, strict=True)) for values in gib)
    panel.band(lows, highs, BLACK)
    panel.line(highs, BLACK, width=1.6)
    panel.line(lows, BLACK, width=1.2, dash="2 3")
    return panel


def _gib(value: float) -> str:
    return f"{value:.4g} GiB"


def _chunk_gaps(point: Point, detail: PointDetail, color: str, text: Text) -> Panel | None:
    """How many gaps are how long, both on a logarithmic scale: a stall is one gap among thousands."""
    filled = np.flatnonzero(detail.gap_counts)
    if not filled.size:
        return None
    first, last = int(filled[0]), int(filled[-1])
    x_title = text.plots.chunk_gap_x.format(tokens=numbers.fixed(point["tokens_per_chunk"], 2))
    low, high = float(GAP_EDGES_MS[first]), float(GAP_EDGES_MS[last + 1])
    x = Axis(x_title, low, high, label=short_label(numbers.latency), log=True)
    top = float(detail.gap_counts.max()) * 1.5
    panel = Panel(
        x,
        Axis(text.plots.chunk_gap_y, 0.5, top, label=lambda value: f"{value:,.0f}", log=True),
        height=150,
        title=f"{point['name']}: {text.plots.chunk_gaps}",
    )
    for k in range(first, last + 1):
        if count := int(detail.gap_counts[k]):
            left, right = float(GAP_EDGES_MS[k]), float(GAP_EDGES_MS[k + 1])
            tip = f"{numbers.latency(left)} .. {numbers.latency(right)}: {count:,}"
            panel.boxes([Box(left, right, 0.5, count, color)], tip)
    return panel
