"""Real Rays: one shared head node for the tests that need a cluster, none for those that bring their own."""

import os
from collections.abc import Iterator

import own_ray
import pytest


@pytest.fixture(autouse=True, scope="session")
def no_ray_of_the_surroundings() -> Iterator[None]:
    """Whoever runs the tests may have a cluster of their own in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("RAY_", "RAYBENCH_")):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def cluster(no_ray_of_the_surroundings: None) -> Iterator[own_ray.OwnRay]:
    """A head node on loopback with a token."""
    with own_ray.head() as started:
        yield started
