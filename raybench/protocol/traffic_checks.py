"""The same server process served us, and us alone: identity, counters, log, what is left inside. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from raybench.protocol.evidence import (
    Evidence,
    counter_delta,
    ok_rows,
    preemptions,
    total,
    total_of_tries,
)
from raybench.protocol.hit_checks import LOG_TOLERANCE
from raybench.protocol.verdict import Finding, Severity
from raybench.scenario.schema import Guards

#: Counters that move by what we send.
COUNTERS = ("requests", "input_tokens", "output_tokens")


def check_idle(evidence: Evidence) -> Iterator[Finding]:
    """Idle before the load by the engine's own numbers, and after it."""
    if not evidence.idle_known:
        yield Finding("idle_not_verified", "warning", "the engine gives no queue numbers: idle was not verified")
    inside, rows = evidence.left_inside, evidence.requests
    given_up = rows.num_rows - ok_rows(rows).num_rows
    if inside is not None and not inside.idle and not given_up:
        yield Finding(
            "foreign_traffic",
            "void",
            f"foreign traffic: after our last answer the engine had {inside.running} requests running and"
            f" {inside.queued} queued, none of them ours",
            {"running": inside.running, "queued": inside.queued},
        )


def check_identity(evidence: Evidence) -> Iterator[Finding]:
    """The process that was asked before the load is the one that was asked after it."""
    before, after = evidence.before.instance, evidence.after.instance
    if before is not None and after is None:
        yield Finding(
            "restart_not_excluded",
            "void",
            f"after the load the server did not say who it is (before: instance {before}):"
            " a restart during the point cannot be excluded",
        )
    elif before is not None and after != before:
        yield Finding(
            "server_restarted",
            "void",
            f"the server was restarted during the point (instance {before} -> {after})",
        )


def check_traffic(evidence: Evidence, guards: Guards) -> Iterator[Finding]:
    """The server's counters moved by what we sent; where it has none, its log tells of no more than that."""
    before, after = evidence.before, evidence.after
    if before.instance is not None and after.instance not in (None, before.instance):
        return  # counters of another process
    strict: Severity = "void" if guards.strict else "warning"
    if before.counters is not None and after.counters is None:
        yield Finding(
            "counters_lost",
            strict,
            "after the load the server gave no counters: foreign traffic and a restart cannot be excluded",
        )
        return
    deltas = {name: counter_delta(evidence, name) for name in COUNTERS}
    if any(delta is not None and delta < 0 for delta in deltas.values()):
        yield Finding("server_restarted", "void", "a counter of the server went down: it was restarted", deltas)
        return
    if deltas["requests"] is None and deltas["input_tokens"] is None:
        yield from _traffic_by_log(evidence)
    for name, delta in deltas.items():
        if delta is not None:
            yield from _compared(evidence, name, delta, strict)


def _compared(evidence: Evidence, name: str, delta: float, strict: Severity) -> Iterator[Finding]:
    """The server may or may not count what failed, so what is ours lies between two numbers."""
    least, most = _ours(evidence, name)
    counted, data = f"the server counted {delta:,.0f} {name.replace('_', ' ')}", {"counter": name, "server": delta}
    if delta > most:
        yield Finding(
            "foreign_traffic",
            "void",
            f"foreign traffic: {counted}, ours were {most:,.0f}: {delta - most:,.0f} came from elsewhere",
            data | {"ours": most, "elsewhere": delta - most},
        )
    elif delta < least:
        yield Finding(
            "counters_behind", strict, f"{counted}, our records say {least:,.0f}", data | {"ours": least}
        )


def _ours(evidence: Evidence, name: str) -> tuple[float, float]:
    """What the server counted for us: at least what succeeded, at most everything that was sent."""
    rows, ok = evidence.requests, ok_rows(evidence.requests)
    if name == "requests":
        return ok.num_rows, total(rows, "tries")
    least = total(ok, name)
    return least, max(least, total_of_tries(rows, f"{name}_asked"))


def _traffic_by_log(evidence: Evidence) -> Iterator[Finding]:
    """Prompt tokens of the log against ours. After retractions they are more, and nothing can be said."""
    log = evidence.log
    if log is None or log.input_tokens is None or log.gaps or preemptions(evidence):
        yield Finding(
            "traffic_not_verified",
            "warning",
            "the engine gives no counters: that nobody else used it was not verified",
        )
        return
    most = _ours(evidence, "input_tokens")[1]
    if log.input_tokens > most * (1 + LOG_TOLERANCE):
        yield Finding(
            "foreign_traffic",
            "void",
            f"foreign traffic: the log tells of {log.input_tokens:,} prompt tokens, ours were {most:,.0f}:"
            f" {log.input_tokens - most:,.0f} came from elsewhere",
            {"log": log.input_tokens, "ours": most, "elsewhere": log.input_tokens - most},
        )


def check_preemptions(evidence: Evidence) -> Iterator[Finding]:
    """Retracted requests are told of: their latency holds a second prefill."""
    if count := preemptions(evidence):
        text = f"{count:g} retractions during the point"
        yield Finding("preemptions", "warning", text, {"preemptions": count})
