"""The summary: what `analysis.insights` computes, in words. Void points are in none of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from raybench.analysis.difference import value_of
from raybench.analysis.insights import Growth, Insights, Lead, Trend, insights
from raybench.analysis.points import IMPORTED, has_numbers
from raybench.report import numbers
from raybench.report.document import Block, Bullets, Item, Paragraph, Row, Table
from raybench.report.environment import simulation
from raybench.report.metric_words import shown
from raybench.report.points import Point, is_open_loop, level_name, workload_label
from raybench.report.source import Source
from raybench.report.text import Text
from raybench.scenario.levels import Level

#: Input throughput follows output throughput by the ratio of the lengths; it is told where there is no output.
_TOLD = ("output_tokens_per_s", "ttft_ms_p95", "tpot_ms_p95")


def counts_line(source: Source, text: Text) -> str:
    """`48 points: 44 accepted, ...`, and how a run ended that did not come to its end."""
    verdicts = [point["verdict"] for point in source.points]
    line = text.counts.format(
        total=len(verdicts),
        accepted=verdicts.count("accepted"),
        void=verdicts.count("void"),
        skipped=verdicts.count("skipped"),
        missing=verdicts.count(None),
    )
    if imported := verdicts.count(IMPORTED):
        line += f" {text.counts_imported.format(imported=imported)}"
    ended = [run.status for run in source.runs if run.status not in (None, "complete")]
    return " ".join([line, *(text.ended.format(status=status) for status in ended)])


def summary(source: Source, text: Text) -> list[Block]:
    """Counts, then who is ahead where and by how much, how throughput grows, what is tight."""
    blocks: list[Block] = [Paragraph(counts_line(source, text))]
    simulated = [
        f"{arm} ({text.simulated_value.format(**sim)})"
        for arm, facts in source.by_arm.items()
        if (sim := simulation(facts.settings))
    ]
    if simulated:
        blocks.append(Paragraph(text.simulated.format(arms=", ".join(simulated)), "warn"))
    blocks += [
        Paragraph(text.imported.format(run_id=run.run_id, source=run.imported.get("source")), "warn")
        for run in source.runs
        if run.imported
    ]
    if not any(has_numbers(point) for point in source.points):
        return [*blocks, Paragraph(text.nothing_valid)]
    # By name and shape, so that workloads of one name and two shapes are never compared.
    found = insights([point | {"workload": workload_label(point)} for point in source.points])
    leaders = leader_table(source, found, text)
    if leaders.rows:
        blocks.append(leaders)
    items = [
        Item(workload, tuple(lines))
        for workload, points in source.workloads.items()
        if (lines := [*_workload(workload, found, text), *_open_peak(points, text)])
    ]
    return [*blocks, Bullets((*items, *map(Item, _overall(source, found, text))))]


def leader_table(source: Source, found: Insights, text: Text) -> Table:
    """Who is ahead where, at a glance: a line a workload, a column a metric. Empty with a single arm."""
    rows = []
    for workload in source.workloads:
        throughput, *latencies = (_ahead(workload, metric, found, text) for metric in _TOLD)
        throughput = throughput or _ahead(workload, "input_tokens_per_s", found, text)
        if any((throughput, *latencies)):
            rows.append(Row((workload, *(cell or numbers.UNKNOWN for cell in (throughput, *latencies)))))
    return Table((text.ahead, text.throughput, *(text.metrics[metric] for metric in _TOLD[1:])), rows)


def _ahead(workload: str, metric: str, found: Insights, text: Text) -> str:
    """`TP2PP4 C=8/16, TP8 C=1, = C=32`."""
    parts = [
        f"{lead.arm} C={_levels([level.concurrency for level in lead.levels])}"
        for lead in found.leads
        if (lead.workload, lead.metric) == (workload, metric)
    ]
    parts += [f"≈ C={_levels(t.levels)}" for t in found.ties if (t.workload, t.metric) == (workload, metric)]
    return text.separator.join(parts)


def _workload(workload: str, found: Insights, text: Text) -> Iterator[str]:
    for peak in (peak for peak in found.peaks if peak.workload == workload):
        yield text.peak.format(
            metric=text.metrics[peak.metric],
            value=numbers.rate(peak.value),
            arm=peak.arm,
            level=Level(concurrency=peak.concurrency).label,
        )
    yield from (_metric(workload, metric, found, text) for metric in _metrics_told(workload, found))
    for trend in found.trends:
        if trend.workload == workload and trend.metric == "output_tokens_per_s":
            yield _growth(trend, text)
    for reach in (reach for reach in found.reaches if reach.workload == workload):
        yield text.reach.format(arm=reach.arm, others=", ".join(reach.others))


def _open_peak(points: Sequence[Point], text: Text) -> Iterator[str]:
    """The highest output throughput of the open loops of a workload; insights are of closed ones."""
    metric = "output_tokens_per_s"
    known = [p for p in points if is_open_loop(p) and value_of(p, metric) is not None]
    if known:
        best = max(known, key=lambda point: point[metric])
        yield text.peak.format(
            metric=text.metrics[metric],
            value=numbers.rate(best[metric]),
            arm=best["arm"],
            level=level_name(best),
        )


def _metrics_told(workload: str, found: Insights) -> list[str]:
    compared = {lead.metric for lead in found.leads if lead.workload == workload}
    compared |= {tie.metric for tie in found.ties if tie.workload == workload}
    told = [metric for metric in _TOLD if metric in compared]
    return told if "output_tokens_per_s" in told else [*sorted(compared & {"input_tokens_per_s"}), *told]


def _metric(workload: str, metric: str, found: Insights, text: Text) -> str:
    """`Output TPS: A ahead at C=1 by 3.0x (49.6 against 16.7); B ahead at C=8, 16, most at C=16 by ...`."""
    same = [lead for lead in found.leads if (lead.workload, lead.metric) == (workload, metric)]
    parts = [_lead(lead, text) for lead in same]
    parts += [
        text.tie_of_repeats.format(levels=_levels(tie.levels))
        if tie.floor_percent is None
        else text.tie.format(floor=tie.floor_percent, levels=_levels(tie.levels))
        for tie in found.ties
        if (tie.workload, tie.metric) == (workload, metric)
    ]
    parts += [
        text.crossover.format(**asdict(crossed))
        for crossed in found.crossovers
        if (crossed.workload, crossed.metric) == (workload, metric)
    ]
    return f"{text.metrics[metric]}: {text.separator.join(parts)}"


def _lead(lead: Lead, text: Text) -> str:
    most = lead.largest
    by = ""
    if most.advantage is not None:
        by = text.lead_by.format(
            advantage=numbers.times(most.advantage),
            ahead=shown(lead.metric, most.ahead),
            behind=shown(lead.metric, most.behind),
        )
    form = text.lead_one if len(lead.levels) == 1 else text.lead_many
    levels = _levels([level.concurrency for level in lead.levels])
    return form.format(arm=lead.arm, levels=levels, at=most.concurrency, by=by)


def _levels(levels: Sequence[int]) -> str:
    return "/".join(map(str, levels))


def _growth(trend: Trend, text: Text) -> str:
    growth = Growth(trend.growth)
    return text.growth[growth.value].format(
        arm=trend.arm,
        step=numbers.change(trend.step_percent),
        before_at=trend.before_at,
        last_at=trend.last_at,
        last=numbers.rate(trend.last),
        best=numbers.rate(trend.best),
        best_at=trend.best_at,
        plateau_from=trend.plateau_from,
    )


def _overall(source: Source, found: Insights, text: Text) -> Iterator[str]:
    names = {workload_label(point): point["workload"] for point in source.points}
    if found.queueing:
        points = [
            text.queueing_point.format(
                workload=names[point.workload],
                arm=point.arm,
                concurrency=point.concurrency,
                waiting=numbers.count(point.waiting),
            )
            for point in found.queueing
        ]
        yield text.queueing_points.format(points=", ".join(points))
    for gpu in found.tightest:
        yield text.tightest.format(
            arm=gpu.arm,
            host=gpu.host,
            gpu=gpu.gpu_uuid if gpu.gpu_index is None else gpu.gpu_index,
            headroom=numbers.memory(gpu.headroom_min_bytes),
            workload=names[gpu.workload],
            concurrency=gpu.concurrency,
        )
    valid = [point for point in source.points if has_numbers(point)]
    told = [point["preemptions"] for point in valid if point["preemptions"] is not None]
    yield text.steadiness.format(
        requests=numbers.count(sum(point["requests"] or 0 for point in valid)),
        failed=numbers.count(sum(point["requests_failed"] or 0 for point in valid)),
        preemptions=numbers.count(sum(told)) if told else numbers.UNKNOWN,
    )
