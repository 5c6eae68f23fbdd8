"""The progress display of a run: rich on a terminal, plain lines elsewhere.

Takes the snapshots that the coordinator makes (plain dicts, as they come through a job's log). Runs
where the user looks: in `raybench submit`, or in `raybench run` on a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from raybench.report.numbers import clock

Snapshot = Mapping[str, Any]

#: Without a terminal, a step that goes on is told again only after this many snapshots.
PLAIN_EVERY = 20

MARKS = {"accepted": ("ok", "green"), "void": ("VOID", "bold red"), "skipped": ("skipped", "yellow")}


class LiveDisplay:
    """`with LiveDisplay(console) as display: display.show(snapshot)`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._told = 0
        self._last_step: tuple[object, ...] = ()
        self._since_told = 0

    def __enter__(self) -> LiveDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Draw one snapshot; points that have a verdict since the last one are printed for good."""
        for point_id, verdict in list(snapshot["last_verdicts"])[self._told :]:
            mark, style = MARKS.get(verdict, (verdict, ""))
            line = Text(f"{mark:>7}", style=style).append(f"  {point_id}", style="default")
            self._console.print(line, soft_wrap=True)
            self._told += 1
        if self._live is not None:
            self._live.update(panel(snapshot))
        else:
            self._tell_plainly(snapshot)

    def note(self, text: str) -> None:
        """A line of the job's own output."""
        self._console.print(text, style="dim", soft_wrap=True)

    def _tell_plainly(self, snapshot: Snapshot) -> None:
        step = (snapshot["point_id"] or snapshot["arm"], snapshot["attempt"], snapshot["step"])
        self._since_told += 1
        if step == self._last_step and self._since_told < PLAIN_EVERY:
            return
        self._last_step, self._since_told = step, 0
        self._console.print(plain_line(snapshot), soft_wrap=True)


def plain_line(snapshot: Snapshot) -> str:
    """`[3/11] tp2pp4/16k/c64 attempt 1: load, 64 in flight, 70/128 done, 211 tok/s, 2:10 left`."""
    where = snapshot["point_id"] or snapshot["arm"] or "run"
    attempt = f" attempt {snapshot['attempt']}" if snapshot["attempt"] else ""
    text = f"[{snapshot['points_done']}/{snapshot['points_total']}] {where}{attempt}: {snapshot['step']}"
    if snapshot["requests"]:
        text += (
            f", {snapshot['in_flight']} in flight, {snapshot['completed']}/{snapshot['requests']} done,"
            f" {snapshot['output_tokens_per_s']:,.0f} tok/s"
        )
        if snapshot["left_s"] is not None:
            text += f", {clock(snapshot['left_s'])} left"
    return f"{text} (search: {snapshot['search']})" if snapshot["search"] else text


def panel(snapshot: Snapshot) -> Group:
    """Two lines and a bar that fit 80 columns."""
    head = Table.grid(expand=True)
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    where = Text(str(snapshot["point_id"] or snapshot["arm"] or "starting"), style="bold")
    if snapshot["attempt"] > 1:
        where.append(f"  attempt {snapshot['attempt']}", style="yellow")
    where.append(f"  {snapshot['step']}", style="cyan")
    number = min(snapshot["points_done"] + 1, snapshot["points_total"])
    head.add_row(where, snapshot["search"] or f"point {number} of {snapshot['points_total']}")
    numbers = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(4):
        numbers.add_column(no_wrap=True)
    left = "" if snapshot["left_s"] is None else f"{clock(snapshot['left_s'])} left"
    numbers.add_row(
        f"{snapshot['in_flight']} in flight",
        f"{snapshot['completed']}/{snapshot['requests']} done",
        f"{snapshot['output_tokens_per_s']:,.0f} tok/s",
        left,
    )
    bar = ProgressBar(total=max(snapshot["requests"], 1), completed=snapshot["completed"])
    return Group(head, numbers, bar)
