"""When the requests of an open loop are due: what a user may write, and the rate over time. Pure.

The rate over time is one function and its inverse (`Arrivals.requests_by`, `Arrivals.seconds_until`); the
random part of a schedule is in `load/pacer.py`, the reader of trace files in `scenario/trace.py`.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from raybench.scenario.values import Misfit, Model, Positive, Seconds, refuse_repeats


class Ramp(Model):
    """The rate goes in a straight line from `start_rate_per_s` to the level over `duration_s`, then stays."""

    start_rate_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    duration_s: Seconds


class Arrivals(Model):
    """How the times between arrivals are spread around their mean, 1 / rate.

    `constant`: all alike. `poisson`: exponential. `gamma`: gamma of shape `burstiness`; 1 is Poisson, below 1 is
    burstier, above 1 is more even. The same seed gives the same arrivals at every level but for their scale.
    """

    process: Literal["constant", "poisson", "gamma"] = "poisson"
    burstiness: Positive | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    ramp: Ramp | None = None

    @model_validator(mode="after")
    def _burstiness_is_gamma_s(self) -> Arrivals:
        if self.process == "gamma" and self.burstiness is None:
            raise Misfit("gamma arrivals need it: 1 is Poisson, below 1 is burstier", "burstiness")
        if self.process != "gamma" and self.burstiness is not None:
            raise Misfit(f"{self.process} arrivals have none: write `process: gamma`", "burstiness")
        return self

    def requests_by(self, seconds: float, rate_per_s: float) -> float:
        """The expected number of requests due by then: the integral of the rate."""
        if self.ramp is None:
            return rate_per_s * seconds
        start, length = self.ramp.start_rate_per_s, self.ramp.duration_s
        inside = min(seconds, length)
        climbed = start * inside + (rate_per_s - start) * inside**2 / (2 * length)
        return climbed + rate_per_s * (seconds - inside)

    def seconds_until(self, requests: float, rate_per_s: float) -> float:
        """When so many requests are expected to be due: the inverse of `requests_by`."""
        if self.ramp is None:
            return requests / rate_per_s
        start, length = self.ramp.start_rate_per_s, self.ramp.duration_s
        in_ramp = (start + rate_per_s) * length / 2
        if requests >= in_ramp:
            return length + (requests - in_ramp) / rate_per_s
        # start * t + slope * t^2 / 2 = requests, in the form that does not cancel where the slope is small
        slope = (rate_per_s - start) / length
        root = math.sqrt(max(0.0, start**2 + 2 * slope * requests))
        return 2 * requests / (start + root) if requests > 0 else 0.0


class TraceReplay(Model):
    """Arrivals, and lengths where the file gives them, of a recorded trace; each speed is a level.

    A relative path is relative to the scenario file; an absolute one is a path on the coordinator's node.
    """

    path: str
    speeds: Annotated[list[Positive], Field(min_length=1), AfterValidator(refuse_repeats)] = [1.0]
