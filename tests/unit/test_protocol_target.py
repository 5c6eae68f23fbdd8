"""Waits and limits against an engine's control calls, with a fake network and a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from engine_captures import FakeHttp
from protocol_fakes import NS_PER_S, FakeClock

from raybench.engines import ENGINES
from raybench.engines.contract import Counters, QueueState, Reply
from raybench.errors import TargetError
from raybench.load.order import Endpoint
from raybench.protocol.target import ServerView, Target
from raybench.scenario.schema import Arm, Guards

T = TypeVar("T")
URL = "http://target:30000"
REFUSED = Reply(None, error="ClientConnectorError: connection refused")
BUSY = Reply(400, b"Flush cache failed.")
FLUSHED = Reply(200, b"Cache flushed.")
GUARDS = Guards(flush_timeout_s=10, flush_retry_s=1)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def target(*https: Any, engine: str = "sglang", clock: FakeClock | None = None) -> Target:
    clock = clock or FakeClock()
    arm = Arm(url=URL, engine=engine)  # type: ignore[arg-type]
    return Target("arm", arm, ENGINES[engine], Endpoint(URL, engine), list(https), clock, clock.sleep)


@dataclass
class Flushing:
    """A server that answers /flush_cache after a while, and knows how many flushes it has at once."""

    answer: Callable[[int], Reply]
    clock: FakeClock
    takes_s: float = 0.0
    times_ns: list[int] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def request(self, method: str, path: str, *, params: Mapping[str, str] | None = None, **_: Any) -> Reply:
        if (method, path) != ("POST", "/flush_cache"):
            return Reply(404)
        self.times_ns.append(self.clock.monotonic_ns())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.clock.sleep(self.takes_s)
        self.at_once -= 1
        return self.answer(len(self.times_ns))


# O-P1


def test_o_p1_a_flush_that_is_refused_twice_is_tried_again_with_pauses() -> None:
    clock = FakeClock()
    server = Flushing(lambda number: BUSY if number <= 2 else FLUSHED, clock)
    assert run(target(server, clock=clock).flush(GUARDS)) == "HTTP 200 Cache flushed."
    pauses = [b - a for a, b in zip(server.times_ns, server.times_ns[1:], strict=False)]
    assert pauses == [NS_PER_S, NS_PER_S]
    assert server.most_at_once == 1


@pytest.mark.parametrize(
    ("reply", "last_word"),
    [(BUSY, "HTTP 400 Flush cache failed."), (REFUSED, "ClientConnectorError: connection refused")],
)
def test_o_p1_a_flush_that_never_succeeds_ends_at_the_limit_with_the_last_word(
    reply: Reply, last_word: str
) -> None:
    clock = FakeClock()
    server = Flushing(lambda _: reply, clock)
    with pytest.raises(TargetError, match="arm not within 10 s") as caught:
        run(target(server, clock=clock).flush(GUARDS))
    assert caught.value.step == "flush"
    assert last_word in str(caught.value)
    assert server.times_ns[-1] - server.times_ns[0] == 10 * NS_PER_S
    assert len(server.times_ns) == 11


def test_o_p1_a_server_without_a_flush_is_told_at_once_with_the_way_out() -> None:
    clock = FakeClock()
    server = Flushing(lambda _: Reply(404, b"Not Found"), clock)
    with pytest.raises(TargetError, match="no cache flush to offer") as caught:
        run(target(server, clock=clock).flush(GUARDS))
    assert "guards: {flush: false}" in str(caught.value)
    assert len(server.times_ns) == 1


def test_o_p1_a_flush_that_takes_long_is_never_doubled() -> None:
    clock = FakeClock()
    server = Flushing(lambda number: BUSY if number == 1 else FLUSHED, clock, takes_s=4)
    run(target(server, clock=clock).flush(GUARDS))
    assert (server.most_at_once, len(server.times_ns)) == (1, 2)


def test_behind_a_router_each_url_is_flushed_one_after_the_other() -> None:
    clock = FakeClock()
    first = Flushing(lambda number: BUSY if number == 1 else FLUSHED, clock, takes_s=1)
    second = Flushing(lambda _: FLUSHED, clock)
    run(target(first, second, clock=clock).flush(GUARDS))
    assert len(second.times_ns) == 1
    assert second.times_ns[0] >= first.times_ns[-1] + NS_PER_S


def test_one_url_that_is_never_flushed_fails_the_step() -> None:
    clock = FakeClock()
    with pytest.raises(TargetError, match="connection refused"):
        servers = Flushing(lambda _: FLUSHED, clock), Flushing(lambda _: REFUSED, clock)
        run(target(*servers, clock=clock).flush(GUARDS))


def test_o_p1_every_refusal_is_told_with_status_and_body() -> None:
    clock = FakeClock()
    refusals: list[str] = []
    server = Flushing(lambda number: BUSY if number <= 2 else FLUSHED, clock)
    run(target(server, clock=clock).flush(GUARDS, refusals.append))
    assert refusals == ["HTTP 400 Flush cache failed."] * 2


def test_o_p1_a_server_that_waits_is_given_no_more_than_what_is_left() -> None:
    clock = FakeClock()
    http = FakeHttp({"POST /flush_cache": [BUSY] * 3 + [FLUSHED]})
    run(target(http, clock=clock).flush(GUARDS))
    asked = [params["timeout"] for call, params, _ in http.calls if call == "POST /flush_cache"]
    assert asked == ["10", "9", "8", "7"]


# O-P2


def test_o_p2_a_200_that_says_it_did_not_is_a_refusal() -> None:
    """(b): vLLM's reset answers 200 with success false, first with and then without its external tier."""
    refused = Reply(200, b'{"success":false}')
    http = FakeHttp({"POST /reset_prefix_cache": [refused] * 4 + [Reply(200, b'{"success":true}')]})
    run(target(http, engine="vllm").flush(GUARDS))
    assert len(http.calls) == 5


def test_o_p2_a_200_without_a_word_is_taken_as_asked_for_and_no_more() -> None:
    """(a): the verdict on it comes from the hit check (test_protocol_coordinator)."""
    http = FakeHttp({"POST /reset_prefix_cache": Reply(200, b"")})
    assert run(target(http, engine="vllm").flush(GUARDS)).startswith("HTTP 200")


def test_an_engine_that_has_no_flush_at_all_says_so() -> None:
    with pytest.raises(TargetError, match="flush: false"):
        run(target(FakeHttp({}), engine="openai").flush(GUARDS))


# Alive


def test_alive_waits_for_every_url_and_never_generates() -> None:
    slow = FakeHttp({"GET /ping": [REFUSED, Reply(503), Reply(200)]})
    ready = FakeHttp({"GET /ping": Reply(200)})
    run(target(slow, ready).wait_alive(5))
    assert slow.asked == ["GET /ping"] * 3
    assert ready.asked == ["GET /ping"]


def test_alive_has_a_limit_and_names_the_last_reply() -> None:
    clock = FakeClock()
    with pytest.raises(TargetError, match=r"alive: arm not within 2 s: ClientConnectorError") as caught:
        run(target(FakeHttp({"GET /ping": REFUSED}), clock=clock).wait_alive(2))
    assert caught.value.step == "alive"
    assert clock.ns == (5 + 2) * NS_PER_S


# Idle


def loads(running: int, queued: int = 0) -> Reply:
    body = f'{{"loads":[{{"dp_rank":0,"num_running_reqs":{running},"num_waiting_reqs":{queued}}}]}}'
    return Reply(200, body.encode())


def asked_times(states: list[Reply]) -> FakeHttp:
    return FakeHttp({"GET /v1/loads": states})


def test_idle_must_hold_for_a_while_and_starts_over_when_it_does_not() -> None:
    clock = FakeClock()
    states = [loads(2), loads(0), loads(0), loads(0, 1), *[loads(0)] * 6]
    http = asked_times(states)
    assert run(target(http, clock=clock).wait_idle(60, stable_s=1.0))
    assert states == []
    assert clock.ns == 5 * NS_PER_S + 9 * NS_PER_S // 5


def test_idle_means_every_url() -> None:
    clock = FakeClock()
    quiet, busy = FakeHttp({"GET /v1/loads": loads(0)}), FakeHttp({"GET /v1/loads": [*[loads(1)] * 3, loads(0)]})
    assert run(target(quiet, busy, clock=clock).wait_idle(60, stable_s=0))
    assert len(busy.calls) == 4


def test_idle_has_a_limit_and_says_what_runs() -> None:
    with pytest.raises(TargetError, match=r"idle: arm not within 3 s: running 2, queued 5"):
        run(target(FakeHttp({"GET /v1/loads": loads(2, 5)})).wait_idle(3, stable_s=1))


def test_an_engine_without_queue_numbers_is_unknown_and_does_not_hold_up() -> None:
    clock = FakeClock()
    assert run(target(FakeHttp({}), engine="openai", clock=clock).wait_idle(60, stable_s=5)) is False
    assert clock.ns == 5 * NS_PER_S


def test_an_answer_that_one_url_owed_at_first_makes_idle_known_and_lets_it_hold_for_its_time() -> None:
    clock = FakeClock()
    late = FakeHttp({"GET /v1/loads": [Reply(None, error="timeout"), *[loads(0)] * 6]})
    busy = FakeHttp({"GET /v1/loads": [loads(1), *[loads(0)] * 6]})
    assert run(target(late, busy, clock=clock).wait_idle(60, stable_s=1.0))
    assert clock.ns == 5 * NS_PER_S + 6 * NS_PER_S // 5


def test_an_engine_that_could_tell_and_does_not_answer_is_busy_and_not_unknown() -> None:
    """Under load a server may answer nothing for a while: that is no idle."""
    clock = FakeClock()
    http = FakeHttp({"GET /v1/loads": [loads(0), *[Reply(None, error="no answer within 10 s")] * 3, loads(0)]})
    one = target(http, clock=clock)
    assert run(one.wait_idle(60, stable_s=0))
    assert run(one.wait_idle(60, stable_s=0))
    assert len(http.calls) == 5
    silent = FakeHttp({"GET /v1/loads": [loads(0), *[Reply(None, error="timeout")] * 100]})
    one = target(silent)
    run(one.wait_idle(3, stable_s=0))
    with pytest.raises(TargetError, match="no answer about its queue"):
        run(one.wait_idle(3, stable_s=0))


# Views


def metrics(requests: float, hits: float = 0.0) -> Reply:
    lines = {
        "sglang:num_requests_total": requests,
        "sglang:prompt_tokens_total": requests * 100,
        "sglang:generation_tokens_total": requests * 10,
        "sglang:cached_tokens_total": hits,
    }
    return Reply(200, "".join(f"{name} {value}\n" for name, value in lines.items()).encode())


def info(pid: int) -> Reply:
    return Reply(200, f'{{"random_seed":{pid},"version":"0.5.20"}}'.encode())


def worker(requests: float, seed: int = 1) -> FakeHttp:
    return FakeHttp({"GET /metrics": metrics(requests), "GET /server_info": info(seed)})


def test_counters_are_summed_over_the_urls() -> None:
    view = run(target(worker(3), worker(4)).view())
    assert view.counters is not None
    assert (view.counters.requests, view.counters.input_tokens) == (7, 700)


def test_one_url_without_counters_makes_the_sum_unknown() -> None:
    assert run(target(worker(3), FakeHttp({})).view()).counters is None


def test_the_identity_changes_with_any_of_the_servers() -> None:
    one = run(target(worker(3, seed=1), worker(3, seed=2)).view()).instance
    other = run(target(worker(3, seed=1), worker(3, seed=3)).view()).instance
    assert one is not None
    assert other is not None
    assert one != other
    assert run(target(worker(3), FakeHttp({})).view()).instance is None


def test_counters_after_the_load_are_awaited_until_they_have_caught_up() -> None:
    clock = FakeClock()
    http = FakeHttp({"GET /metrics": [metrics(10), metrics(12), metrics(14)], "GET /server_info": info(1)})
    before = ServerView("1", Counters(requests=10))
    view = run(target(http, clock=clock).view_after(before, requests=4, settle_s=10))
    assert view.counters is not None
    assert view.counters.requests == 14
    assert clock.ns == 5 * NS_PER_S + 2 * NS_PER_S // 5


def test_counters_that_never_catch_up_are_taken_as_they_are_at_the_limit() -> None:
    clock = FakeClock()
    http = FakeHttp({"GET /metrics": metrics(12), "GET /server_info": info(1)})
    view = run(target(http, clock=clock).view_after(ServerView("1", Counters(requests=10)), 4, settle_s=1))
    assert view.counters is not None
    assert view.counters.requests == 12
    assert clock.ns == 6 * NS_PER_S


def test_without_counters_there_is_nothing_to_await() -> None:
    clock = FakeClock()
    view = run(target(FakeHttp({}), clock=clock).view_after(ServerView(None, None), 4, settle_s=10))
    assert (view.counters, clock.ns) == (None, 5 * NS_PER_S)


# What is left inside


def test_what_is_inside_is_added_over_the_urls_and_unknown_if_one_cannot_tell() -> None:
    one, other = FakeHttp({"GET /v1/loads": loads(2, 1)}), FakeHttp({"GET /v1/loads": loads(0, 4)})
    assert run(target(one, other).inside()) == QueueState(2, 5)
    assert run(target(one, FakeHttp({})).inside()) is None


def test_gauges_that_lag_behind_the_last_answer_are_waited_for() -> None:
    clock = FakeClock()
    http = FakeHttp({"GET /v1/loads": [loads(1), loads(1), loads(0)]})
    assert run(target(http, clock=clock).left_inside(10)) == QueueState(0, 0)
    assert clock.ns == 5 * NS_PER_S + 2 * NS_PER_S // 5
    assert run(target(FakeHttp({"GET /v1/loads": loads(1)})).left_inside(1)) == QueueState(1, 0)


RIDS = ["rb-00001-l-00000000", "rb-00001-l-00000003"]


def test_ghosts_that_end_by_themselves_are_not_aborted() -> None:
    http = FakeHttp({"GET /v1/loads": [loads(2), loads(0)]})
    assert run(target(http).end_ghosts(RIDS, grace_s=5)) == 0
    assert "POST /abort_request" not in http.asked


def test_ghosts_that_go_on_are_aborted_by_their_ids_on_every_url_after_a_while() -> None:
    clock = FakeClock()
    replies = {"GET /v1/loads": loads(1), "POST /abort_request": Reply(200)}
    servers = [FakeHttp(replies), FakeHttp(replies)]
    assert run(target(*servers, clock=clock).end_ghosts(RIDS, grace_s=5)) == 2
    assert clock.ns == (5 + 5) * NS_PER_S
    for http in servers:
        bodies = [body for call, _, body in http.calls if call == "POST /abort_request"]
        assert bodies == [{"rid": rid, "abort_all": False} for rid in RIDS]


def test_an_engine_without_an_abort_is_left_to_end_its_ghosts() -> None:
    vllm = FakeHttp({"GET /metrics": Reply(200, b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n")})
    assert run(target(vllm, engine="vllm").end_ghosts(RIDS, grace_s=1)) == 0
