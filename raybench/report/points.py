"""How a report names what a point is: its level, its shape. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raybench.report import numbers
from raybench.scenario.levels import Level

Point = dict[str, Any]

QUEUEING_MARK = "†"


def shape(point: Point) -> str:
    """`16k -> 512`; `≤ 16k -> 512` of a trace, whose requests differ."""
    longest = point.get("trace_speed") is not None
    return numbers.shape(point["input_tokens"], point["output_tokens"], longest=longest)


def workload_label(point: Point) -> str:
    """`16k-512 (16k -> 512)`: name and shape, since two runs may give one name two shapes."""
    return f"{point['workload']} ({shape(point)})"


def level_kind(point: Point) -> int:
    """Levels of one kind can stand on one axis: concurrencies, rates, or speeds of a trace."""
    return Level.of_row(point).sort_key[0]


def is_open_loop(point: Point) -> bool:
    return not Level.of_row(point).closed_loop


def level(point: Point) -> str:
    """`64`, `64 †` where it queues, `8 req/s`, `trace x2`."""
    own = Level.of_row(point)
    return _marked(str(own.concurrency) if own.closed_loop else own.label, point)


def level_name(point: Point) -> str:
    """The level in a sentence: `C=64`, `8 req/s`."""
    return _marked(Level.of_row(point).label, point)


def _marked(text: str, point: Point) -> str:
    return f"{text} {QUEUEING_MARK}" if point["queueing"] and point["verdict"] != "skipped" else text


def level_value(point: Point) -> float:
    """The one number of the level, whatever it counts."""
    return Level.of_row(point).value


def by_level(points: Sequence[Point], arms: Sequence[str]) -> list[Point]:
    """Points of one workload by level, the arms of one level together; closed loops before open ones."""
    return sorted(points, key=lambda point: (Level.of_row(point).sort_key, arms.index(point["arm"])))
