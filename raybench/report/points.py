"""How a report names what a point is: its level, its shape, its verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raybench.report import numbers

Point = dict[str, Any]

QUEUEING_MARK = "†"


def is_boundary(point: Point) -> bool:
    """One output token: the row proves capacity and prefill, and has no TPOT."""
    return bool(point["output_tokens"] == 1)


def shape(point: Point) -> str:
    """`16k -> 512`."""
    return f"{numbers.tokens(point['input_tokens'])} -> {numbers.tokens(point['output_tokens'])}"


def workload_label(point: Point) -> str:
    """`16k-512 (16k -> 512)`: name and shape, since two runs may give one name two shapes."""
    return f"{point['workload']} ({shape(point)})"


def level_value(point: Point) -> float | None:
    """The concurrency of a closed loop, or the requests per second of an open one."""
    rate = point.get("rate_per_s")
    return rate if point.get("concurrency") is None else float(point["concurrency"])


def is_open_loop(point: Point) -> bool:
    return point.get("concurrency") is None and point.get("rate_per_s") is not None


def level(point: Point) -> str:
    """`64`, `64 †` for a queueing point, `12.5/s` for an open loop."""
    value = level_value(point)
    if value is None:
        return numbers.UNKNOWN
    text = f"{value:g}/s" if is_open_loop(point) else f"{point['concurrency']}"
    return f"{text} {QUEUEING_MARK}" if point["queueing"] and point["verdict"] != "skipped" else text


def level_name(point: Point) -> str:
    """The level in a sentence: `C=64`, `12.5/s`."""
    return level(point) if is_open_loop(point) else f"C={level(point)}"


def by_level(points: Sequence[Point], arms: Sequence[str]) -> list[Point]:
    """Points of one workload by level, the arms of one level together; closed loops before open ones."""
    return sorted(points, key=lambda p: (is_open_loop(p), level_value(p) or 0.0, arms.index(p["arm"])))
