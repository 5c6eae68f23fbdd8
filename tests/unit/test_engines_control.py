"""Flush, queue, counters, facts and liveness of each engine, from captured and made-up replies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar, get_args

import pytest
from engine_captures import LLAMACPP, SGLANG_9, SGLANG_17, SGLANG_23, VLLM, FakeHttp, capture

from raybench.engines import ENGINES
from raybench.engines.contract import Facts, QueueState, Reply
from raybench.scenario.schema import EngineName

T = TypeVar("T")
SGLANG, VLLM_ENGINE, LLAMA = ENGINES["sglang"], ENGINES["vllm"], ENGINES["llamacpp"]
NOT_FOUND = Reply(404, b'{"detail":"Not Found"}')
REFUSED = Reply(None, error="connection refused")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def reply(engine: str, name: str) -> Reply:
    return capture(engine, name).reply


def test_each_engine_of_the_scenario_schema_is_there() -> None:
    assert set(ENGINES) == set(get_args(EngineName))
    assert all(name == engine.name for name, engine in ENGINES.items())


# SGLang


@pytest.mark.parametrize(
    ("engine", "name", "accepted"),
    [
        (SGLANG_23, "main/09_flush_idle", True),
        (SGLANG_23, "main/34_flush_busy", False),
        (SGLANG_23, "main/36_flush_busy_timeout", False),
        (SGLANG_17, "main/34_flush_busy", False),
        (SGLANG_9, "main/09_flush_idle", True),
        # 0.5.9 refuses with the very text of a success.
        (SGLANG_9, "main/34_flush_busy", False),
    ],
)
def test_o_p1_sglang_is_judged_by_the_status_of_its_flush(engine: str, name: str, accepted: bool) -> None:
    http = FakeHttp({"POST /flush_cache": reply(engine, name)})
    flush = run(SGLANG.flush(http, timeout_s=60))
    assert (flush.accepted, flush.unsupported) == (accepted, False)
    assert http.calls == [("POST /flush_cache", {"timeout": "60"}, None)]


def test_o_p1_a_refusal_of_0_5_9_says_cache_flushed() -> None:
    assert reply(SGLANG_9, "main/34_flush_busy").status == 400
    assert b"Cache flushed" in reply(SGLANG_9, "main/34_flush_busy").body


def test_o_p1_a_server_without_flush_is_unsupported_and_one_without_connection_is_not() -> None:
    missing = run(SGLANG.flush(FakeHttp({}), timeout_s=1))
    assert (missing.accepted, missing.unsupported) == (False, True)
    assert "/flush_cache" in missing.note
    away = run(SGLANG.flush(FakeHttp({"POST /flush_cache": REFUSED}), timeout_s=1))
    assert (away.accepted, away.unsupported, away.reply.summary) == (False, False, "connection refused")


CLEARED = Reply(200, b"Hierarchical cache storage backend cleared.\n")


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/hicache/storage-backend/clear", 1),
        ("/clear_hicache_storage_backend", 2),  # before 0.5.22
    ],
)
def test_a_storage_tier_is_cleared_after_the_flush_under_the_name_of_the_version(path: str, asked: int) -> None:
    info = Reply(200, b'{"hicache_storage_backend":"file"}')
    http = FakeHttp({"POST /flush_cache": Reply(200), "GET /server_info": info, f"POST {path}": CLEARED})
    flush = run(SGLANG.flush(http, timeout_s=60, storage=True))
    assert flush.accepted
    assert flush.note == "storage tier file: HTTP 200 Hierarchical cache storage backend cleared."
    assert http.asked[:2] == ["POST /flush_cache", "GET /server_info"]
    assert len(http.asked) == 2 + asked


@pytest.mark.parametrize(
    ("flush", "info"),
    [
        (Reply(200), b'{"hicache_storage_backend":null}'),
        (Reply(400, b"busy"), b'{"hicache_storage_backend":"file"}'),
    ],
    ids=["no storage tier", "the flush was refused"],
)
def test_a_storage_tier_that_is_not_there_or_not_next_is_left_alone(flush: Reply, info: bytes) -> None:
    http = FakeHttp({"POST /flush_cache": flush, "GET /server_info": Reply(200, info)})
    assert run(SGLANG.flush(http, timeout_s=60, storage=True)).accepted == flush.ok
    assert not [call for call in http.asked if "storage" in call]


def test_a_storage_tier_is_left_alone_unless_it_is_asked_for() -> None:
    info = Reply(200, b'{"hicache_storage_backend":"file"}')
    http = FakeHttp({"POST /flush_cache": Reply(200), "GET /server_info": info})
    run(SGLANG.flush(http, timeout_s=60))
    assert http.asked == ["POST /flush_cache"]


def test_a_flush_that_needs_the_admin_key_says_so() -> None:
    flush = run(SGLANG.flush(FakeHttp({"POST /flush_cache": Reply(401, b"{}")}), timeout_s=1))
    assert (flush.accepted, flush.unsupported) == (False, False)
    assert "admin" in flush.note


@pytest.mark.parametrize(
    ("engine", "loads", "get_load", "state"),
    [
        (SGLANG_23, "main/08_get_v1_loads", "main/07_get_get_load", QueueState(0, 0)),
        (SGLANG_23, "dp2/03_load_under_load", "main/07_get_get_load", QueueState(2, 0)),
        (SGLANG_17, "main/51_load_under_load", "main/52_get_load_under_load", QueueState(24, 10)),
        # 0.5.9 answers 500 on /v1/loads.
        (SGLANG_9, "main/51_load_under_load", "main/52_get_load_under_load", QueueState(7, 11)),
        (SGLANG_9, "main/08_get_v1_loads", "main/07_get_get_load", QueueState(0, 0)),
    ],
)
def test_o_p6_the_queue_is_read_from_whichever_endpoint_answers(
    engine: str, loads: str, get_load: str, state: QueueState
) -> None:
    http = FakeHttp({"GET /v1/loads": reply(engine, loads), "GET /get_load": reply(engine, get_load)})
    assert run(SGLANG.queue(http)) == state
    assert state.idle is (state == QueueState(0, 0))


def test_the_old_endpoint_tells_the_same_as_the_new_one() -> None:
    http = FakeHttp({"GET /get_load": reply(SGLANG_17, "main/52_get_load_under_load")})
    assert run(SGLANG.queue(http)) == QueueState(24, 10)


def test_the_queue_falls_back_to_the_gauges_and_then_to_unknown() -> None:
    http = FakeHttp({"GET /metrics": reply(SGLANG_9, "main/53_metrics_end")})
    assert run(SGLANG.queue(http)) == QueueState(24, 0)
    assert run(SGLANG.queue(FakeHttp({}))) is None
    away = FakeHttp({"GET /v1/loads": REFUSED})
    assert run(SGLANG.queue(away)) is None
    assert away.asked == ["GET /v1/loads"]


@pytest.mark.parametrize("missing", ["num_reqs", "num_waiting_reqs"])
def test_a_rank_that_leaves_out_a_number_makes_the_queue_unknown(missing: str) -> None:
    rank = {"num_reqs": 2, "num_waiting_reqs": 1}
    both = [rank, {name: count for name, count in rank.items() if name != missing}]
    assert run(SGLANG.queue(FakeHttp({"GET /get_load": Reply(200, json.dumps(both).encode())}))) is None


def test_requests_that_wait_in_other_lists_count_as_queued() -> None:
    load = {"num_running_reqs": 1, "num_waiting_reqs": 2, "queues": {"waiting": 2, "grammar": 1, "paused": 4}}
    http = FakeHttp({"GET /v1/loads": Reply(200, json.dumps({"loads": [load]}).encode())})
    assert run(SGLANG.queue(http)) == QueueState(1, 7)


def test_liveness_never_asks_an_endpoint_that_generates() -> None:
    for replies, asked in (
        ({"GET /ping": Reply(200)}, ["GET /ping"]),
        ({"GET /ping": Reply(503)}, ["GET /ping"]),
        ({"GET /ready": Reply(200)}, ["GET /ping", "GET /ready"]),
        ({"GET /v1/models": Reply(200)}, ["GET /ping", "GET /ready", "GET /v1/models"]),
        ({"GET /ping": REFUSED}, ["GET /ping"]),
    ):
        http = FakeHttp(replies)
        alive = run(SGLANG.alive(http))
        assert http.asked == asked
        assert alive == replies[asked[-1]]


def sglang_facts(engine: str, info: str, path: str = "/server_info") -> Facts:
    replies = {f"GET {path}": reply(engine, info), "GET /v1/models": reply(engine, "main/06_get_v1_models")}
    return run(SGLANG.facts(FakeHttp(replies)))


@pytest.mark.parametrize(
    ("engine", "version", "pool"),
    [(SGLANG_23, "0.5.23", 65536), (SGLANG_17, "0.5.17", 262144), (SGLANG_9, "0.5.9", 65536)],
)
def test_facts_of_three_versions_are_read(engine: str, version: str, pool: int) -> None:
    facts = sglang_facts(engine, "main/05_get_server_info")
    assert (facts.engine, facts.version, facts.model) == ("sglang", version, "tiny")
    assert (facts.max_running_requests, facts.kv_pool_tokens) == (32, pool)
    assert (facts.context_tokens, facts.max_input_tokens, facts.page_tokens) == (32768, 32762, 1)
    assert (facts.dp_size, facts.prefix_cache, facts.host_cache, facts.storage_cache) == (1, True, False, None)
    assert facts.incremental_stream is False
    assert facts.raw["server_info"]


@pytest.mark.parametrize("engine", [SGLANG_23, SGLANG_17, SGLANG_9])
def test_facts_know_a_server_that_streams_incrementally(engine: str) -> None:
    assert sglang_facts(engine, "incremental/01_server_info").incremental_stream is True


def test_facts_add_up_data_parallel_ranks_and_name_the_tiers() -> None:
    ranks = sglang_facts(SGLANG_23, "dp2/repeat/01_server_info")
    assert (ranks.dp_size, ranks.kv_pool_tokens, ranks.max_running_requests) == (2, 32768, 64)
    tiers = sglang_facts(SGLANG_17, "hicache-storage/01_server_info")
    assert (tiers.host_cache, tiers.storage_cache, tiers.page_tokens) == (True, "file", 64)


def test_o_p6_facts_are_read_under_the_old_name_of_the_endpoint() -> None:
    facts = sglang_facts(SGLANG_23, "main/05_get_server_info", "/get_server_info")
    assert facts.version == "0.5.23"


def test_facts_of_a_server_that_says_nothing_are_unknown() -> None:
    assert run(SGLANG.facts(FakeHttp({}))) == Facts(engine="sglang")


@pytest.mark.parametrize(
    ("engine", "restarted"),
    [
        (SGLANG_23, "queue-limit/01_server_info"),
        (SGLANG_17, "retract/01_server_info"),
        (SGLANG_9, "queue-limit/01_server_info"),
    ],
)
def test_the_instance_changes_with_a_restart_and_not_otherwise(engine: str, restarted: str) -> None:
    start = sglang_facts(engine, "main/05_get_server_info").instance
    assert start is not None
    assert sglang_facts(engine, "main/54_server_info_end").instance == start
    assert sglang_facts(engine, restarted).instance not in (None, start)


def test_the_instance_changes_with_the_start_when_the_seed_is_fixed() -> None:
    def instance(startup: float) -> str | None:
        info = {"random_seed": 42, "startup_time": {"load_weight": startup}}
        http = FakeHttp({"GET /server_info": Reply(200, json.dumps(info).encode())})
        return run(SGLANG.facts(http)).instance

    assert instance(1.5) == instance(1.5) != instance(1.6)


def test_facts_hold_no_key_of_the_server() -> None:
    info = json.loads(reply(SGLANG_23, "main/05_get_server_info").body)
    info["api_key"] = info["internal_states"][0]["api_key"] = "sk-very-secret"
    info["admin_api_key"] = "adm-very-secret"
    info["launch_command"] += " --api-key sk-very-secret --admin-api-key 'adm-very-secret'"
    http = FakeHttp({"GET /server_info": Reply(200, json.dumps(info).encode())})
    facts = run(SGLANG.facts(http))
    assert "very-secret" not in json.dumps(facts.raw)
    assert "--model-path" in json.dumps(facts.raw)


def test_a_scrape_reads_metrics_once_and_is_none_without_them() -> None:
    http = FakeHttp({"GET /metrics": reply(SGLANG_23, "main/53_metrics_end")})
    scraped = run(SGLANG.scrape(http))
    assert scraped is not None
    assert (scraped[0].cached_tokens, scraped[1].running_requests) == (1601, 0)
    assert http.asked == ["GET /metrics"]
    for other in (NOT_FOUND, REFUSED, Reply(200, b"<html>hello</html>"), Reply(200, b"other_total 1\n")):
        assert run(SGLANG.scrape(FakeHttp({"GET /metrics": other}))) is None


def test_an_abort_names_one_request() -> None:
    http = FakeHttp({"POST /abort_request": Reply(200)})
    assert run(SGLANG.abort(http, "r-000001")) == Reply(200)
    assert http.calls == [("POST /abort_request", {}, {"rid": "r-000001", "abort_all": False})]


# vLLM


def vllm_flush(*replies: Reply) -> tuple[bool, bool, str, int]:
    http = FakeHttp({"POST /reset_prefix_cache": list(replies)})
    flush = run(VLLM_ENGINE.flush(http, timeout_s=5))
    return flush.accepted, flush.unsupported, flush.note, len(http.calls)


def test_o_p2_vllm_is_judged_by_the_body_of_its_reset() -> None:
    done, refused = reply(VLLM, "main/06_reset_idle"), reply(VLLM, "main/25_reset_busy")
    assert (done.status, refused.status) == (200, 200)
    assert vllm_flush(done) == (True, False, "", 1)
    assert vllm_flush(refused, refused)[:3] == (False, False, "")


def test_o_p2_an_empty_200_is_accepted_as_requested_only() -> None:
    accepted, unsupported, note, calls = vllm_flush(Reply(200, b""))
    assert (accepted, unsupported, calls) == (True, False, 1)
    assert "does not say" in note


def test_a_server_without_a_connector_is_asked_again_without_the_outer_tiers() -> None:
    http = FakeHttp(
        {"POST /reset_prefix_cache": [Reply(200, b'{"success":false}'), Reply(200, b'{"success":true}')]}
    )
    flush = run(VLLM_ENGINE.flush(http, timeout_s=5))
    assert (flush.accepted, bool(flush.note)) == (True, True)
    assert [params for _, params, _ in http.calls] == [{"reset_external": "true"}, {}]


def test_a_vllm_without_the_reset_says_how_to_get_it() -> None:
    accepted, unsupported, note, calls = vllm_flush(reply(VLLM, "main/34_error_not_found"))
    assert (accepted, unsupported, calls) == (False, True, 1)
    assert "VLLM_SERVER_DEV_MODE=1" in note


def test_a_failing_reset_is_a_refusal() -> None:
    assert vllm_flush(Reply(500, b"boom"))[:2] == (False, False)
    assert vllm_flush(REFUSED)[:2] == (False, False)


def test_vllm_facts_come_from_version_models_and_metrics() -> None:
    replies = {
        "GET /metrics": reply(VLLM, "main/36_metrics_end"),
        "GET /version": reply(VLLM, "main/02_get_version"),
        "GET /v1/models": reply(VLLM, "main/03_get_v1_models"),
    }
    facts = run(VLLM_ENGINE.facts(FakeHttp(replies)))
    assert (facts.version, facts.model, facts.context_tokens) == ("0.32.0", "tiny", 16384)
    assert (facts.kv_pool_tokens, facts.page_tokens, facts.dp_size) == (524288, 128, 1)
    assert (facts.prefix_cache, facts.host_cache, facts.max_running_requests) == (True, False, None)
    earlier = replies | {"GET /metrics": reply(VLLM, "main/35_metrics_under_load")}
    assert run(VLLM_ENGINE.facts(FakeHttp(earlier))).instance == facts.instance is not None
    restarted = replies["GET /metrics"].body.replace(b"1.79605619653e+09", b"1.79605719653e+09")
    later = replies | {"GET /metrics": Reply(200, restarted)}
    assert run(VLLM_ENGINE.facts(FakeHttp(later))).instance != facts.instance
    assert run(VLLM_ENGINE.facts(FakeHttp({}))).instance is None


def test_vllm_queue_and_counters_come_from_its_metrics() -> None:
    http = FakeHttp({"GET /metrics": reply(VLLM, "main/35_metrics_under_load")})
    assert run(VLLM_ENGINE.queue(http)) == QueueState(20, 4)
    scraped = run(VLLM_ENGINE.scrape(http))
    assert scraped is not None
    counters, gauges = scraped
    assert (counters.requests, counters.input_tokens, counters.output_tokens) == (12, 10900, 2717)
    assert (counters.prefix_queried_tokens, counters.prefix_hit_tokens, counters.preemptions) == (11300, 896, 1)
    assert gauges.kv_usage == pytest.approx(0.0188, rel=1e-3)
    assert gauges.kv_used_tokens == pytest.approx(0.0188034 * 524288, rel=1e-4)
    assert run(VLLM_ENGINE.queue(FakeHttp({}))) is None
    assert run(VLLM_ENGINE.scrape(FakeHttp({}))) is None


def test_o_p6_engines_are_added_created_is_ignored_and_an_old_gauge_is_read() -> None:
    text = (
        'vllm:prefix_cache_hits_total{engine="0"} 32\nvllm:prefix_cache_hits_total{engine="1"} 0\n'
        'vllm:prefix_cache_hits_created{engine="0"} 1.757e9\n'
        'vllm:prefix_cache_queries_total{engine="0"} 3200\nvllm:prefix_cache_queries_total{engine="1"} 3200\n'
    )
    new = run(VLLM_ENGINE.scrape(FakeHttp({"GET /metrics": Reply(200, text.encode())})))
    assert new is not None
    assert (new[0].prefix_hit_tokens, new[0].prefix_queried_tokens) == (32, 6400)
    assert 32 / 6400 == 0.005
    assert (new[1].kv_usage, new[0].requests, new[0].preemptions) == (None, None, None)
    for gauge in ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
        with_gauge = text + f'vllm:{gauge}{{engine="0"}} 0.5\n'
        scraped = run(VLLM_ENGINE.scrape(FakeHttp({"GET /metrics": Reply(200, with_gauge.encode())})))
        assert scraped is not None
        assert scraped[1].kv_usage == 0.5


def test_vllm_hits_of_a_connector_are_added() -> None:
    text = b'vllm:prefix_cache_hits_total{engine="0"} 32\nvllm:external_prefix_cache_hits_total{engine="0"} 100\n'
    scraped = run(VLLM_ENGINE.scrape(FakeHttp({"GET /metrics": Reply(200, text)})))
    assert scraped is not None
    assert scraped[0].prefix_hit_tokens == 132


def test_vllm_is_alive_by_its_passive_health() -> None:
    http = FakeHttp({"GET /health": Reply(200)})
    assert run(VLLM_ENGINE.alive(http)).ok
    assert http.asked == ["GET /health"]
    assert run(VLLM_ENGINE.abort(http, "r")) is None


# llama.cpp


def test_llamacpp_erases_every_slot() -> None:
    erased = reply(LLAMACPP, "main/20_erase_slot_0")
    replies: dict[str, Reply | list[Reply]] = {f"POST /slots/{slot}": erased for slot in range(4)}
    http = FakeHttp(replies | {"GET /props": reply(LLAMACPP, "main/02_get_props")})
    assert run(LLAMA.flush(http, timeout_s=5)).accepted
    assert http.asked == ["GET /props", *(f"POST /slots/{slot}" for slot in range(4))]
    assert http.calls[1] == ("POST /slots/0", {"action": "erase"}, {})


def test_a_llamacpp_that_cannot_erase_is_unsupported_and_one_refusal_is_enough() -> None:
    props = {"GET /props": reply(LLAMACPP, "main/02_get_props")}
    flush = run(LLAMA.flush(FakeHttp(props | {"POST /slots/0": Reply(501, b"{}")}), timeout_s=5))
    assert (flush.accepted, flush.unsupported) == (False, True)
    assert "--slot-save-path" in flush.note
    some = FakeHttp(props | {"POST /slots/0": Reply(200, b"{}"), "POST /slots/1": Reply(400, b"busy")})
    flush = run(LLAMA.flush(some, timeout_s=5))
    assert (flush.accepted, flush.unsupported, flush.reply.status) == (False, False, 400)
    assert len(some.calls) == 3
    assert not run(LLAMA.flush(FakeHttp({}), timeout_s=5)).accepted


def test_llamacpp_facts_queue_and_counters() -> None:
    http = FakeHttp(
        {
            "GET /health": reply(LLAMACPP, "main/01_get_health"),
            "GET /props": reply(LLAMACPP, "main/02_get_props"),
            "GET /v1/models": reply(LLAMACPP, "main/04_get_v1_models"),
            "GET /metrics": reply(LLAMACPP, "main/32_metrics_under_load"),
        }
    )
    facts = run(LLAMA.facts(http))
    assert (facts.model, facts.max_running_requests, facts.context_tokens) == ("tiny", 4, 16384)
    assert facts.instance is not None
    assert facts.version == "b0-unknown"
    assert run(LLAMA.queue(http)) == QueueState(4, 3)
    scraped = run(LLAMA.scrape(http))
    assert scraped is not None
    counters = scraped[0]
    assert (counters.input_tokens, counters.cached_tokens, counters.output_tokens) == (6110, 1092, 968)
    assert (counters.requests, counters.preemptions) == (None, None)
    assert run(LLAMA.alive(http)).ok
    assert run(LLAMA.abort(http, "r")) is None


def test_llamacpp_without_metrics_is_asked_for_its_slots() -> None:
    off = Reply(501, b'{"error":{"message":"start it with --metrics"}}')
    idle = FakeHttp({"GET /metrics": off, "GET /slots": reply(LLAMACPP, "main/03_get_slots")})
    assert run(LLAMA.queue(idle)) == QueueState(0, 0)
    busy = FakeHttp({"GET /metrics": off, "GET /slots": reply(LLAMACPP, "main/26_slots_busy")})
    state = run(LLAMA.queue(busy))
    assert state is not None
    assert state.running >= 1
    assert run(LLAMA.scrape(idle)) is None
    assert run(LLAMA.queue(FakeHttp({}))) is None


def test_llamacpp_with_the_constant_marker_of_old_builds_has_no_instance() -> None:
    http = FakeHttp({"GET /props": Reply(200, b'{"media_marker":"<__media__>","total_slots":1}')})
    assert run(LLAMA.facts(http)).instance is None
