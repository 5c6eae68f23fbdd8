"""The plan as a user reads it before anything is sent: per arm its limits, its points, its skips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from raybench.records.roofline import Roofline
from raybench.report import numbers
from raybench.scenario.plan import Plan, Point
from raybench.scenario.schema import Limits

#: Fields of `Limits` in the line above an arm's points.
_LIMITS = {
    "max_running_requests": "max running requests",
    "kv_pool_tokens": "KV pool",
    "context_tokens": "context limit",
    "max_input_tokens": "input limit",
}


def print_plan(plan: Plan, limits: Mapping[str, Limits], corpus_need: Mapping[str, int], console: Console) -> None:
    """limits, corpus_need (tokens): by arm."""
    for arm, known in limits.items():
        points = [point for point in plan.points if point.arm == arm]
        console.print(f"[bold]{arm}[/bold]  {limits_line(known)}", highlight=False, soft_wrap=True)
        console.print(_table(points))
        for point in points:
            if point.skip_reason is not None:
                console.print(
                    f"  skipped {point.workload} C={point.concurrency}: {point.skip_reason}", highlight=False
                )
        console.print(f"  corpus needed: {corpus_need[arm]:,} tokens\n", highlight=False)
    console.print(f"{len(plan.measured)} points to measure, {len(plan.skipped)} skipped", highlight=False)


def print_clients(rooflines: Mapping[str, Roofline], warnings: Mapping[str, list[str]], console: Console) -> None:
    """What the client hosts can carry, and which points are too much. warnings: by point id."""
    if not rooflines:
        text = "clients: no roofline is stored; `raybench roofline` measures what they can carry"
        console.print(text, highlight=False, soft_wrap=True)
    for roofline in rooflines.values():
        console.print(f"client {roofline.host}: {roofline.told()}", highlight=False, markup=False, soft_wrap=True)
    for point_id, texts in warnings.items():
        for text in texts:
            line = f"warning: {point_id}: {text}"
            console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)


def limits_line(limits: Limits) -> str:
    """`max running requests 48, KV pool 1,040,384, ...`; what is not known is said."""
    known = [
        f"{name} {value:,}" for field, name in _LIMITS.items() if (value := getattr(limits, field)) is not None
    ]
    return ", ".join(known) if known else "limits not known (`plan --ask` asks the engine)"


def _table(points: list[Point]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  workload", no_wrap=True)
    table.add_column("tokens", no_wrap=True)
    for name in ("C", "requests", "active limit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", no_wrap=True)
    for cells in rows(points):
        table.add_row(*cells)
    return table


def rows(points: list[Point]) -> Iterator[tuple[str, ...]]:
    """One tuple of cells a point, skips included."""
    for point in points:
        shape = f"{numbers.tokens(point.input_tokens)} -> {numbers.tokens(point.output_tokens)}"
        requests = "-" if point.skip_reason is not None else str(point.requests)
        limit = "not known" if point.active_limit is None else str(point.active_limit)
        yield f"  {point.workload}", shape, str(point.concurrency), requests, limit, note(point)


def note(point: Point) -> str:
    """`queueing`, `skipped`, that it is not known, or nothing."""
    if point.skip_reason is not None:
        return "skipped"
    if point.queueing is None:
        return "queueing not known"
    return "queueing" if point.queueing else ""
