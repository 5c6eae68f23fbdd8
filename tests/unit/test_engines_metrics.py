"""Prometheus text: names compared whole, ranks added, twins not."""

from __future__ import annotations

import pytest
from engine_captures import SGLANG_9, SGLANG_17, SGLANG_23, capture

from raybench.engines import sglang_metrics
from raybench.engines.contract import Counters, QueueState
from raybench.engines.metrics import Metrics


def test_ranks_are_added_and_created_stamps_are_not() -> None:
    metrics = Metrics('hits_total{engine="0"} 32\nhits_total{engine="1"} 1\nhits_created{engine="0"} 1.757e9\n')
    assert metrics.total("hits_total") == 33
    assert metrics.total("hits_total", engine="1") == 1
    assert metrics.total("hits") is None
    assert metrics.highest("nothing") is None


def test_of_pipeline_and_tensor_ranks_only_the_lowest_counts() -> None:
    series = [
        ('dp_rank="0",tp_rank="0",pp_rank="1"', 7),
        ('dp_rank="0",tp_rank="1",pp_rank="0"', 5),
        ('dp_rank="0",tp_rank="0",pp_rank="0"', 3),
        ('dp_rank="1",tp_rank="2",pp_rank="0"', 10),
        ('dp_rank="1",tp_rank="3",pp_rank="0"', 20),
    ]
    metrics = Metrics("".join(f"sglang:n{{{labels}}} {value}\n" for labels, value in series))
    assert metrics.total("sglang:n") == 13
    assert metrics.highest("sglang:n") == 10


def test_a_value_that_is_no_number_is_unknown() -> None:
    assert Metrics("a NaN\n").total("a") is None


def test_text_that_is_not_prometheus_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r".+"):
        Metrics("<html><body>hello</body></html>")


def sglang_counters(text: str) -> Counters:
    return sglang_metrics.counters(Metrics(text))


def test_a_counter_of_sglang_that_was_never_used_is_zero_where_the_version_has_it() -> None:
    idle = sglang_counters('sglang:num_running_reqs{tp_rank="0"} 0\nsglang:kv_used_tokens{tp_rank="0"} 0\n')
    assert idle == Counters(0, 0, 0, 0, 0, 0, 0)
    old = sglang_counters('sglang:num_running_reqs{tp_rank="0"} 0\n')
    assert old.preemptions is None


def test_cached_tokens_by_tier_are_added_unless_there_is_a_total() -> None:
    tiers = [('"device"', 100), ('"storage_File"', 20)]
    text = "".join(f"sglang:cached_tokens_total{{cache_source={source}}} {n}\n" for source, n in tiers)
    assert sglang_counters(text).cached_tokens == 120
    assert sglang_counters(text + 'sglang:cached_tokens_total{cache_source="total"} 120\n').cached_tokens == 120


def test_prefix_hits_of_all_tiers_are_added() -> None:
    name = "sglang:prefill_effective_tokens_total"
    modes = {"input": 1000, "device_hit": 100, "host_hit": 20, "storage_hit": 3}
    lines = [f'{name}{{mode="{mode}",tp_rank="0"}} {n}\n' for mode, n in modes.items()]
    counters = sglang_counters("".join(lines))
    assert (counters.prefix_queried_tokens, counters.prefix_hit_tokens) == (1123, 123)
    without_storage = sglang_counters("".join(lines[:-1]))
    assert (without_storage.prefix_queried_tokens, without_storage.prefix_hit_tokens) == (1120, 120)


def test_requests_that_wait_for_a_grammar_are_queued() -> None:
    text = "sglang:num_running_reqs 3\nsglang:num_queue_reqs 1\n"
    assert sglang_metrics.queue_state(Metrics(text)) == QueueState(3, 1)
    assert sglang_metrics.queue_state(Metrics(text + "sglang:num_grammar_queue_reqs 2\n")) == QueueState(3, 3)


@pytest.mark.parametrize(
    ("engine", "name", "expected"),
    [
        (SGLANG_23, "main/10_metrics_idle", Counters(1, 19, 8, 0, 22, 0, 0)),
        (SGLANG_23, "main/53_metrics_end", Counters(47, 14273, 2352, 1601, 14276, 1601, 0)),
        (SGLANG_17, "main/53_metrics_end", Counters(70, 23809, 10643, 1601, 23809, 1601, 0)),
        (SGLANG_9, "main/53_metrics_end", Counters(47, 14273, 2766, 1601, 14273, 1601, 0)),
        (SGLANG_23, "retract/07_metrics_after", Counters(25, 4819, 9608, 0, 4820, 0, 2)),
        (SGLANG_17, "retract/07_metrics_after", Counters(25, 4819, 9608, 0, 4819, 0, 1)),
        (SGLANG_9, "retract/07_metrics_after", Counters(25, 4819, 9608, 0, 4819, 0, 6)),
        (SGLANG_23, "dp2/05_metrics_after", Counters(14, 2438, 304, 0, 2439, 0, 0)),
        (SGLANG_17, "hicache-storage/06_metrics_after_flush", Counters(4, 6019, 20, 3968, 6019, 3968, 0)),
    ],
)
def test_o_p6_counters_of_three_versions_are_read(engine: str, name: str, expected: Counters) -> None:
    assert sglang_counters(capture(engine, name).body.decode()) == expected


def test_gauges_are_read_under_load() -> None:
    gauges = sglang_metrics.gauges(Metrics(capture(SGLANG_9, "main/53_metrics_end").body.decode()))
    assert (gauges.running_requests, gauges.queued_requests) == (24, 0)
    assert (gauges.kv_used_tokens, gauges.kv_usage) == (10944, pytest.approx(0.16699, rel=1e-4))
    assert gauges.output_tokens_per_s == pytest.approx(532.39, rel=1e-4)
    assert gauges.accept_length is None
