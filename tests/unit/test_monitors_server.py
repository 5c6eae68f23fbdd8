"""The engine's own numbers as rows, failed scrapes and restarts included."""

import asyncio
from typing import Any, cast

from raybench.engines.contract import Counters, Engine, Gauges, Http, Reply
from raybench.monitors.server import ServerSampler, went_down
from raybench.records.schema import SERVER

MS = 1_000_000


class FakeClock:
    """Each look at the monotonic clock takes 3 ms."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 3 * MS
        return self.now_ns

    def unix_ns(self) -> int:
        return 1_700_000_000_000 * MS + self.now_ns


class ScriptedHttp:
    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)

    async def request(self, method: str, path: str, **options: Any) -> Reply:
        return self.replies.pop(0)


class ScriptedEngine:
    """Asks for /metrics; a good answer gives the next of `scrapes`, a bad one gives None."""

    def __init__(self, *scrapes: tuple[Counters, Gauges]) -> None:
        self.scrapes = list(scrapes)

    async def scrape(self, http: Http) -> tuple[Counters, Gauges] | None:
        reply = await http.request("GET", "/metrics")
        return self.scrapes.pop(0) if reply.ok else None


OK = Reply(200)


def sampler_of(engine: ScriptedEngine, *replies: Reply) -> ServerSampler:
    return ServerSampler(cast(Engine, engine), ScriptedHttp(*replies), FakeClock(), "arm-a", "boot-7")


def rows_of(sampler: ServerSampler, count: int) -> list[dict[str, object]]:
    return [asyncio.run(sampler.sample()) for _ in range(count)]


def test_a_row_holds_gauges_and_counters_under_the_names_of_the_schema() -> None:
    counters = Counters(10, 2000, 300, 0, 2000, 0, 1)
    gauges = Gauges(16, 48, 12_345, 0.75, 900.5, 3.2)
    (row,) = rows_of(sampler_of(ScriptedEngine((counters, gauges)), OK), 1)
    assert set(row) == set(SERVER.names)
    assert row == {
        "arm": "arm-a",
        "instance": "boot-7",
        "sample_ns": 3 * MS,
        "sample_unix_ns": 1_700_000_000_003 * MS,
        "running_requests": 16,
        "queued_requests": 48,
        "kv_used_tokens": 12_345,
        "kv_usage": 0.75,
        "output_tokens_per_s": 900.5,
        "accept_length": 3.2,
        "requests_total": 10,
        "input_tokens_total": 2000,
        "output_tokens_total": 300,
        "cached_tokens_total": 0,
        "preemptions_total": 1,
        "scrape_ms": 3.0,
        "error": None,
        "note": None,
    }


def test_a_failed_scrape_is_a_row_with_its_reason_and_nulls() -> None:
    (row,) = rows_of(sampler_of(ScriptedEngine(), Reply(None, error="no answer within 10 s")), 1)
    assert row["error"] == "GET /metrics: no answer within 10 s"
    assert row["scrape_ms"] == 3.0
    assert row["running_requests"] is None
    assert row["requests_total"] is None


def test_a_failure_is_not_remembered_in_the_next_row() -> None:
    sampler = sampler_of(ScriptedEngine((Counters(), Gauges(running_requests=0))), Reply(503, b"busy"), OK)
    bad, good = rows_of(sampler, 2)
    assert bad["error"] == "GET /metrics: HTTP 503 busy"
    assert good["error"] is None
    assert good["running_requests"] == 0


def test_counters_that_go_down_are_noted_as_a_restart_once() -> None:
    scrapes = [(Counters(requests=n, input_tokens=t), Gauges()) for n, t in ((5, 50), (6, 60), (0, 0), (1, 9))]
    sampler = sampler_of(ScriptedEngine(*scrapes), OK, OK, OK, OK)
    assert [row["note"] for row in rows_of(sampler, 4)] == [
        None,
        None,
        "server restarted: requests, input_tokens went down",
        None,
    ]
    assert sampler.restarts == 1


def test_a_restart_behind_failed_scrapes_and_missing_counters_is_seen() -> None:
    scrapes = [(Counters(requests=5), Gauges()), (Counters(), Gauges()), (Counters(requests=1), Gauges())]
    sampler = sampler_of(ScriptedEngine(*scrapes), OK, Reply(None, error="refused"), OK, OK)
    assert [row["note"] for row in rows_of(sampler, 4)][-1] == "server restarted: requests went down"


def test_an_unknown_counter_did_not_go_down() -> None:
    assert went_down(Counters(requests=3), Counters()) == []
    assert went_down(Counters(), Counters(requests=0)) == []
    assert went_down(Counters(requests=3, preemptions=0), Counters(requests=2, preemptions=0)) == ["requests"]
