"""Real Rays: one shared head node for the tests that need a cluster, none for those that bring their own."""

from collections.abc import Iterator

import own_ray
import pytest


@pytest.fixture(scope="session")
def cluster(no_ray_of_the_surroundings: None) -> Iterator[own_ray.OwnRay]:
    """A head node on loopback with a token."""
    with own_ray.head() as started:
        yield started
