"""The simulated engine's log file, in the shape of SGLang 0.5.23."""

from __future__ import annotations

import time
from typing import TextIO

from raybench.sim.profiles import Profile


class ServerLog:
    """Scheduler lines come once for each pipeline stage, with the tags of the ranks that print them."""

    def __init__(self, stream: TextIO, profile: Profile, dp_ranks: int = 1) -> None:
        self._stream = stream
        tensor = " TP0" if profile.tensor_parallel > 1 else ""
        stages = profile.pipeline_stages
        self._tags = [f" PP{stage}{tensor}" for stage in range(stages)] if stages > 1 else [tensor]
        self._groups = [f" DP{rank}" for rank in range(dp_ranks)] if dp_ranks > 1 else [""]

    def scheduler(self, line: str, rank: int = 0) -> None:
        """A line of the scheduler of one data-parallel rank, from each of its ranks that print statistics."""
        self._write([self._groups[rank] + tag for tag in self._tags], line)

    def front(self, line: str) -> None:
        """A line of the HTTP side."""
        self._write([""], line)

    def _write(self, tags: list[str], line: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self._stream.write("".join(f"[{stamp}{tag}] {line}\n" for tag in tags))
        self._stream.flush()
