"""Which value a probe tries next: pure, and always at its answer in few launches."""

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from raybench.deploy.probe import Trial, next_of_bisection, next_of_grid

#: The second seed's grid for DFlash2, with the largest that starts.
GRID = [196608, 188416, 180224, 172032, 163840, 155648]


def play(following: Callable[[Sequence[Trial]], int | None], limit: int) -> tuple[list[int], int | None]:
    """(values in the order of their launches, the largest that started) on a host that holds `limit`."""
    trials: list[Trial] = []
    while (value := following(trials)) is not None:
        assert value not in [trial.value for trial in trials], "a value is launched once"
        trials.append(Trial(value, value <= limit, None, None, None, None, None))
    return [trial.value for trial in trials], max((t.value for t in trials if t.started), default=None)


def test_a_grid_is_tried_from_the_largest_down_until_one_starts() -> None:
    assert play(lambda trials: next_of_grid(sorted(GRID), trials), 160000) == (GRID, 155648)
    assert play(lambda trials: next_of_grid(GRID, trials), 10) == (GRID, None)
    assert play(lambda trials: next_of_grid(GRID, trials), 10**6) == ([196608], 196608)


def test_a_maximum_that_starts_is_the_only_launch() -> None:
    assert play(lambda trials: next_of_bisection(1000, 5000, 100, trials), 5000) == ([5000], 5000)


def test_where_not_even_the_minimum_starts_nothing_more_is_tried() -> None:
    assert play(lambda trials: next_of_bisection(1000, 5000, 100, trials), 999) == ([5000, 1000], None)


@given(st.integers(1, 5000), st.integers(0, 5000), st.integers(1, 700), st.integers(0, 11000))
def test_a_bisection_is_within_a_step_of_the_truth_in_the_logarithm_of_the_steps(
    minimum: int, width: int, step: int, limit: int
) -> None:
    maximum = minimum + width
    tried, found = play(lambda trials: next_of_bisection(minimum, maximum, step, trials), limit)
    assert len(tried) <= 3 + (width // step + 1).bit_length()
    assert all(minimum <= value <= maximum for value in tried)
    if limit < minimum:
        assert found is None
    elif limit >= maximum:
        assert found == maximum
    else:
        assert found is not None
        assert found <= limit < found + step
