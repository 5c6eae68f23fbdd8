import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raybench.sim.cache import DeviceCache, HostCache, PrefixHasher

IDS = st.lists(st.integers(0, 3), max_size=40)


@given(left=IDS, right=IDS, page=st.integers(1, 5))
def test_keys_are_equal_exactly_as_long_as_the_prefixes_are(left: list[int], right: list[int], page: int) -> None:
    hasher = PrefixHasher(page)
    keys_left = hasher.keys(np.array(left, np.uint32))
    keys_right = hasher.keys(np.array(right, np.uint32))
    assert (len(keys_left), len(keys_right)) == (len(left) // page, len(right) // page)
    for at, (key_left, key_right) in enumerate(zip(keys_left, keys_right, strict=False)):
        end = (at + 1) * page
        assert (key_left == key_right) == (left[:end] == right[:end])


def test_a_key_is_given_for_full_pages_only_and_does_not_change_when_the_table_grows() -> None:
    hasher = PrefixHasher(2)
    ids = np.arange(5001, dtype=np.uint32)
    early = hasher.keys(ids[:7])
    assert len(early) == 3
    assert hasher.keys(ids)[:3] == early
    assert len(hasher.keys(ids)) == 2500


def test_the_tree_matches_from_the_start_only() -> None:
    tree = DeviceCache()
    tree.insert([1, 2, 3], 0.0)
    assert tree.match([1, 2, 9, 3], 1.0) == 2
    assert tree.match([9, 2, 3], 1.0) == 0


def test_eviction_takes_the_oldest_leaf_and_never_a_page_before_its_children() -> None:
    tree = DeviceCache()
    tree.insert([1, 2, 3], 0.0)
    tree.insert([1, 4], 5.0)
    assert tree.evict(2) == 2
    assert tree.match([1, 2, 3], 6.0) == 1
    assert tree.match([1, 4], 6.0) == 2
    assert tree.evict(9) == 2
    assert len(tree) == tree.evictable == 0


def test_a_locked_page_stays_and_is_not_evictable() -> None:
    tree = DeviceCache()
    tree.insert([1, 2, 3], 0.0)
    tree.lock([1, 2])
    assert tree.evictable == 1
    assert tree.evict(3) == 1
    tree.unlock([1, 2])
    assert tree.evictable == 2


def test_inserting_again_gives_only_what_is_new() -> None:
    tree = DeviceCache()
    assert tree.insert([1, 2], 0.0) == [1, 2]
    assert tree.insert([1, 2, 3], 0.0) == [3]


def test_the_host_tier_lets_the_oldest_go_and_keeps_the_start_of_a_prefix_longest() -> None:
    host = HostCache(4)
    assert host.store([1, 2, 3]) == 3
    assert host.store([1, 2, 3]) == 0
    host.store([7, 8])
    assert len(host) == 4
    assert host.match([7, 8]) == 2
    assert host.match([1, 2, 3]) == 2


def test_a_host_tier_of_no_capacity_holds_nothing() -> None:
    host = HostCache(0)
    assert host.store([1]) == 0
    assert host.match([1]) == 0
