"""deploy/links.py: a link that was away is counted, and what cannot be known is not called zero."""

from pathlib import Path

import pytest

from raybench.deploy.links import LinkWatch, own_address


@pytest.fixture
def loopback(tmp_path: Path) -> Path:
    """A counter for the interface that leads to this host itself."""
    counter = tmp_path / "lo" / "carrier_changes"
    counter.parent.mkdir()
    counter.write_text("4\n")
    return counter


def test_a_link_that_went_and_came_back_has_changed_twice(loopback: Path) -> None:
    watch = LinkWatch(["127.0.0.1"], loopback.parents[1])
    assert watch.changes() == 0
    loopback.write_text("6\n")
    assert watch.changes() == 2


def test_urls_and_source_addresses_name_their_links() -> None:
    # by the real counter of this machine
    assert (
        LinkWatch.of_routes(["http://127.0.0.1:30000/v1", "http://localhost:30001"], ["127.0.0.1"]).changes() == 0
    )


def test_links_to_several_peers_are_each_counted_once(loopback: Path) -> None:
    watch = LinkWatch(["127.0.0.1", "127.0.0.1"], loopback.parents[1])
    loopback.write_text("6\n")
    assert watch.changes() == 2


def test_a_change_of_one_link_is_told_though_nothing_is_known_of_another(loopback: Path) -> None:
    watch = LinkWatch(["127.0.0.1", "not a host name"], loopback.parents[1])
    assert watch.changes() is None
    loopback.write_text("6\n")
    assert watch.changes() == 2


def test_where_no_link_is_used_none_changes() -> None:
    assert LinkWatch([]).changes() == 0


@pytest.mark.parametrize("text", [None, "", "many"])
def test_without_a_counter_nothing_is_known(loopback: Path, text: str | None) -> None:
    watch = LinkWatch(["127.0.0.1"], loopback.parents[1])
    if text is None:
        loopback.unlink()
    else:
        loopback.write_text(text)
    assert watch.changes() is None


def test_without_a_way_to_the_peer_nothing_is_known(tmp_path: Path) -> None:
    assert own_address("not a host name") is None
    assert LinkWatch(["not a host name"], tmp_path).changes() is None
