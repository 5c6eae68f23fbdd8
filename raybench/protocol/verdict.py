"""What is said of an attempt: findings, one fact about its validity each, and the verdict that follows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

Severity = Literal["void", "warning", "note"]
Decision = Literal["accept", "retry", "void"]


@dataclass(frozen=True)
class Finding:
    """`void` takes the number out of every table, `warning` stands beside it, `note` informs.

    data: its numbers, for the files.
    """

    code: str
    severity: Severity
    message: str
    data: Mapping[str, object] = field(default_factory=dict)


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


def void_verdict(code: str, message: str, earlier: Verdict | None) -> Verdict:
    """A void verdict made of one finding, after those of an earlier attempt where they are the cause."""
    findings = () if earlier is None else earlier.findings
    rates: Mapping[str, float | None] = {} if earlier is None else earlier.hit_rates
    return Verdict("void", (*findings, Finding(code, "void", message)), rates)
