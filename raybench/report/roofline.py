"""Rooflines for a terminal of 80 columns: one table of hosts, and what the numbers mean."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from raybench.records.roofline import Roofline, Step
from raybench.records.strict_json import to_json
from raybench.report.document import Row, Table
from raybench.report.terminal import print_blocks

LOWER_BOUND = "lower bounds: the null servers ran on the same cores (their share of all of them: {share})"


def step_line(host: str, step: Step) -> str:
    """`host: 1,024 streams, 50,900 tokens/s, TTFT error P99 2.1 ms: carried`."""
    rate = "-" if step.tokens_per_s is None else f"{step.tokens_per_s:,.0f}"
    end = "carried" if step.limited_by is None else f"not carried ({step.limited_by})"
    return (
        f"{host}: {step.streams:,} streams, {rate} tokens/s, TTFT error P99 {_ms(step.ttft_error_ms_p99)} ms,"
        f" all stamps {_ms(step.stamp_error_ms_p99)} ms: {end}"
    )


def print_step(host: str, step: Step, console: Console) -> None:
    console.print(step_line(host, step), style="dim", soft_wrap=True)


def print_rooflines(rooflines: Sequence[Roofline], console: Console, *, as_json: bool) -> None:
    """One line a host and number: what was carried, with the errors at that load, and what stopped it.

    As JSON: one object on stdout, all steps by host.
    """
    if as_json:
        print(to_json({one.host: one.as_record() for one in rooflines}, indent=2))
        return
    if not rooflines:
        return
    columns = ("host", "carries", "TTFT err P50", "P99", "gap P99", "workers", "limited by")
    lines = [Row(cells) for roofline in rooflines for cells in rows(roofline)]
    print_blocks([Table(columns, lines, right=frozenset(range(1, 6)))], console)
    for roofline in rooflines:
        shares = [step.servers_node_share for step in roofline.steps if step.servers_node_share is not None]
        share = f"up to {max(shares):.0%}" if shares else "not known"
        limit = f"{roofline.cores} cores, client {roofline.client}, errors in ms, stamp error limit"
        limit += f" {roofline.stamp_error_ms_max:g} at P99"
        line = f"{roofline.host}: {limit}; {LOWER_BOUND.format(share=share)}"
        console.print(line, style="dim", soft_wrap=True)
        if roofline.disturbed:
            text = (
                f"warning: other work on {roofline.host} took up to {roofline.others_node_share:.0%} of its CPU:"
            )
            text += " the numbers are too low, and void no point; measure again when it is quiet"
            console.print(text, style="yellow", soft_wrap=True)


def rows(roofline: Roofline) -> list[tuple[str, ...]]:
    """Cells of a host's two lines; errors, in ms, are those of the largest step that was carried."""
    streams = "none" if roofline.streams is None else f"{roofline.streams:,} streams"
    tokens = "none" if roofline.tokens_per_s is None else f"{roofline.tokens_per_s:,.0f} tok/s"
    lines = (
        ("streams", roofline.host, streams, roofline.streams_limited_by),
        ("tokens_per_s", "", tokens, roofline.tokens_limited_by),
    )
    return [(host, carries, *_errors(roofline.best(kind)), by) for kind, host, carries, by in lines]


def _errors(step: Step | None) -> tuple[str, ...]:
    if step is None:
        return "-", "-", "-", "-"
    errors = (step.ttft_error_ms_p50, step.ttft_error_ms_p99, step.gap_error_ms_p99)
    return (*map(_ms, errors), str(step.workers))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
