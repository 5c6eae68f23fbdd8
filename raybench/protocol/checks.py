"""From what was seen of one attempt to findings and a verdict. Pure; runs in the coordinator.

Each check looks at one thing and yields findings; none prints, waits or contacts anything. A finding
of severity `void` takes the number out of every table; `warning` is shown beside it; `note` informs.
Unknown is never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from raybench.analysis.in_flight import Window, in_flight
from raybench.engines.contract import Counters
from raybench.protocol.answer_checks import check_answers, check_engine_times, check_prompt_lengths
from raybench.protocol.finding import Finding, Severity
from raybench.protocol.schedule_checks import check_growth, check_schedule
from raybench.scenario.plan import Point
from raybench.scenario.schema import Guards

#: Shares of one core, over the load, from which a worker is told of, and from which its stamps are not believed.
CLIENT_CPU_BUSY, CLIENT_CPU_SATURATED = 0.7, 0.95
#: Lateness of a worker's event loop, in ms, that is told of.
CLIENT_LAG_MS = 50.0

Decision = Literal["accept", "retry", "void"]

#: Findings that fresh text can cure: the only ones for which an attempt is repeated on its own.
CURED_BY_FRESH_TEXT = frozenset({"hit_rate_exceeded", "hit_rate_not_verified"})

#: Two hit sources may differ by this much before the difference is a finding (page rounding).
HIT_SOURCES_TOLERANCE = 0.01


@dataclass(frozen=True)
class ServerView:
    """The engine before or after the load: who it is, and its counters (None = it has none)."""

    instance: str | None
    counters: Counters | None


@dataclass(frozen=True)
class Evidence:
    """Everything that one attempt left behind.

    requests: the load rows of all workers as read back from their part files, with `sent_unix_ns` and
    `end_unix_ns` on the coordinator's clock. lost_workers: worker -> reason.
    leased: requests that the coordinator handed out to workers, some of them ahead of a free slot.
    gate_failure: what of the arm's quality gate failed, where the scenario measures all the same.
    health: the workers' own rows over the load (records.schema.WORKER), None where they were not kept.
    """

    point: Point
    requests: pa.Table
    before: ServerView
    after: ServerView
    lost_workers: Mapping[str, str] = field(default_factory=dict)
    leased: int | None = None
    health: pa.Table | None = None
    torn_parts: tuple[str, ...] = ()
    prompt_is_ids: bool = True
    ignore_eos: bool = True
    flush_reply: str | None = None
    idle_known: bool = True
    clock_uncertainty_ms: float = 0.0
    gpu_reason: str | None = None
    gpu_required: bool = False
    gate_failure: str | None = None


@dataclass(frozen=True)
class Verdict:
    """accept: the point's numbers count. retry: once more on fresh text. void: they never count."""

    decision: Decision
    findings: tuple[Finding, ...]
    hit_rates: Mapping[str, float | None]

    @property
    def reasons(self) -> list[str]:
        return [finding.message for finding in self.findings if finding.severity == "void"]

    def as_record(self) -> dict[str, object]:
        return {
            "verdict": self.decision,
            "findings": [asdict(finding) for finding in self.findings],
            "hit_rates": dict(self.hit_rates),
        }


def judge(evidence: Evidence, guards: Guards, *, attempts_left: int) -> Verdict:
    """All checks, then the decision."""
    rates = hit_rates(evidence)
    findings: tuple[Finding, ...] = (*check_workers(evidence), *check_outcomes(evidence, guards))
    if not evidence.lost_workers:  # with records missing, nothing more can be said
        findings += _of_complete_records(evidence, rates, guards)
    void = {finding.code for finding in findings if finding.severity == "void"}
    if not void:
        decision: Decision = "accept"
    elif void <= CURED_BY_FRESH_TEXT and attempts_left > 0:
        decision = "retry"
    else:
        decision = "void"
    return Verdict(decision, findings, rates)


def _of_complete_records(
    evidence: Evidence, rates: Mapping[str, float | None], guards: Guards
) -> tuple[Finding, ...]:
    return (
        *check_lengths(evidence),
        *check_prompt_lengths(evidence.requests, evidence.point),
        *check_engine_times(evidence.requests),
        *check_answers(evidence.requests, ignore_eos=evidence.ignore_eos),
        *check_hits(evidence, rates, guards),
        *check_server(evidence),
        *check_reached_load(evidence, guards),
        *check_schedule(evidence.requests, guards.late_share_max),
        *check_growth(evidence.requests),
        *check_client(evidence),
        *check_gpu(evidence),
        *check_clocks(evidence, guards),
        *check_gate(evidence),
    )


def hit_rates(evidence: Evidence) -> dict[str, float | None]:
    """Prefix hit rate by source: `requests` (per-request cached tokens) and `counters` (deltas).

    None = the source is silent. A single request without a count makes its source silent: the mean
    never fills unknown with zero (case O-P4).
    """
    return {"requests": _request_hit_rate(evidence.requests), "counters": _counter_hit_rate(evidence)}


def _request_hit_rate(requests: pa.Table) -> float | None:
    ok = _ok(requests)
    if ok.num_rows == 0 or ok["cached_tokens"].null_count or ok["input_tokens"].null_count:
        return None
    inputs = pc.sum(ok["input_tokens"]).as_py()
    return float(pc.sum(ok["cached_tokens"]).as_py() / inputs) if inputs else None


def _counter_hit_rate(evidence: Evidence) -> float | None:
    for looked_up, hit in (("prefix_queried_tokens", "prefix_hit_tokens"), ("input_tokens", "cached_tokens")):
        total, hits = counter_delta(evidence, looked_up), counter_delta(evidence, hit)
        if total is not None and hits is not None and total > 0 and hits >= 0:
            return hits / total
    return None


def counter_delta(evidence: Evidence, name: str) -> float | None:
    """After minus before of one counter; None when either side lacks it."""
    before, after = evidence.before.counters, evidence.after.counters
    if before is None or after is None:
        return None
    first, last = getattr(before, name), getattr(after, name)
    return None if first is None or last is None else float(last - first)


def check_hits(evidence: Evidence, rates: Mapping[str, float | None], guards: Guards) -> Iterator[Finding]:
    """Cold is proven by measurement, never by the flush's status code (cases O-P2, O-P3, O-P4)."""
    known = {source: rate for source, rate in rates.items() if rate is not None}
    data = {"hit_rates": dict(rates), "limit": guards.hit_rate_max, "flush_reply": evidence.flush_reply}
    if not known:
        yield Finding(
            "hit_rate_not_verified",
            "void" if guards.strict else "warning",
            "hit rate not verified: the engine reports neither cached tokens per request nor counters",
            data,
        )
        return
    for source, rate in known.items():
        if rate > guards.hit_rate_max:
            yield Finding(
                "hit_rate_exceeded",
                "void",
                f"not cold: prefix hit rate {rate:.4f} by {source} is over the limit {guards.hit_rate_max:g}",
                data | {"source": source, "tiers": _tiers(evidence.requests)},
            )
    if len(known) > 1 and max(known.values()) - min(known.values()) > HIT_SOURCES_TOLERANCE:
        text = ", ".join(f"{source} {rate:.4f}" for source, rate in known.items())
        yield Finding("hit_sources_disagree", "warning", f"hit sources disagree: {text}", data)


def check_workers(evidence: Evidence) -> Iterator[Finding]:
    """Every ticket has exactly one record, and every worker lived (case O-R4)."""
    planned, received = evidence.point.requests, evidence.requests.num_rows
    data = {"planned": planned, "handed_out": evidence.leased, "received": received}
    for worker, reason in evidence.lost_workers.items():
        yield Finding(
            "worker_lost",
            "void",
            f"client lost: worker {worker} ({reason}); {planned} requests planned,"
            f" {'an unknown number' if evidence.leased is None else evidence.leased} handed out to be sent,"
            f" {received} with a record",
            data | {"worker": worker},
        )
    if received != planned and not evidence.lost_workers:
        yield Finding("requests_missing", "void", f"{received} records for {planned} planned requests", data)
    if len(set(evidence.requests["ticket"].to_pylist())) != received:
        yield Finding("requests_doubled", "void", "a request has more than one record", data)
    for part in evidence.torn_parts:
        if not evidence.lost_workers:
            yield Finding("part_torn", "void", f"record file {part}", {"part": part})


def check_outcomes(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """Enough requests succeeded; failures by class (case O-T3)."""
    rows = evidence.requests
    if rows.num_rows == 0:
        yield Finding("no_requests", "void", "no request has a record")
        return
    failed = rows.num_rows - _ok(rows).num_rows
    classes = dict(Counter(value for value in rows["error_class"].to_pylist() if value is not None))
    share = 1 - failed / rows.num_rows
    if failed:
        text = ", ".join(f"{name}: {count}" for name, count in sorted(classes.items()))
        below = share < guards.success_rate_min
        yield Finding(
            "requests_failed",
            "void" if below else "warning",
            f"{failed} of {rows.num_rows} requests failed ({text}); success limit {guards.success_rate_min:g}",
            {"classes": classes, "success_rate": share},
        )
    retried = int(pc.sum(pc.greater(rows["tries"], 1)).as_py() or 0)
    if retried:
        yield Finding(
            "stale_connections",
            "note",
            f"{retried} requests were sent again on a fresh connection",
            {"retried": retried},
        )


def check_lengths(evidence: Evidence) -> Iterator[Finding]:
    """Prompt and answer are as long as asked, by the server's own count. Clipping is silent there."""
    ok = _ok(evidence.requests)
    estimated = int(pc.sum(pc.not_equal(ok["tokens_source"], "server")).as_py() or 0)
    if estimated:
        yield Finding(
            "tokens_estimated",
            "warning",
            f"{estimated} answers came without a token count: their chunks were counted instead",
            {"estimated": estimated},
        )
    sides = []
    if evidence.ignore_eos:
        sides.append(("output", "output_length_differs"))
    if evidence.prompt_is_ids:
        sides.append(("input", "input_length_differs"))
    for side, code in sides:
        counted, asked = ok[f"{side}_tokens"], ok[f"{side}_tokens_asked"]
        mask = pc.and_(pc.equal(ok["tokens_source"], "server"), pc.not_equal(counted, asked))
        differing = ok.filter(pc.fill_null(mask, False))
        if differing.num_rows:
            first = differing.slice(0, 1).to_pylist()[0]
            yield Finding(
                code,
                "void",
                f"{differing.num_rows} of {ok.num_rows} requests: {side} tokens as counted by the server differ"
                f" from those asked (ticket {first['ticket']}: {first[f'{side}_tokens']}"
                f" for {first[f'{side}_tokens_asked']})",
                {"count": differing.num_rows},
            )


def check_server(evidence: Evidence) -> Iterator[Finding]:
    """The same server process served us, and nobody else."""
    if not evidence.idle_known:
        yield Finding("idle_not_verified", "warning", "the engine gives no queue numbers: idle was not verified")
    before, after = evidence.before, evidence.after
    if before.instance is not None and after.instance is None:
        yield Finding(
            "restart_not_excluded",
            "void",
            f"after the load the server did not say who it is (before: instance {before.instance}):"
            " a restart during the point cannot be excluded",
        )
    elif before.instance is not None and after.instance != before.instance:
        yield Finding(
            "server_restarted",
            "void",
            f"the server was restarted during the point (instance {before.instance} -> {after.instance})",
        )
        return
    names = ("requests", "input_tokens", "output_tokens")
    deltas = {name: counter_delta(evidence, name) for name in names}
    if any(delta is not None and delta < 0 for delta in deltas.values()):
        yield Finding("server_restarted", "void", "a counter of the server went down: it was restarted", deltas)
        return
    rows, ok = evidence.requests, _ok(evidence.requests)
    ours: dict[str, tuple[float, float]] = {
        # the server may or may not count what failed, so what is ours lies between two numbers
        "requests": (ok.num_rows, _total(rows, "tries")),
        "input_tokens": (_total(ok, "input_tokens"), _total_of_tries(rows, "input_tokens_asked")),
        "output_tokens": (_total(ok, "output_tokens"), _total_of_tries(rows, "output_tokens_asked")),
    }
    for name, (least, bound) in ours.items():
        delta, most = deltas[name], max(least, bound)
        if delta is None or least <= delta <= most:
            continue
        counted = f"the server counted {delta:,.0f} {name.replace('_', ' ')}"
        if delta > most:
            yield Finding(
                "foreign_traffic",
                "void",
                f"foreign traffic: {counted}, ours were {most:,.0f}",
                {"counter": name, "server": delta, "ours": most},
            )
        else:
            yield Finding(
                "counters_behind",
                "warning",
                f"{counted}, our records say {least:,.0f}",
                {"counter": name, "server": delta, "ours": least},
            )
    preemptions = max(_total(rows, "retractions"), counter_delta(evidence, "preemptions") or 0)
    if preemptions:
        yield Finding(
            "preemptions",
            "warning",
            f"{preemptions:g} retractions during the point",
            {"preemptions": preemptions},
        )


def check_reached_load(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """Concurrency C means that C were in flight, by the records themselves. Of closed loops."""
    rows, level = evidence.requests, evidence.point.concurrency
    if level is None:
        return
    sent = rows.filter(pc.is_valid(rows["sent_unix_ns"]))
    if sent.num_rows == 0:
        if rows.num_rows:
            yield Finding("concurrency_not_verified", "void", "no record says when its request was sent")
        return
    starts, ends = sent["sent_unix_ns"].to_numpy(), sent["end_unix_ns"].to_numpy()
    course = in_flight(starts, ends)
    # After the last send the level falls by nature, so only the time until then is judged.
    share = course.share_at(level, Window(int(starts.min()), int(starts.max())))
    data = {"peak": course.peak, "share_at_level": share, "level": level}
    if course.peak != level:
        code = "concurrency_not_reached" if (course.peak or 0) < level else "concurrency_exceeded"
        yield Finding(code, "void", f"at most {course.peak} requests were in flight, asked {level}", data)
    elif share is not None and share < guards.in_flight_share_min:
        yield Finding(
            "concurrency_not_held",
            "void",
            f"{level} in flight for {share:.0%} of the time, asked {guards.in_flight_share_min:.0%}",
            data,
        )


def check_client(evidence: Evidence) -> Iterator[Finding]:
    """The client was not the bottleneck: no worker near a whole core, no loop that was late to read."""
    if evidence.health is None or evidence.health.num_rows == 0:
        return
    for worker in sorted(set(evidence.health["worker"].to_pylist())):
        rows = evidence.health.filter(pc.equal(evidence.health["worker"], worker))
        cpu = pc.mean(rows["cpu_share"]).as_py()
        lag_ms = pc.max(rows["loop_lag_ms_max"]).as_py()
        data = {"worker": worker, "cpu_share": cpu, "loop_lag_ms_max": lag_ms}
        if cpu is not None and cpu >= CLIENT_CPU_SATURATED:
            yield Finding(
                "client_saturated",
                "void",
                f"client saturated: worker {worker} used {cpu:.0%} of a core over the load; use more workers",
                data,
            )
        elif cpu is not None and cpu >= CLIENT_CPU_BUSY:
            yield Finding(
                "client_busy", "warning", f"worker {worker} used {cpu:.0%} of a core over the load", data
            )
        if lag_ms is not None and lag_ms > CLIENT_LAG_MS:
            yield Finding(
                "client_late",
                "warning",
                f"worker {worker} read up to {lag_ms:.0f} ms late: its stamps may be late by as much",
                data,
            )


def check_gpu(evidence: Evidence) -> Iterator[Finding]:
    """GPU data is complete, or its absence is said (case O-G1)."""
    if evidence.gpu_reason is not None:
        severity: Severity = "void" if evidence.gpu_required else "warning"
        yield Finding("gpu_data_missing", severity, f"GPU data: not available ({evidence.gpu_reason})")


def check_clocks(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """Offsets between hosts are known well enough to merge by them (case O-R5)."""
    uncertainty, limit = evidence.clock_uncertainty_ms, guards.clock_uncertainty_ms_max
    if uncertainty > limit:
        yield Finding(
            "clock_uncertain",
            "warning",
            f"host clocks are known to {uncertainty:.1f} ms only, limit {limit:g} ms",
            {"uncertainty_ms": uncertainty},
        )


def check_gate(evidence: Evidence) -> Iterator[Finding]:
    """Numbers of an arm that did not pass its gate never stand without saying so."""
    if evidence.gate_failure is not None:
        yield Finding("gate_failed", "warning", f"quality gate not passed: {evidence.gate_failure}")


def _ok(requests: pa.Table) -> pa.Table:
    return requests.filter(pc.equal(requests["outcome"], "ok"))


def _total(rows: pa.Table, column: str) -> float:
    return float(pc.sum(rows[column]).as_py() or 0)


def _total_of_tries(rows: pa.Table, column: str) -> float:
    """A request that was sent twice may have been counted twice."""
    return float(pc.sum(pc.multiply(rows[column], rows["tries"])).as_py() or 0)


def _tiers(requests: pa.Table) -> dict[str, float | None]:
    """Hit tokens by cache tier, null where no request names the tier."""
    tiers = {}
    for tier in ("device", "host", "storage"):
        column = requests[f"cached_tokens_{tier}"]
        tiers[tier] = None if column.null_count == len(column) else float(pc.sum(column).as_py())
    return tiers
