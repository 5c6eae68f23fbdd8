"""The level of a point: how hard it loads. Pure; every room that tells points apart reads levels through this.

A closed loop has a concurrency, an open loop a rate of requests, or the speed at which a trace is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """Exactly one of: requests in flight, requests per second, times the trace's own speed."""

    concurrency: int | None = None
    rate_per_s: float | None = None
    trace_speed: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.concurrency, self.rate_per_s, self.trace_speed) if value is not None]
        if len(given) != 1 or not 0 < given[0] < float("inf"):
            raise ValueError(f"a level is one positive number, not {given}")

    @classmethod
    def of_name(cls, name: str) -> Level:
        """The level that `name` stands for. Raises ValueError for a text that is no level's name."""
        kind, number = name[:1], name[1:]
        match kind:
            case "c":
                return cls(concurrency=int(number))
            case "r":
                return cls(rate_per_s=float(number))
            case "x":
                return cls(trace_speed=float(number))
        raise ValueError(f"{name!r} is no level: c64, r0.5 and x2 are")

    @classmethod
    def of_row(cls, row: Mapping[str, object]) -> Level:
        """Of a row that has its values as columns, as points.parquet and the manifest do."""
        concurrency, rate, speed = (row.get(name) for name in ("concurrency", "rate_per_s", "trace_speed"))
        return cls(
            None if concurrency is None else int(str(concurrency)),
            None if rate is None else float(str(rate)),
            None if speed is None else float(str(speed)),
        )

    @property
    def closed_loop(self) -> bool:
        return self.concurrency is not None

    @property
    def name(self) -> str:
        """`c64`, `r0.5`, `x2`: the last part of a point's id."""
        if self.concurrency is not None:
            return f"c{self.concurrency}"
        return f"r{_short(self.rate_per_s)}" if self.rate_per_s is not None else f"x{_short(self.trace_speed)}"

    @property
    def label(self) -> str:
        """`C=64`, `0.5 req/s`, `trace x2`: for people."""
        if self.concurrency is not None:
            return f"C={self.concurrency}"
        if self.rate_per_s is not None:
            return f"{_short(self.rate_per_s)} req/s"
        return f"trace x{_short(self.trace_speed)}"

    @property
    def value(self) -> float:
        """The one number, whatever it counts."""
        return self.sort_key[1]

    @property
    def sort_key(self) -> tuple[int, float]:
        """Closed loops first, then rates, then traces; each from low to high."""
        values = (self.concurrency, self.rate_per_s, self.trace_speed)
        return next((kind, value) for kind, value in enumerate(values) if value is not None)


def _short(value: float | None) -> str:
    """The shortest text that reads back as the same number: `8`, `0.5`."""
    return repr(value).removesuffix(".0")
