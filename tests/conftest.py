"""Shared by all tests: golden data is found beside the tests, never outside the clone."""

from pathlib import Path

import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# No test asserts a timing, so a busy machine must not fail one.
settings.register_profile("raybench", deadline=None)
settings.load_profile("raybench")


@pytest.fixture
def golden() -> Path:
    return GOLDEN
