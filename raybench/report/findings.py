"""The summary: what `analysis.insights` computes, in words. Void points are in none of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from raybench.analysis.difference import NOISE_FLOOR_PERCENT, value_of
from raybench.analysis.insights import Insights, Lead, Tie, Trend, insights
from raybench.analysis.points import IMPORTED, has_numbers
from raybench.report import numbers
from raybench.report.document import Block, Bullets, Item, Paragraph, Row, Table
from raybench.report.environment import simulation
from raybench.report.metric_words import label, shown
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
    told = _Told(source, found, text)
    if told.sequential:
        blocks.append(Paragraph(text.sequential))
    leaders = told.leaders()
    if leaders.rows:
        blocks.append(leaders)
    items = [
        Item(workload, tuple(lines))
        for workload, points in source.workloads.items()
        if (lines := [*told.workload(workload), *_open_peak(points, text)])
    ]
    return [*blocks, Bullets((*items, *map(Item, told.overall())))]


@dataclass(frozen=True)
class _Told:
    """Insights in the words of one language."""

    source: Source
    found: Insights
    text: Text

    @property
    def sequential(self) -> bool:
        """Whether every point is of one request at a time: then no sentence names the level."""
        return all(point["concurrency"] == 1 for point in self.source.points)

    def leaders(self) -> Table:
        """Who is ahead where, at a glance: a line a workload, a column a metric. Empty with a single arm."""
        rows = []
        for workload in self.source.workloads:
            throughput, *latencies = (self._ahead(workload, metric) for metric in _TOLD)
            throughput = throughput or self._ahead(workload, "input_tokens_per_s")
            if any((throughput, *latencies)):
                rows.append(Row((workload, *(cell or numbers.UNKNOWN for cell in (throughput, *latencies)))))
        return Table((self.text.ahead, self.text.throughput, *map(label, _TOLD[1:])), rows)

    def _ahead(self, workload: str, metric: str) -> str:
        """`TP2PP4 C=8/16; TP8 C=1; ≈ C=32`; of several arms that are ahead together `A ≈ B C=8`."""
        parts: list[tuple[str, Sequence[int]]] = [
            *((lead.arm, [level.concurrency for level in lead.levels]) for lead in self._leads(workload, metric)),
            *((self._together(tie), tie.levels) for tie in self._ties(workload, metric)),
        ]
        told = (who if self.sequential else f"{who} C={_joined(levels)}" for who, levels in parts)
        return self.text.separator.join(told)

    def _together(self, tie: Tie) -> str:
        """Names where there are others, or where there is no level to tell of."""
        return " ≈ ".join(tie.arms) if self.sequential or not tie.all_arms else "≈"

    def _leads(self, workload: str, metric: str) -> list[Lead]:
        return [lead for lead in self.found.leads if (lead.workload, lead.metric) == (workload, metric)]

    def _ties(self, workload: str, metric: str) -> list[Tie]:
        return [tie for tie in self.found.ties if (tie.workload, tie.metric) == (workload, metric)]

    def workload(self, workload: str) -> Iterator[str]:
        """The highest throughput, each metric, how throughput grows, and what only one arm could do."""
        for peak in (peak for peak in self.found.peaks if peak.workload == workload):
            yield self.text.peak.format(
                metric=label(peak.metric),
                value=numbers.rate(peak.value),
                point=self._place(peak.arm, peak.concurrency),
            )
        yield from (self._metric(workload, metric) for metric in self._metrics_told(workload))
        for trend in self.found.trends:
            if trend.workload == workload:
                yield _growth(trend, self.text)
        for reach in (reach for reach in self.found.reaches if reach.workload == workload):
            yield self.text.reach.format(arm=reach.arm, others=", ".join(reach.others))

    def _place(self, name: str, concurrency: int) -> str:
        """`TP8, C=64`."""
        level = Level(concurrency=concurrency).label
        return name if self.sequential else self.text.place.format(name=name, level=level)

    def _metrics_told(self, workload: str) -> list[str]:
        def is_told(metric: str) -> bool:
            return bool(self._leads(workload, metric) or self._ties(workload, metric))

        output, *latencies = _TOLD
        throughput = [metric for metric in (output, "input_tokens_per_s") if is_told(metric)][:1]
        return throughput + [metric for metric in latencies if is_told(metric)]

    def _metric(self, workload: str, metric: str) -> str:
        """`Output TPS: A ahead at C=1 by 3.0x (49.6 against 16.7); B ahead at C=8/16, most at C=16 by ...`."""
        parts = [self._lead(lead) for lead in self._leads(workload, metric)]
        parts += [self._tie(tie) for tie in self._ties(workload, metric)]
        parts += [
            self.text.crossover.format(**asdict(crossed))
            for crossed in self.found.crossovers
            if (crossed.workload, crossed.metric) == (workload, metric)
        ]
        return f"{label(metric)}: {self.text.separator.join(parts)}"

    def _at(self, levels: Sequence[int]) -> str:
        return "" if self.sequential else self.text.at.format(levels=_joined(levels))

    def _lead(self, lead: Lead) -> str:
        most = lead.largest
        by = ""
        if most.advantage is not None:
            form = self.text.lead_by if len(self.source.arms) < 3 else self.text.lead_by_next
            by = form.format(
                advantage=numbers.times(most.advantage),
                ahead=shown(lead.metric, most.ahead),
                behind=shown(lead.metric, most.behind),
                other=most.other,
            )
        at = self._at([level.concurrency for level in lead.levels])
        if len(lead.levels) == 1:
            return self.text.lead_one.format(arm=lead.arm, at=at, by=by)
        return self.text.lead_many.format(arm=lead.arm, at=at, most_at=most.concurrency, by=by)

    def _tie(self, tie: Tie) -> str:
        text = self.text
        within = text.within_spread if tie.of_repeats else text.within_floor.format(floor=NOISE_FLOOR_PERCENT)
        form = text.tie if tie.all_arms else text.tie_in_front
        return form.format(within=within, at=self._at(tie.levels), arms=", ".join(tie.arms))

    def overall(self) -> Iterator[str]:
        """What is told of the whole: points that queue, the tightest GPUs, failures."""
        text, found = self.text, self.found
        names = {workload_label(point): point["workload"] for point in self.source.points}
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
                point=self._place(names[gpu.workload], gpu.concurrency),
            )
        valid = [point for point in self.source.points if has_numbers(point)]
        told = [point["preemptions"] for point in valid if point["preemptions"] is not None]
        yield text.steadiness.format(
            requests=numbers.count(sum(point["requests"] or 0 for point in valid)),
            failed=numbers.count(sum(point["requests_failed"] or 0 for point in valid)),
            preemptions=numbers.count(sum(told)) if told else numbers.UNKNOWN,
        )


def _open_peak(points: Sequence[Point], text: Text) -> Iterator[str]:
    """The highest output throughput of the open loops of a workload; insights are of closed ones."""
    metric = "output_tokens_per_s"
    known = [p for p in points if is_open_loop(p) and value_of(p, metric) is not None]
    if known:
        best = max(known, key=lambda point: point[metric])
        point = text.place.format(name=best["arm"], level=level_name(best))
        yield text.peak.format(metric=label(metric), value=numbers.rate(best[metric]), point=point)


def _joined(levels: Sequence[int]) -> str:
    return "/".join(map(str, levels))


def _growth(trend: Trend, text: Text) -> str:
    return text.growth[trend.growth.value].format(
        arm=trend.arm,
        step=numbers.change(trend.step_percent),
        before_at=trend.before_at,
        last_at=trend.last_at,
        last=numbers.rate(trend.last),
        best=numbers.rate(trend.best),
        best_at=trend.best_at,
        plateau_from=trend.plateau_from,
    )
