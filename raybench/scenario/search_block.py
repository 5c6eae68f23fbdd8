"""The block `search:` of a workload: what a user may write. What becomes of it is in `scenario/search.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from raybench.scenario.search import Search
from raybench.scenario.values import Model, Positive

#: Metrics of a point that may have a limit: the lower the better. No means: a mean promises nothing to anyone.
SloMetric = Literal[
    "ttft_ms_p50",
    "ttft_ms_p95",
    "ttft_ms_p99",
    "ttft_ms_max",
    "tpot_ms_p50",
    "tpot_ms_p95",
    "tpot_ms_p99",
    "tpot_ms_max",
    "e2e_ms_p50",
    "e2e_ms_p95",
    "e2e_ms_p99",
    "e2e_ms_max",
    "ttft_scheduled_ms_p50",
    "ttft_scheduled_ms_p95",
    "ttft_scheduled_ms_p99",
    "ttft_scheduled_ms_max",
    "e2e_scheduled_ms_p50",
    "e2e_scheduled_ms_p95",
    "e2e_scheduled_ms_p99",
    "e2e_scheduled_ms_max",
    "failure_share",
]
SloLimit = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Knee(Model):
    """Saturation: the lowest level that no higher one exceeds by more than this share of output tokens/s."""

    gain_min: Annotated[float, Field(gt=0, le=1)] = 0.1


class SearchBlock(Model):
    """Find the highest level that meets an SLO, or the level that saturates: exactly one of `slo` and `knee`."""

    over: Literal["concurrency", "rate_per_s"] = "concurrency"
    slo: dict[SloMetric, SloLimit] | None = None
    knee: Knee | None = None
    minimum: Positive = 1.0
    maximum: Positive
    resolution: Annotated[float, Field(ge=0.01, le=1)] = 0.1
    probes_max: Annotated[int, Field(ge=2, le=100)] = 20

    @model_validator(mode="after")
    def _one_question_of_a_range(self) -> SearchBlock:
        if (self.slo is None) == (self.knee is None):
            raise ValueError("a search needs exactly one of `slo` and `knee`")
        if self.slo is not None and not self.slo:
            raise ValueError("`slo` names no metric, so every level would pass")
        if self.minimum >= self.maximum:
            raise ValueError(f"minimum {self.minimum:g} is not below maximum {self.maximum:g}: nothing to search")
        if self.over == "concurrency" and (self.minimum % 1 or self.maximum % 1):
            raise ValueError("a concurrency is a whole number: minimum and maximum have to be whole")
        for metric in self.slo or {}:
            if self.over == "concurrency" and "_scheduled_" in metric:
                raise ValueError(f"`{metric}`: a closed loop has no schedule; leave `_scheduled` out")
        return self

    @property
    def question(self) -> Search:
        return Search.of_block(self.model_dump())
