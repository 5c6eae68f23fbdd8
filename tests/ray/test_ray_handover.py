"""The closed loop over workers on two hosts, by the engine's own account."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import network
import pytest
import ray_product as product
import spread_load

pytestmark = pytest.mark.netns


@pytest.fixture
def two_hosts(tmp_path: Path, no_ray_of_the_surroundings: None) -> Iterator[spread_load.Place]:
    try:
        with spread_load.two_hosts(tmp_path) as place:
            yield place
    except network.Unavailable as why:
        pytest.skip(str(why))


def test_o_l1_64_requests_over_4_workers_on_two_hosts_and_never_one_more(
    tmp_path: Path, two_hosts: spread_load.Place
) -> None:
    """Requests differ 100-fold, so that each worker runs dry at another time and gets what others hold."""
    run, seen = spread_load.carry_out(two_hosts, tmp_path, requests=256, compression=5)
    assert (seen.trace.peak, len(seen.rids)) == (64, 256)
    assert sorted(int(rid.rpartition("-")[2]) for rid in seen.rids) == list(range(256))

    row = product.points(run)[spread_load.POINT]
    assert (row["verdict"], row["requests_ok"], row["in_flight_peak"]) == ("accepted", 256, 64)
    rows = product.requests(run)
    assert sorted(rows["ticket"].to_pylist()) == list(range(256))
    sent = Counter(rows["worker"].to_pylist())
    assert set(sent) == {"w000", "w001", "w002", "w003"}
    assert min(sent.values()) >= 16, "each worker filled its slots at least once"
