"""All checks of an attempt, and the decision that follows from their findings. Pure; runs in the coordinator.

Each check looks at one thing and yields findings; none prints, waits or contacts anything. Unknown is never zero.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybench.protocol.answer_checks import (
    check_answers,
    check_empty,
    check_engine_times,
    check_lengths,
    check_outcomes,
    check_prompt_lengths,
    check_streaming,
)
from raybench.protocol.client_checks import check_rooflines, check_workers_health
from raybench.protocol.evidence import Evidence
from raybench.protocol.gate import check_gate
from raybench.protocol.hit_checks import check_flush, check_hits, check_log, hit_rates
from raybench.protocol.host_checks import check_clocks, check_gpu, check_links
from raybench.protocol.load_checks import check_growth, check_reached_load, check_schedule, check_workers
from raybench.protocol.traffic_checks import check_identity, check_idle, check_preemptions, check_traffic
from raybench.protocol.verdict import Decision, Finding, Verdict
from raybench.scenario.schema import Guards

#: Findings that fresh text can cure: the only ones for which an attempt is repeated on its own.
CURED_BY_FRESH_TEXT = frozenset({"hit_rate_exceeded", "hit_rate_not_verified", "hit_sources_disagree"})


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
        *check_lengths(evidence, guards),
        *check_prompt_lengths(evidence.requests, evidence.point),
        *check_empty(evidence, guards),
        *check_answers(evidence.requests, ignore_eos=evidence.ignore_eos),
        *check_engine_times(evidence.requests),
        *check_streaming(evidence, guards),
        *check_hits(evidence, rates, guards),
        *check_log(evidence),
        *check_flush(evidence),
        *check_idle(evidence),
        *check_identity(evidence),
        *check_traffic(evidence, guards),
        *check_preemptions(evidence),
        *check_reached_load(evidence, guards),
        *check_schedule(evidence.requests, guards.late_share_max),
        *check_growth(evidence.requests),
        *check_workers_health(evidence.health),
        *check_rooflines(evidence.client, evidence.rooflines),
        *check_links(evidence.link_changes),
        *check_gpu(evidence.gpu, required=evidence.gpu_required),
        *check_clocks(evidence.clocks, guards),
        *check_gate(evidence.gate),
    )
