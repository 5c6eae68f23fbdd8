"""Cold or not: prefix hit rates from up to three independent sources, and what they say together. Pure.

Cold is proven by measurement, never by the status of a flush (cases O-P2, O-P3, O-P4). Unknown is never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from raybench.protocol.evidence import (
    Evidence,
    counter_delta,
    ok_rows,
    preemptions,
    total,
)
from raybench.protocol.verdict import Finding, Severity
from raybench.scenario.schema import Guards

#: Two hit sources may differ by this much before the difference is a finding (page rounding).
HIT_SOURCES_TOLERANCE = 0.01
#: A log that tells of this much fewer prompt tokens than were served does not tell of all of them.
LOG_TOLERANCE = 0.01


def hit_rates(evidence: Evidence) -> dict[str, float | None]:
    """Prefix hit rate by source: `requests` (cached tokens of each), `counters` (deltas), `log` (prefill batches).

    None = the source is silent. A single request without a count makes its source silent: the mean
    never fills unknown with zero (case O-P4).
    """
    return {
        "requests": _request_hit_rate(evidence.requests),
        "counters": _counter_hit_rate(evidence),
        "log": _log_hit_rate(evidence)[0],
    }


def _request_hit_rate(requests: pa.Table) -> float | None:
    """Over the requests that were not retracted: a second prefill finds the request's own KV."""
    return _rate(_never_retracted(ok_rows(requests)))


def _rate(rows: pa.Table) -> float | None:
    if rows.num_rows == 0 or rows["cached_tokens"].null_count or rows["input_tokens"].null_count:
        return None
    inputs = pc.sum(rows["input_tokens"]).as_py()
    return float(pc.sum(rows["cached_tokens"]).as_py() / inputs) if inputs else None


def _never_retracted(ok: pa.Table) -> pa.Table:
    return ok.filter(pc.equal(pc.fill_null(ok["retractions"], 0), 0))


def _counter_hit_rate(evidence: Evidence) -> float | None:
    for looked_up, hit in (("prefix_queried_tokens", "prefix_hit_tokens"), ("input_tokens", "cached_tokens")):
        asked, hits = counter_delta(evidence, looked_up), counter_delta(evidence, hit)
        if asked is not None and hits is not None and asked > 0 and hits >= 0:
            return hits / asked
    return None


def _log_hit_rate(evidence: Evidence) -> tuple[float | None, Finding | None]:
    """The rate by the log, or what keeps it from being a source."""
    log, reason = evidence.log, evidence.log_reason
    if log is None:
        return None, None if reason is None else Finding(
            "log_not_read", "warning", f"no hit rate by log: {reason}"
        )
    if log.gaps:
        text = "; ".join(log.gaps)
        return None, Finding("log_incomplete", "warning", f"no hit rate by log: lines may be missing ({text})")
    if log.hit_rate is None or log.input_tokens is None:
        return None, Finding("log_silent", "warning", "no hit rate by log: it has no prefill batch of this load")
    if retractions := preemptions(evidence):
        return None, Finding(
            "log_left_out",
            "note",
            f"no hit rate by log: {retractions:g} retracted requests found their own KV in their second prefill",
            {"retractions": retractions},
        )
    served = total(ok_rows(evidence.requests), "input_tokens")
    if log.input_tokens < served * (1 - LOG_TOLERANCE):
        return None, Finding(
            "log_incomplete",
            "warning",
            f"no hit rate by log: it tells of {log.input_tokens:,} prompt tokens, {served:,.0f} were served",
            {"log": log.input_tokens, "served": served},
        )
    return log.hit_rate, None


def check_hits(evidence: Evidence, rates: Mapping[str, float | None], guards: Guards) -> Iterator[Finding]:
    """No source, and no data-parallel rank in it, is over the limit; all of them agree."""
    known = {source: rate for source, rate in rates.items() if rate is not None}
    data = {"hit_rates": dict(rates), "limit": guards.hit_rate_max, "flush_reply": evidence.flush_reply}
    strict: Severity = "void" if guards.strict else "warning"
    if not known:
        text = "neither cached tokens per request nor counters nor a log that tells them"
        yield Finding("hit_rate_not_verified", strict, f"hit rate not verified: the engine gives {text}", data)
        return
    told = _never_retracted(ok_rows(evidence.requests))
    over = {source: rate for source, rate in known.items() if rate > guards.hit_rate_max}
    if "requests" not in over:
        over |= {name: rate for name, rate in _by_rank(told).items() if rate > guards.hit_rate_max}
    for source, rate in over.items():
        yield Finding(
            "hit_rate_exceeded",
            "void",
            f"not cold: prefix hit rate {rate:.4f} by {source} is over the limit {guards.hit_rate_max:g}",
            data | {"source": source, "tiers": _tiers(told), "ranks": _by_rank(told)},
        )
    if len(known) > 1 and max(known.values()) - min(known.values()) > HIT_SOURCES_TOLERANCE:
        text = ", ".join(f"{source} {rate:.4f}" for source, rate in known.items())
        yield Finding("hit_sources_disagree", strict, f"hit sources disagree: {text}", data)
    retracted = ok_rows(evidence.requests).num_rows - told.num_rows
    if retracted:
        yield Finding(
            "hits_left_out",
            "note",
            f"{retracted} retracted requests are left out of the hit rate by requests: they find their own KV",
            {"left_out": retracted},
        )


def check_log(evidence: Evidence) -> Iterator[Finding]:
    """What keeps the log from being a source, and what it says against itself (case O-P5)."""
    finding = _log_hit_rate(evidence)[1]
    if finding is not None:
        yield finding
    if evidence.log is not None and evidence.log.contradictions:
        yield Finding(
            "log_contradicts_itself",
            "note",
            f"{evidence.log.contradictions} lines of the log tell a hit rate of 0 beside cached tokens",
            {"lines": evidence.log.contradictions},
        )


def check_flush(evidence: Evidence) -> Iterator[Finding]:
    """The reply of a flush is that of one data-parallel rank; the log has a line of each."""
    done, refused = evidence.flushed_groups
    served = frozenset() if evidence.log is None else evidence.log.groups
    missing = refused | (served - done if done else frozenset())
    if missing:
        names = ", ".join("the engine" if group is None else f"DP{group}" for group in sorted(missing, key=str))
        yield Finding(
            "flush_partial",
            "warning",
            f"the flush was accepted, but by the log not done by {names}",
            {"not_flushed": sorted(group for group in missing if group is not None)},
        )


def _by_rank(rows: pa.Table) -> dict[str, float]:
    """Rate of each data-parallel rank by its own requests, where they name several."""
    ranks = sorted(rank for rank in set(rows["dp_rank"].to_pylist()) if rank is not None)
    rates = {f"requests of DP{rank}": _rate(rows.filter(pc.equal(rows["dp_rank"], rank))) for rank in ranks}
    return {name: rate for name, rate in rates.items() if rate is not None} if len(ranks) > 1 else {}


def _tiers(requests: pa.Table) -> dict[str, float | None]:
    """Hit tokens by cache tier, null where no request names the tier."""
    tiers = {}
    for tier in ("device", "host", "storage"):
        column = requests[f"cached_tokens_{tier}"]
        tiers[tier] = None if column.null_count == len(column) else float(pc.sum(column).as_py())
    return tiers
