"""The block `sim` of an arm: the built-in simulated engine instead of a real one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raybench.scenario.faults import SimFaults
from raybench.scenario.values import Count, Model, Tokens

SimProfile = Literal["small", "tp2pp4", "tp8_eagle3"]


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
