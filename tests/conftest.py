"""Shared by all tests: golden data is found beside the tests, never outside the clone."""

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Path:
    return GOLDEN
