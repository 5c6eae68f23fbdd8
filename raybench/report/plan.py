"""The plan as a user reads it before anything is sent: per arm its limits, its points, its skips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raybench.records.roofline import Roofline
from raybench.report import numbers
from raybench.report.searches import question
from raybench.report.text import ENGLISH
from raybench.scenario.plan import Plan, PlannedSearch, Point
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
        console.print(Text.assemble((arm, "bold"), f"  {limits_line(known)}"), soft_wrap=True)
        searches = [search for search in plan.searches if search.arm == arm]
        console.print(_table(points, searches, sends_s))
        for point in points:
            if point.skip_reason is not None:
                console.print(f"  skipped {point.workload} {point.level.label}: {point.skip_reason}")
        for search in searches:
            for line in search_lines(search):
                console.print(f"  {line}")
        console.print(f"  corpus needed: {corpus_need[arm]:,} tokens\n")
    console.print(closing(plan))


def closing(plan: Plan) -> str:
    """`3 points to measure, 1 skipped, 2 searches of about 14 points`."""
    text = f"{len(plan.measured)} points to measure, {len(plan.skipped)} skipped"
    if not plan.searches:
        return text
    probes = sum(search.probes for search in plan.searches)
    return f"{text}, {len(plan.searches)} searches of at most about {probes} points"


def print_clients(rooflines: Mapping[str, Roofline], warnings: Mapping[str, list[str]], console: Console) -> None:
    """What the client hosts can carry, and which points are too much. warnings: by point id."""
    if not rooflines:
        text = "clients: no roofline is stored; `raybench roofline` measures what they can carry"
        console.print(text, soft_wrap=True)
    for roofline in rooflines.values():
        console.print(f"client {roofline.host}: {roofline.told()}", soft_wrap=True)
    for point_id, texts in warnings.items():
        for text in texts:
            line = f"warning: {point_id}: {text}"
            console.print(line, style="yellow", soft_wrap=True)


def limits_line(limits: Limits) -> str:
    """`max running requests 48, KV pool 1,040,384, ...`; what is not known is said."""
    known = [
        f"{name} {value:,}" for field, name in _LIMITS.items() if (value := getattr(limits, field)) is not None
    ]
    return ", ".join(known) if known else "limits not known (`plan --ask` asks the engine)"


def _table(points: list[Point], searches: list[PlannedSearch], sends_s: Mapping[str, float | None]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  workload", no_wrap=True)
    table.add_column("tokens", no_wrap=True)
    for name in ("level", "requests", "active limit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", no_wrap=True)
    for cells in (*rows(points, sends_s), *map(search_row, searches)):
        table.add_row(*cells)
    return table


def search_row(search: PlannedSearch) -> tuple[str, ...]:
    """The cells of a search: the ranges of its levels and requests."""
    low, high = search.lowest, search.highest
    shape = numbers.shape(low.input_tokens, low.output_tokens, longest=False)
    limit = "not known" if low.active_limit is None else str(low.active_limit)
    if low.skip_reason is not None:
        return f"  {search.workload}", shape, level(low), "-", limit, "skipped"
    requests = str(low.requests) if low.requests == high.requests else f"{low.requests}..{high.requests}"
    return f"  {search.workload}", shape, f"{low.level.value:g}..{level(high)}", requests, limit, "search"


def search_lines(planned: PlannedSearch) -> Iterator[str]:
    """What is searched, in how many points, and what bounds it."""
    search, low = planned.search, planned.lowest
    if low.skip_reason is not None:
        yield f"skipped {planned.workload} {low.level.label}: {low.skip_reason}"
        return
    most = f"about {planned.probes} points at most (never more than {search.probes_max})"
    yield f"search {planned.workload}: {question(search, ENGLISH)}; to within {search.resolution:.0%}, {most}"
    if planned.bounded_by is not None:
        yield f"search {planned.workload}: up to {planned.highest.level.label} only: {planned.bounded_by}"


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
        return "sends for a time not known here" if sends_s is None else f"sends for {numbers.clock(sends_s)}"
    if point.queueing is None:
        return "queueing not known"
    return "queueing" if point.queueing else ""
