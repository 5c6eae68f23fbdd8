"""All checks together: an honest attempt has no finding, and what follows from those that there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from attempt_evidence import (
    INPUT,
    N,
    after,
    evidence,
    hits,
    verdict,
)

from raybench.protocol.evidence import Evidence
from raybench.protocol.fleet import GpuState
from raybench.protocol.target import ServerView


def test_an_honest_attempt_has_no_finding_and_is_accepted() -> None:
    judged = verdict(evidence())
    assert (judged.decision, judged.findings, judged.reasons) == ("accept", (), [])
    assert judged.hit_rates == {"requests": 0.0, "counters": 0.0, "log": None}


@pytest.mark.parametrize(
    ("spoil", "decision"),
    [
        (lambda e: e, "retry"),
        (lambda e: replace(e, lost_workers={"w0": "gone"}), "void"),
        (lambda e: replace(e, torn_parts=("w0.arrows",)), "void"),
        (lambda e: replace(e, gpu=GpuState("gone")), "retry"),
        (lambda e: replace(e, after=ServerView("pid-2", after())), "void"),
    ],
    ids=["only warm", "and a lost worker", "and a torn part", "and a warning", "and a restart"],
)
def test_only_what_fresh_text_can_cure_is_repeated(spoil: Callable[[Evidence], Evidence], decision: str) -> None:
    warm = evidence(hits([INPUT - 1] * N), after=ServerView("pid-1", after()))
    assert verdict(spoil(warm), attempts_left=1).decision == decision
    assert verdict(spoil(warm), attempts_left=0).decision == "void"
