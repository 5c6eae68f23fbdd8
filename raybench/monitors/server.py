"""Samples the engine's own numbers: queue, KV use and counters, about once a second.

Runs beside the coordinator, one per arm. A scrape that fails is a row that says so, so that a hole in
the series is never mistaken for an idle server.
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any, Literal

from raybench.engines.contract import Counters, Engine, Gauges, Http, Reply
from raybench.records.clock import Clock
from raybench.records.schema import SERVER

NS_PER_MS = 1_000_000

#: The counters that `records.schema.SERVER` has a column `<name>_total` for.
_KEPT = tuple(field.name for field in fields(Counters) if f"{field.name}_total" in SERVER.names)


class ServerSampler:
    """Rows of `records.schema.SERVER` for one arm.

    restarts: how often the counters went backwards, which only a new server process does.
    """

    def __init__(self, engine: Engine, http: Http, clock: Clock, arm: str, instance: str | None) -> None:
        self._engine = engine
        self._http = _LastFailure(http)
        self._clock = clock
        self._arm = arm
        self._instance = instance
        self._last = Counters()
        self.restarts = 0

    async def sample(self) -> dict[str, object]:
        """Scrape once. Stamped at the beginning; `scrape_ms` is how long it took, answered or not."""
        started_ns, unix_ns = self._clock.monotonic_ns(), self._clock.unix_ns()
        self._http.failure = None
        scraped = await self._engine.scrape(self._http)
        row: dict[str, object] = {
            "arm": self._arm,
            "instance": self._instance,
            "sample_ns": started_ns,
            "sample_unix_ns": unix_ns,
            "scrape_ms": (self._clock.monotonic_ns() - started_ns) / NS_PER_MS,
        }
        counters, gauges = (Counters(), Gauges()) if scraped is None else scraped
        row |= asdict(gauges)
        row |= {f"{name}_total": getattr(counters, name) for name in _KEPT}
        row["error"] = None if scraped is not None else self._http.failure or "the engine gives no metrics"
        row["note"] = None if scraped is None else self._note(counters)
        return row

    def _note(self, counters: Counters) -> str | None:
        fallen = went_down(self._last, counters)
        self._last = _newest(self._last, counters)
        if not fallen:
            return None
        self.restarts += 1
        return f"server restarted: {', '.join(fallen)} went down"


def went_down(before: Counters, after: Counters) -> list[str]:
    """Names of the counters that are smaller now; those unknown on either side are left out."""
    now = asdict(after)
    return [
        name
        for name, value in asdict(before).items()
        if value is not None and now[name] is not None and now[name] < value
    ]


def _newest(before: Counters, after: Counters) -> Counters:
    """The last known value of each counter; engines leave out those that have not counted yet."""
    known = {name: value for name, value in asdict(after).items() if value is not None}
    return replace(before, **known)


class _LastFailure:
    """An `Http` that remembers why a call failed: a scrape of None alone does not tell."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self.failure: str | None = None

    async def request(self, method: Literal["GET", "POST"], path: str, **options: Any) -> Reply:
        reply = await self._http.request(method, path, **options)
        if not reply.ok:
            self.failure = f"{method} {path}: {reply.summary}"
        return reply
