"""The block `sim` of an arm: the built-in simulated engine instead of a real one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raybench.scenario.values import Count, Model, Tokens

SimProfile = Literal["small", "tp2pp4", "tp8_eagle3"]


class SimFaults(Model):
    """Lies and faults of the simulated engine, for rehearsals and tests of raybench itself.

    pace_spread: the slowest request gets a token only at each n-th step; the paces between 1 and n are drawn
    by the text, with small ones as likely as large ones by ratio.
    """

    host_tier: bool = False
    preload_corpus: bool = False
    always_hit: bool = False
    flush_refusals: Annotated[int, Field(ge=0)] = 0
    flush_refused: bool = False
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
    kv_pool_tokens: Tokens | None = None
    page_tokens: Count | None = None
    faults: SimFaults = SimFaults()
