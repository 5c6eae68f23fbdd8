"""The block `sim` of an arm: the built-in simulated engine, and the lies and faults that it may be given.

What each fault does is in docs/SCENARIOS.md, how in `sim/faults.py`, which finding catches it in docs/VALIDITY.md.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raybench.scenario.values import Count, Model, Tokens

SimProfile = Literal["small", "tp2pp4", "tp8_eagle3"]
FlushFault = Literal["works", "refused", "claimed", "first_rank", "hangs", "missing"]
AnswerFault = Literal[
    "unavailable",
    "reset",
    "silent",
    "stalled",
    "cut",
    "unended",
    "garbled",
    "in_one_piece",
    "error_event",
    "error_first",
    "aborted",
    "stopped",
    "empty",
]


class SimFaults(Model):
    """answer: what becomes of each `answer_every`-th answer. foreign_every: after so many requests comes one of
    another client. restart_after: after so many requests all counters begin at zero, as after a restart.
    pace_spread: the slowest request gets a token only at each n-th step; the paces between 1 and n are drawn
    by the text, with small ones as likely as large ones by ratio.
    """

    host_tier: bool = False
    storage_tier: bool = False
    preload_corpus: bool = False
    always_hit: bool = False
    flush: FlushFault = "works"
    flush_refusals: Annotated[int, Field(ge=0)] = 0
    dp_ranks: Count = 1
    cached_tokens: Literal["told", "hidden", "zero", "with_retractions"] = "told"
    metrics: Literal["told", "gone", "gone_after_load", "frozen", "no_hits"] = "told"
    log: Literal["told", "silent", "hits"] = "told"
    queue: Literal["told", "gone", "idle", "busy"] = "told"
    old_names: bool = False
    foreign_every: Annotated[int, Field(ge=0)] = 0
    foreign_output_tokens: Count = 16
    restart_after: Annotated[int, Field(ge=0)] = 0
    restart_hidden: bool = False
    lengths: Literal["told", "hidden", "output_clipped", "input_clipped", "output_inflated"] = "told"
    answer: AnswerFault | None = None
    answer_every: Count = 1
    comments: bool = False
    ghosts: bool = False
    slow_accept_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    never_alive: bool = False
    pace_spread: Annotated[int, Field(ge=1, le=1000)] = 1


class Sim(Model):
    """Start the built-in simulated engine for this arm instead of reaching a real one.

    `time_compression` 50 means that fifty simulated seconds pass in one.
    """

    profile: SimProfile = "small"
    time_compression: Annotated[float, Field(gt=0, le=1000)] = 1.0
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    incremental: bool = False
    seed: Annotated[int, Field(ge=0)] = 0
    max_running_requests: Count | None = None
    max_queued_requests: Count | None = None
    kv_pool_tokens: Tokens | None = None
    page_tokens: Count | None = None
    faults: SimFaults = SimFaults()
