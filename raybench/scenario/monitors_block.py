"""The block `monitors`: what is sampled beside the load."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raybench.scenario.values import Model


class GpuMonitoring(Model):
    """`source: none` turns it off; `sim` reads the simulated engine's devices; `auto` picks by arm."""

    source: Literal["auto", "nvml", "sim", "none"] = "auto"
    interval_s: Annotated[float, Field(ge=0.02, le=60)] = 0.5
    required: bool = False


class ServerMonitoring(Model):
    enabled: bool = True
    interval_s: Annotated[float, Field(ge=0.1, le=60)] = 1.0


class Monitors(Model):
    gpu: GpuMonitoring = GpuMonitoring()
    server: ServerMonitoring = ServerMonitoring()
