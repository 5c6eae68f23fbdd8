"""One fact about the validity of an attempt, as checks make it and files keep it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["void", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One fact about validity. `data` holds its numbers for the files."""

    code: str
    severity: Severity
    message: str
    data: Mapping[str, object] = field(default_factory=dict)
