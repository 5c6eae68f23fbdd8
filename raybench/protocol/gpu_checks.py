"""GPU data over the load of an attempt: there, without a hole, or said not to be (case O-G1). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from raybench.protocol.finding import Finding, Severity


@dataclass(frozen=True)
class GpuState:
    """reason: why there is no GPU data now, or none of some device; None when there is, or none was asked for.

    gaps: what is missing of the time that was asked about, a note each.
    """

    reason: str | None = None
    gaps: tuple[str, ...] = ()


def check_gpu(state: GpuState, *, required: bool) -> Iterator[Finding]:
    """What is missing is said; it voids the point where the scenario requires GPU data."""
    severity: Severity = "void" if required else "warning"
    if state.reason is not None:
        yield Finding("gpu_data_missing", severity, f"GPU data: not available ({state.reason})")
    if state.gaps:
        gaps = list(dict.fromkeys(state.gaps))
        message = f"GPU data: incomplete over the load ({'; '.join(gaps)})"
        yield Finding("gpu_data_gap", severity, message, {"gaps": gaps})
