"""Connections are spread over routes as evenly as whole numbers allow, whatever ends meanwhile."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.errors import ConfigError
from raybench.load.routes import Route, Routes, own_addresses, require_own

URLS = ["http://a:1/", "http://b:1"]


def test_without_sources_the_system_chooses_and_urls_lose_their_slash() -> None:
    assert Routes([], URLS).all == [Route(None, "http://a:1"), Route(None, "http://b:1")]


def test_every_source_meets_every_url() -> None:
    routes = Routes(["10.0.0.1", "10.0.0.2"], URLS)
    assert {routes.take() for _ in range(4)} == set(routes.all)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=9))
def test_workers_that_begin_where_the_one_before_ends_share_evenly(shares: list[int]) -> None:
    taken: Counter[Route] = Counter()
    before = 0
    for share in shares:
        routes = Routes(["10.0.0.1"], ["http://a:1", "http://b:1", "http://c:1"], before)
        taken.update(routes.take() for _ in range(share))
        before += share
    counts = [taken[route] for route in routes.all]
    assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(0, 3)))
def test_what_was_given_back_is_taken_first(ended: list[int]) -> None:
    routes = Routes([], [f"http://h{number}:1" for number in range(4)])
    used = Counter(routes.take() for _ in range(40))
    for number in ended:
        route = routes.all[number]
        if used[route]:
            used[route] -= 1
            routes.give_back(route)
    while sum(used.values()) < 60:
        used[routes.take()] += 1
    assert max(used.values()) - min(used.values()) <= 1


def test_addresses_of_this_host_are_found_by_trying() -> None:
    # 203.0.113.0/24 is kept for documentation (RFC 5737): no host has an address of it.
    assert own_addresses(["127.0.0.1", "203.0.113.7", "127.0.0.9"]) == ["127.0.0.1", "127.0.0.9"]


def test_a_host_with_none_of_the_addresses_is_refused_with_the_way_out() -> None:
    assert require_own([]) == []
    with pytest.raises(ConfigError, match=r"load\.source_addresses: none of these .*203\.0\.113\.7.*ip addr"):
        require_own(["203.0.113.7"])
