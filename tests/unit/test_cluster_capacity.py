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
)
from raybench.deploy.facts import host_facts
from raybench.errors import ClusterError


def test_streams_that_fit_are_not_refused() -> None:
    refuse_beyond(1000, [Host("a", 1000 + OWN_FILES, 1000 + SPARE_PORTS)])


def test_one_stream_more_than_the_open_files_allow_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(ClusterError, match=r"1001 streams a worker.* 256 handles .* 1256 open files"):
        refuse_beyond(1001, [Host("a", 1000 + OWN_FILES, None)])


def test_more_workers_share_the_handles_but_not_the_ports_of_a_host() -> None:
    host = Host("a", 600 + OWN_FILES, 1000 + SPARE_PORTS)
    refuse_beyond(1000, [host, host])
    with pytest.raises(ClusterError, match="1100 streams from a exceed its 1512 local ports"):
        refuse_beyond(1100, [host, host])
    refuse_beyond(1100, [host, Host("b", None, None)])


def test_what_the_system_does_not_say_refuses_nothing() -> None:
    refuse_beyond(10**6, [Host("a", None, None)])


def test_the_facts_of_this_host_are_understood() -> None:
    host = Host.of_facts("here", host_facts())
    assert host.local_ports is None or host.local_ports > 1000
    assert host.open_files_max is None or host.open_files_max > 0


def test_an_open_loop_may_come_to_all_its_requests_but_is_refused_nothing_for_it() -> None:
    rate = "\n  - {name: rate, input_tokens: 64, output_tokens: 4, rate_per_s: [1000000], requests: 9000}"
    both = scenario(TWO + rate)
    assert (highest_concurrency(both), most_streams(both)) == (3, 9000)
    assert (highest_concurrency(scenario(TWO)), most_streams(scenario(TWO))) == (3, 3)
    assert highest_concurrency(scenario(rate)) == 0
