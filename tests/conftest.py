"""Shared by all tests: golden data is found beside the tests, never outside the clone."""

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GOLDEN = Path(__file__).parent / "golden"

# No test asserts a timing, so a busy machine must not fail one.
settings.register_profile("raybench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("raybench")


@pytest.fixture(autouse=True, scope="session")
def no_ray_of_the_surroundings() -> Iterator[None]:
    """Whoever runs the tests may have a cluster of their own in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("RAY_", "RAYBENCH_")):
                patch.delenv(name)
        yield


@pytest.fixture(autouse=True, scope="session")
def no_collection_before_each_load() -> Iterator[None]:
    """A worker has a process for itself, and collects its garbage before each load. Here that would look at
    everything that all tests have made, for each of hundreds of workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raybench.load.worker.no_garbage_collection", nullcontext)
        yield


@pytest.fixture
def golden() -> Path:
    return GOLDEN


def pytest_configure() -> None:
    """Ctrl-C reaches what the tests start, also where the tests themselves run in the background: a shell
    starts background jobs with SIGINT ignored, and children inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
