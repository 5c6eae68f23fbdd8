"""An arm beside a published table: orders of magnitude, who is ahead, and no verdict."""

from compared_points import point

from raybench.analysis.baseline import beside

RATE, TTFT = "output_tokens_per_s", "ttft_ms_p95"


def test_any_difference_is_told_since_no_verdict_hangs_on_it() -> None:
    """No noise floor: half a percent is an advantage of 1.005."""
    ours, theirs = (
        point(output_tokens_per_s=100.0, ttft_ms_p95=10.0),
        point(output_tokens_per_s=100.5, ttft_ms_p95=10.1),
    )
    rate, ttft = beside([ours], [theirs], (RATE, TTFT))
    assert (rate.ahead, rate.factor, rate.best) == ("baseline", 1.005, False)
    assert (ttft.ahead, round(ttft.factor or 0, 3)) == ("run", 1.01)
    (equal,) = beside([ours], [ours], (RATE,))
    assert (equal.ahead, equal.factor) == (None, 1.0)


def test_the_best_points_stand_beside_each_other_where_the_run_lacks_the_level_of_the_baselines_best() -> None:
    ours = [point(concurrency=level, output_tokens_per_s=10.0 * level) for level in (1, 8)]
    theirs = [point(concurrency=level, output_tokens_per_s=20.0 * level) for level in (1, 64)]
    same, best = beside(ours, theirs, (RATE,))
    assert (same.level_run, same.level_baseline, same.best) == ("c1", "c1", False)
    assert (best.level_run, best.level_baseline, best.best, best.factor) == ("c8", "c64", True, 16.0)
    assert [one.best for one in beside(ours, theirs[:1], (RATE,))] == [False]


def test_with_one_output_token_the_best_point_is_that_of_the_input_throughput() -> None:
    def boundary(level: int, value: float) -> dict[str, object]:
        return point(concurrency=level, output_tokens=1, output_tokens_per_s=1.0 / value, input_tokens_per_s=value)

    (best,) = beside([boundary(1, 5.0), boundary(2, 7.0)], [boundary(3, 14.0)], ("input_tokens_per_s",))
    assert (best.level_run, best.factor) == ("c2", 2.0)
