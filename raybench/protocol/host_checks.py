"""What the hosts did over an attempt: their clocks, their links, the GPU data of the target's. Pure.

Stamps hang on monotonic clocks, so that no duration follows a wall clock that is set. What is left to go wrong
(case O-R5): the offset between two hosts is not known well enough to merge by, it moved, or a host stood still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from raybench.analysis.alignment import ClockReading, jump_ns, uncertainty_ns
from raybench.protocol.evidence import Clocks
from raybench.protocol.fleet import COORDINATOR, TARGET_HOST, GpuState
from raybench.protocol.verdict import Finding, Severity
from raybench.scenario.schema import Guards

NS_PER_MS = 1e6
#: Names of clocks that one finding spells out.
NAMES_TOLD = 3


def check_clocks(clocks: Clocks, guards: Guards) -> Iterator[Finding]:
    """At most one finding a kind, with the worst clock's number and the names of all."""
    jumped = {name: jump for name, readings in clocks.items() if (jump := _jump_ms(readings))}
    yield from _told(
        jumped,
        "clock_jumped",
        "void",
        "a host stood still, or its clock ran wildly: against the coordinator's it moved by {:+.1f} ms, more than"
        " any clock drifts in that time, so that its stamps and durations are not to be believed",
    )
    beyond = guards.clock_change_ms_max
    drifted = _beyond(clocks, lambda readings: readings[-1].offset_ns - readings[0].offset_ns, beyond)
    yield from _told(
        {name: moved for name, moved in drifted.items() if name not in jumped},
        "clock_drifted",
        "warning",
        f"a host's clock drifted by {{:+.1f}} ms against the coordinator's, limit {beyond:g} ms;"
        " the merge interpolates",
    )
    yield from _told(
        _beyond(clocks, lambda readings: readings[-1].wall_ahead_ns - readings[0].wall_ahead_ns, beyond),
        "clock_stepped",
        "warning",
        f"a wall clock was set by {{:+.1f}} ms during the attempt, limit {beyond:g} ms; no stamp and no duration"
        " follows it, log lines of that host do",
    )
    own_ns = clocks[COORDINATOR][-1].wall_ahead_ns if clocks.get(COORDINATOR) else 0
    yield from _told(
        _beyond(clocks, lambda readings: _wall_offset_ns(readings[-1], own_ns), guards.clock_offset_ms_max),
        "clock_offset",
        "warning",
        f"a host's wall clock is {{:+.1f}} ms from the coordinator's, limit {guards.clock_offset_ms_max:g} ms;"
        " the merge takes it off",
    )
    yield from _told(
        _beyond(clocks, uncertainty_ns, guards.clock_uncertainty_ms_max),
        "clock_uncertain",
        "warning",
        f"host clocks are known to {{:.1f}} ms only, limit {guards.clock_uncertainty_ms_max:g} ms",
    )


def check_links(changes_by_host: Mapping[str, int]) -> Iterator[Finding]:
    """The network stayed up: a pause of the link would be taken for one of the engine."""
    for name, changes in changes_by_host.items():
        if changes:
            who = name if name == TARGET_HOST else f"worker {name}"
            yield Finding(
                "link_interrupted",
                "void",
                f"the network link of {who} went down or came up {changes} times under the load",
                {"host": name, "changes": changes},
            )


def check_gpu(state: GpuState, *, required: bool) -> Iterator[Finding]:
    """What is missing is said; it voids the point where the scenario requires GPU data."""
    severity: Severity = "void" if required else "warning"
    if state.reason is not None:
        yield Finding("gpu_data_missing", severity, f"GPU data: not available ({state.reason})")
    if state.gaps:
        gaps = list(dict.fromkeys(state.gaps))
        message = f"GPU data: incomplete over the load ({'; '.join(gaps)})"
        yield Finding("gpu_data_gap", severity, message, {"gaps": gaps})


def _jump_ms(readings: Sequence[ClockReading]) -> float:
    """The largest movement between two readings that no drift explains, in ms; 0 without one."""
    jumps = (jump_ns(before, after) for before, after in pairwise(readings))
    return max(jumps, key=abs, default=0) / NS_PER_MS


def _wall_offset_ns(reading: ClockReading, own_ns: int) -> int:
    """The host's wall clock minus the coordinator's, of which `own_ns` is what it was set by."""
    return reading.offset_ns + reading.wall_ahead_ns - own_ns


def _beyond(
    clocks: Clocks, value_ns: Callable[[Sequence[ClockReading]], int], limit_ms: float
) -> dict[str, float]:
    """By clock, the values in ms that are over the limit in either direction."""
    values = {name: value_ns(readings) / NS_PER_MS for name, readings in clocks.items() if readings}
    return {name: value for name, value in values.items() if abs(value) > limit_ms}


def _told(values_ms: Mapping[str, float], code: str, severity: Severity, text: str) -> Iterator[Finding]:
    if values_ms:
        names = sorted(values_ms)
        told = ", ".join(names[:NAMES_TOLD])
        more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
        worst = max(values_ms.values(), key=abs)
        yield Finding(code, severity, f"{text.format(worst)} ({told}{more})", {"milliseconds": dict(values_ms)})
