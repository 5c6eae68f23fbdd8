"""What a claim is named after: the server, however its address is written (case O-R2)."""

import pytest

from raybench.cluster.claims import server_key


@pytest.mark.parametrize(
    "url",
    ["http://GPU-host:30000", "http://gpu-host:30000/", "http://gpu-host.:30000/v1", "https://gpu-host:30000"],
)
def test_o_r2_a_server_is_one_server_however_its_address_is_written(url: str) -> None:
    assert server_key(url) == server_key("http://gpu-host:30000")


def test_a_port_that_is_not_written_is_the_schemes() -> None:
    assert server_key("http://gpu-host") == server_key("http://gpu-host:80")
    assert server_key("https://gpu-host/") == server_key("http://gpu-host:443")


@pytest.mark.parametrize("url", ["http://gpu-host:30001", "http://gpu-host2:30000", "http://[::1]:30000"])
def test_other_servers_have_other_names(url: str) -> None:
    assert server_key(url) != server_key("http://gpu-host:30000")
