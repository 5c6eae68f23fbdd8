"""The plan as a user reads it before anything is sent: per arm its limits, its points, its skips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from raybench.report import numbers
from raybench.report.live import clock_text
from raybench.scenario.plan import Plan, Point
from raybench.scenario.schema import Limits

#: Fields of `Limits` in the line above an arm's points.
_LIMITS = {
    "max_running_requests": "max running requests",
    "kv_pool_tokens": "KV pool",
    "context_tokens": "context limit",
    "max_input_tokens": "input limit",
}


def print_plan(
    plan: Plan,
    limits: Mapping[str, Limits],
    corpus_need: Mapping[str, int],
    sends_s: Mapping[str, float | None],
    console: Console,
) -> None:
    """limits, corpus_need (tokens): by arm. sends_s: by point, how long an open loop sends, None = not known."""
    for arm, known in limits.items():
        points = [point for point in plan.points if point.arm == arm]
        console.print(f"[bold]{arm}[/bold]  {limits_line(known)}", highlight=False, soft_wrap=True)
        console.print(_table(points, sends_s))
        for point in points:
            if point.skip_reason is not None:
                console.print(
                    f"  skipped {point.workload} {point.level.label}: {point.skip_reason}", highlight=False
                )
        console.print(f"  corpus needed: {corpus_need[arm]:,} tokens\n", highlight=False)
    console.print(f"{len(plan.measured)} points to measure, {len(plan.skipped)} skipped", highlight=False)


def limits_line(limits: Limits) -> str:
    """`max running requests 48, KV pool 1,040,384, ...`; what is not known is said."""
    known = [
        f"{name} {value:,}" for field, name in _LIMITS.items() if (value := getattr(limits, field)) is not None
    ]
    return ", ".join(known) if known else "limits not known (`plan --ask` asks the engine)"


def _table(points: list[Point], sends_s: Mapping[str, float | None]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  workload", no_wrap=True)
    table.add_column("tokens", no_wrap=True)
    for name in ("level", "requests", "active limit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", no_wrap=True)
    for cells in rows(points, sends_s):
        table.add_row(*cells)
    return table


def rows(points: list[Point], sends_s: Mapping[str, float | None]) -> Iterator[tuple[str, ...]]:
    """One tuple of cells a point, skips included."""
    for point in points:
        shape = numbers.shape(point.input_tokens, point.output_tokens, longest=point.trace_speed is not None)
        requests = "-" if point.skip_reason is not None else str(point.requests)
        limit = "not known" if point.active_limit is None else str(point.active_limit)
        yield f"  {point.workload}", shape, level(point), requests, limit, note(point, sends_s.get(point.point_id))


def level(point: Point) -> str:
    return str(point.concurrency) if point.level.closed_loop else point.level.label


def note(point: Point, sends_s: float | None = None) -> str:
    """`queueing`, `skipped`, that it is not known, how long an open loop sends, or nothing."""
    if point.skip_reason is not None:
        return "skipped"
    if not point.level.closed_loop:
        return "sends for a time not known here" if sends_s is None else f"sends for {clock_text(sends_s)}"
    if point.queueing is None:
        return "queueing not known"
    return "queueing" if point.queueing else ""
