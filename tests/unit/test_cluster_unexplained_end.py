"""What `submit` says of a job that ended before its driver could."""

from __future__ import annotations

import pytest

from raybench.cluster.submit import MODULE_WAY_OUT, unexplained_end

TRACEBACK = [
    "Traceback (most recent call last):",
    "    import typer",
    "ModuleNotFoundError: No module named 'typer'",
]


def test_a_job_whose_python_lacks_a_module_is_told_where_python_comes_from() -> None:
    end = unexplained_end("FAILED", TRACEBACK)
    assert end["exit_code"] == 3
    assert end["message"].endswith(f"No module named 'typer'\n{MODULE_WAY_OUT}")


@pytest.mark.parametrize("said", [[], ["Killed"]])
def test_any_other_end_is_told_by_its_last_words_alone(said: list[str]) -> None:
    end = unexplained_end("FAILED", said)
    assert end["message"] == "\n".join(
        ["the job ended as FAILED without an outcome" + "; its last words:" * bool(said), *said]
    )


def test_a_stopped_job_is_no_failure_of_the_cluster() -> None:
    assert unexplained_end("STOPPED", ["Killed"]) == {"message": "the run was stopped", "exit_code": 1}
