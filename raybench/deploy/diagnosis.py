"""Why a launched engine ended, and how much memory it says was missing or left over: from its log and exit code.

Pure, but for one counter of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from raybench.scenario.launch import MEMORY_GROUPS

Reason = Literal["stopped", "not_ready", "out_of_memory", "out_of_host_memory", "killed", "failed", "ended"]

#: A process that SIGKILL ended, as a shell gives its code.
KILLED = 137
_MIB = 1024**2

#: Lines by which engines say that device memory ran out.
_OUT_OF_MEMORY = (
    r"\bOutOfMemoryError\b",
    r"CUDA(?: error:)? out of memory",
    r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|hipErrorOutOfMemory",
    r"[Nn]ot enough (?:GPU |device )?memory",
    r"[Nn]o available memory for the cache blocks",
    r"larger than the maximum number of tokens that can be stored in KV cache",
    r"(?:failed|unable) to allocate .*\bbuffer\b",
    r"cudaMalloc failed: out of memory",
)
_VMSTAT = Path("/proc/vmstat")


@dataclass(frozen=True)
class Exit:
    """evidence: the log line that gave the reason away, None where the exit code did."""

    reason: Reason
    code: int | None
    evidence: str | None = None


def diagnose(
    code: int | None,
    lines: Iterable[str],
    *,
    asked: Reason | None,
    patterns: Sequence[str],
    kernel_kills: int | None,
) -> Exit:
    """asked: why we ended it, None when it ended by itself. kernel_kills: by how much the kernel's count of
    processes ended for want of memory rose meanwhile, None when it is unknown."""
    if asked == "stopped":
        return Exit(asked, code)
    known = re.compile("|".join(f"(?:{pattern})" for pattern in (*_OUT_OF_MEMORY, *patterns)))
    evidence = next((line.strip() for line in lines if known.search(line)), None)
    if evidence is not None:
        return Exit("out_of_memory", code, evidence)
    if asked is not None:
        return Exit(asked, code)
    if code == KILLED:
        return Exit("out_of_host_memory" if kernel_kills else "killed", code)
    return Exit("ended" if code == 0 else "failed", code)


def memory_mib(pattern: str | None, lines: Iterable[str]) -> float | None:
    """The size in MiB that the last matching line tells, by the pattern's groups; None without one."""
    if pattern is None:
        return None
    compiled = re.compile(pattern)
    told = [sizes for line in lines if (match := compiled.search(line)) and (sizes := _sizes(match))]
    if not told:
        return None
    return told[-1]["need"] - told[-1]["have"] if "need" in told[-1] else told[-1][""]


def kernel_kills() -> int | None:
    """How many processes the kernel has ended for want of memory since it started; None when it does not say."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _sizes(match: re.Match[str]) -> dict[str, float]:
    """MiB by side (need, have, or nothing); empty when a group holds no number."""
    sizes = {}
    for name, text in match.groupdict().items():
        side, _, unit = name.rpartition("_")
        try:
            sizes[side] = float(re.sub(r"[,_ ]", "", text)) * MEMORY_GROUPS[unit] / _MIB
        except ValueError:
            return {}
    return sizes
