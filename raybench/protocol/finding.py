"""A finding: one fact about the validity of an attempt. Every check yields these. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["void", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """`void` takes the number out of every table, `warning` stands beside it, `note` informs.

    data: its numbers, for the files.
    """

    code: str
    severity: Severity
    message: str
    data: Mapping[str, object] = field(default_factory=dict)
