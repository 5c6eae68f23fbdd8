"""Levels: one number of one kind, with a name that reads back."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.scenario.levels import Level

POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
LEVELS = st.one_of(
    st.builds(Level, concurrency=st.integers(1, 10**7)),
    st.builds(Level, rate_per_s=POSITIVE),
    st.builds(Level, trace_speed=POSITIVE),
)


@given(LEVELS)
def test_a_name_and_a_row_read_back_as_the_same_level(level: Level) -> None:
    assert Level.of_name(level.name) == level
    assert Level.of_row(asdict(level)) == level
    assert "/" not in level.name


def test_names_and_labels_are_short() -> None:
    levels = [Level(64), Level(rate_per_s=8.0), Level(rate_per_s=0.5), Level(trace_speed=2.0)]
    assert [level.name for level in levels] == ["c64", "r8", "r0.5", "x2"]
    assert [level.label for level in levels] == ["C=64", "8 req/s", "0.5 req/s", "trace x2"]


def test_levels_sort_by_kind_and_then_by_number() -> None:
    names = ["x1", "r10", "c16", "r2", "c2"]
    ordered = sorted((Level.of_name(name) for name in names), key=lambda level: level.sort_key)
    assert [level.name for level in ordered] == ["c2", "c16", "r2", "r10", "x1"]


@pytest.mark.parametrize(
    "values", [{}, {"concurrency": 1, "rate_per_s": 1.0}, {"concurrency": 0}, {"rate_per_s": float("inf")}]
)
def test_anything_but_one_positive_number_is_no_level(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="one positive number"):
        Level(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "64", "y2", "c1.5", "rx"])
def test_a_text_that_names_no_level_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        Level.of_name(name)
