"""Joining the Ray of the environment: what is said before Ray itself tries."""

from __future__ import annotations

import socket

import pytest

from raybench.cluster import auth
from raybench.cluster.run import connected
from raybench.errors import ClusterError
from raybench.running import _settle_own_ray


def test_an_address_where_nobody_listens_is_refused_before_ray_tries_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as held:  # bound, so that nobody else takes the port; nobody listens
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with (
            pytest.raises(ClusterError, match=f"no Ray at {address}: Connection refused; RAY_ADDRESS has to"),
            connected(),
        ):
            pass


@pytest.mark.parametrize("address", ["", None])
def test_a_ray_of_its_own_is_settled_where_no_address_is_given(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty variable is none: Ray would be started with neither token nor loopback."""
    settled, given = [], []
    monkeypatch.setattr(auth, "for_own_ray", lambda: settled.append(True))
    monkeypatch.setattr("ray.init", lambda **settings: given.append(settings["address"]))
    if address is None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", address)
    _settle_own_ray()
    with connected():
        pass
    assert (settled, given) == ([True], ["local"])


@pytest.mark.parametrize("address", ["auto", "local", "head:"])
def test_names_that_are_rays_own_are_left_to_ray(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def init(**settings: object) -> None:
        given.append(settings["address"])

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr("ray.init", init)
    with connected():
        pass
    assert given == [address]


def test_a_cluster_of_another_version_is_refused_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**settings: object) -> None:
        raise RuntimeError(
            "Version mismatch: The cluster was started with:\n    Ray: 2.52.1\n    Python: 3.11.7\n"
            "This process on node 10.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
        )

    monkeypatch.setenv("RAY_ADDRESS", "auto")
    monkeypatch.setattr("ray.init", init)
    with pytest.raises(ClusterError) as refused, connected():
        pass
    assert str(refused.value) == (
        "auto: Version mismatch: The cluster was started with: Ray: 2.52.1 Python: 3.11.7 This process on node"
        " 10.0.0.1 was started with: Ray: 2.60.0 Python: 3.11.7 Ray and Python have to be the same everywhere"
    )
