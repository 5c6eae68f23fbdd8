"""What a host cannot open is refused before the first request, with the arithmetic."""

import pytest
from protocol_fakes import TWO, scenario

from raybench.cluster.capacity import (
    OWN_FILES,
    SPARE_PORTS,
    Host,
    highest_concurrency,
    most_streams,
    refuse_beyond,
    refuse_foreign_sources,
    refuse_what_hosts_cannot,
)
from raybench.deploy.facts import host_facts
from raybench.errors import ClusterError
from raybench.scenario.load import parse_scenario


def test_streams_that_fit_are_not_refused() -> None:
    refuse_beyond(1000, [Host("a", 1000 + OWN_FILES, 1000 + SPARE_PORTS)])


def test_one_stream_more_than_the_open_files_allow_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(ClusterError, match=r"1001 streams a worker.* 256 handles .* 1256 open files"):
        refuse_beyond(1001, [Host("a", 1000 + OWN_FILES, None)])


def test_more_workers_share_the_handles_but_not_the_ports_of_a_host() -> None:
    host = Host("a", 600 + OWN_FILES, 1000 + SPARE_PORTS)
    refuse_beyond(1000, [host, host])
    with pytest.raises(
        ClusterError, match=r"1100 streams from a .*\(1512 - 512 kept free\) x 1 source address x 1 target = 1000"
    ):
        refuse_beyond(1100, [host, host])
    refuse_beyond(1100, [host, Host("b", None, None)])


def test_what_the_system_does_not_say_refuses_nothing() -> None:
    refuse_beyond(10**6, [Host("a", None, None)])


def test_the_facts_of_this_host_are_understood() -> None:
    facts = host_facts()
    host = Host.of_facts("here", facts)
    assert host.open_files_max == facts["open_files_max"]["hard"]  # type: ignore[index]
    assert host.local_ports is not None and host.local_ports > 1000, "Linux tells its range"


def test_an_open_loop_may_come_to_all_its_requests_but_is_refused_nothing_for_it() -> None:
    rate = "\n  - {name: rate, input_tokens: 64, output_tokens: 4, rate_per_s: [1000000], requests: 9000}"
    both = scenario(TWO + rate)
    assert (highest_concurrency(both.workloads), most_streams(both)) == (3, 9000)
    assert (highest_concurrency(scenario(TWO).workloads), most_streams(scenario(TWO))) == (3, 3)
    assert highest_concurrency(scenario(rate).workloads) == 0


def test_each_pair_of_a_source_address_and_a_target_has_its_own_ports() -> None:
    host = Host("a", None, 28_232, sources=2)
    refuse_beyond(100_000, [host], targets=2)
    with pytest.raises(ClusterError, match="x 2 source addresses x 1 target = 55440"):
        refuse_beyond(100_000, [host])


def test_the_streams_that_a_host_can_hold_are_what_is_not_refused() -> None:
    host = Host("a", 1000 + OWN_FILES, 1500 + SPARE_PORTS)
    assert host.streams_max(1, 1) == 1000
    assert host.streams_max(2, 1) == 1500
    assert Host("a", None, None).streams_max(1, 1) is None
    assert (host.narrowest(1, 1), host.narrowest(2, 1)) == ("file handles", "local ports")


def test_every_host_has_a_source_address_and_every_address_a_host() -> None:
    refuse_foreign_sources([], [("a", []), ("b", [])])
    refuse_foreign_sources(["10.0.0.1", "10.0.0.2"], [("a", ["10.0.0.1"]), ("b", ["10.0.0.2"])])
    with pytest.raises(ClusterError, match=r"10\.0\.0\.9: no address of any client host; b has none of them"):
        refuse_foreign_sources(["10.0.0.1", "10.0.0.9"], [("a", ["10.0.0.1"]), ("b", [])])


TWO_ARMS = """
name: s
arms:
  one: {url: "http://a:1"}
  two: {url: "http://b:1", load_urls: ["http://b:2", "http://b:3"]}
workloads:
  - {name: w, input_tokens: 16, output_tokens: 16, concurrency: [8, 80000], requests: 80000, arms: [two]}
  - {name: v, input_tokens: 16, output_tokens: 16, concurrency: [8], requests: 8}
corpus: {synthetic: {}}
load: {source_addresses: [10.0.0.1, 10.0.0.2]}
"""


def test_each_arm_is_held_against_its_own_targets_and_the_sources_of_each_host() -> None:
    scenario = parse_scenario(TWO_ARMS, "s.yaml")
    facts = {"open_files_max": {"hard": None}, "local_ports": [32768, 60999]}
    both = {"host": "a", "facts": facts, "source_addresses": ["10.0.0.1", "10.0.0.2"]}
    refuse_what_hosts_cannot(scenario, [both])
    one_each = [
        {**both, "source_addresses": ["10.0.0.1"]},
        {**both, "host": "b", "source_addresses": ["10.0.0.2"]},
    ]
    refuse_what_hosts_cannot(scenario, one_each)
    two = scenario.arms["two"].model_copy(update={"load_urls": ["http://b:2"]})
    fewer = scenario.model_copy(
        update={
            "load": scenario.load.model_copy(update={"source_addresses": ["10.0.0.1"]}),
            "arms": {**scenario.arms, "two": two},
        }
    )
    with pytest.raises(ClusterError, match=r"80000 streams from a .* x 1 source address x 2 targets = 55440"):
        refuse_what_hosts_cannot(fewer, [{**both, "source_addresses": ["10.0.0.1"]}])
