"""Histograms that engines keep of themselves: read from captured pages, subtracted, and asked for percentiles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest
from engine_captures import LLAMACPP, SGLANG_9, SGLANG_17, SGLANG_23, VLLM, FakeHttp, capture
from hypothesis import given
from hypothesis import strategies as st

from raybench.analysis.stats import nearest_rank
from raybench.engines import ENGINES
from raybench.engines.contract import Reply
from raybench.engines.histogram import Histogram

SERIES = b"vllm:time_to_first_token_seconds"
BOUNDS = (0.1, 0.5, 1.0, 5.0)


def histogram_of(values: Sequence[float]) -> Histogram:
    buckets = tuple((bound, float(sum(value <= bound for value in values))) for bound in BOUNDS)
    return Histogram(float(len(values)), sum(values), buckets)


def read(engine: str, page: Reply) -> dict[str, Histogram]:
    return dict(asyncio.run(ENGINES[engine].latencies(FakeHttp({"GET /metrics": page}))))


@pytest.mark.parametrize(
    ("folder", "name", "engine", "prefix", "names"),
    [
        (SGLANG_23, "main/53_metrics_end", "sglang", "sglang:", {"ttft", "e2e", "tpot", "itl", "queue"}),
        (SGLANG_17, "main/53_metrics_end", "sglang", "sglang:", {"ttft", "e2e", "itl", "queue"}),
        (SGLANG_9, "main/53_metrics_end", "sglang", "sglang:", {"ttft", "e2e", "itl", "queue"}),
        (VLLM, "main/36_metrics_end", "vllm", "vllm:", {"ttft", "e2e", "tpot", "itl", "queue"}),
    ],
)
def test_the_histograms_of_real_pages_are_read_with_all_their_series(
    folder: str, name: str, engine: str, prefix: str, names: set[str]
) -> None:
    page = capture(folder, name).reply
    found = read(engine, page)
    assert set(found) == names
    ttft, text = found["ttft"], page.body.decode()

    def summed(part: str) -> float:  # independent of our reader: over streaming and other answers
        lines = re.findall(rf"^{prefix}time_to_first_token_seconds_{part}{{.*}} (\S+)$", text, re.MULTILINE)
        return sum(map(float, lines))

    assert (ttft.count, ttft.sum_s) == (summed("count"), pytest.approx(summed("sum")))
    pattern = rf'^{prefix}time_to_first_token_seconds_bucket{{.*le="([0-9.]+)".*}} (\S+)$'
    up_to: dict[float, float] = {}
    for bound, count in re.findall(pattern, text, re.MULTILINE):
        up_to[float(bound)] = up_to.get(float(bound), 0.0) + float(count)
    assert dict(ttft.buckets) == up_to
    assert 0 < max(up_to.values()) <= ttft.count
    assert [bound for bound, _ in ttft.buckets] == sorted(bound for bound, _ in ttft.buckets)


def test_an_engine_without_histograms_or_without_metrics_has_none() -> None:
    assert read("llamacpp", capture(LLAMACPP, "main/33_metrics_end").reply) == {}
    assert read("openai", Reply(200, b"")) == {}
    assert read("sglang", Reply(404, b"")) == {}
    assert read("sglang", Reply(200, b"<html>")) == {}
    assert read("vllm", Reply(200, SERIES + b"_count 1\n")) == {}
    for bound in (b"", b'{le="0.x"}', b'{le="+Inf"} 1\n' + SERIES + b"_bucket"):
        page = SERIES + b"_count 1\n" + SERIES + b"_sum 1\n" + SERIES + b"_bucket" + bound + b" 1\n"
        assert read("vllm", Reply(200, page)) == {}


@given(st.lists(st.floats(0.01, 9), max_size=30), st.lists(st.floats(0.01, 9), min_size=1, max_size=30))
def test_a_difference_holds_the_percentiles_of_what_came_between(
    before: list[float], between: list[float]
) -> None:
    later = histogram_of([*before, *between]).since(histogram_of(before) if before else None)
    assert later.count == len(between)
    assert later.mean_s == pytest.approx(sum(between) / len(between))
    for percent in (1, 50, 95, 99, 100):
        value, bounds = nearest_rank(between, percent), later.bounds_s(percent)
        assert value is not None and bounds is not None
        above, up_to = bounds
        assert above < value
        assert up_to is None or value <= up_to


def test_servers_are_summed_by_bucket_and_lose_their_buckets_where_those_differ() -> None:
    one, other = histogram_of([0.05, 0.4]), histogram_of([0.7])
    assert one.plus(other) == histogram_of([0.05, 0.4, 0.7])
    assert one.plus(Histogram(1, 2.0, ((3.0, 1.0),))) == Histogram(3, pytest.approx(2.45), ())
    assert Histogram.of_record(vars(one)) == one


def test_nothing_observed_has_no_mean_and_no_percentile() -> None:
    nothing = histogram_of([0.3]).since(histogram_of([0.3]))
    assert (nothing.mean_s, nothing.bounds_s(50)) == (None, None)
    assert Histogram(3, 1.0).bounds_s(50) is None
