"""Asking the Job API about a run: what it cannot say is explained, and a break in between is waited out."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from raybench.cluster import submit
from raybench.errors import ClusterError


class Api:
    """A Job API whose status calls fail `failures` times, then say that the job has succeeded."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures = failures
        self.error = error

    async def tail_job_logs(self, _job: str) -> AsyncIterator[str]:
        yield "one\ntw"
        raise RuntimeError("WebSocket connection closed unexpectedly")

    def get_job_logs(self, _job: str) -> str:
        return "one\ntwo\n"

    def get_job_status(self, _job: str) -> Any:
        if self.failures:
            self.failures -= 1
            raise self.error
        return SimpleNamespace(value="SUCCEEDED", is_terminal=lambda: True)

    def stop_job(self, _job: str) -> bool:
        raise self.error


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "RECONNECT_S", 0.0)


def follow(api: Api) -> tuple[str, list[str]]:
    said: list[str] = []
    return submit.follow(api, "job-1", lambda event: None, said.append), said  # type: ignore[arg-type]


def test_a_broken_connection_is_waited_out_and_no_line_is_lost_or_doubled() -> None:
    assert follow(Api(3, ConnectionError("refused"))) == ("SUCCEEDED", ["one", "two"])


def test_a_cluster_that_stays_away_is_an_error_that_says_where_the_records_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submit, "RECONNECT_LIMIT_S", 0.0)
    with pytest.raises(ClusterError, match=r"nothing of the job job-1 \(refused\).* on its head node"):
        follow(Api(10**9, ConnectionError("refused")))


def test_a_job_that_the_cluster_does_not_know_is_no_traceback() -> None:
    unknown = RuntimeError("Request failed with status code 404:\nJob job-1 does not exist")
    with pytest.raises(ClusterError, match=r"\(Job job-1 does not exist\)"):
        submit.stop(Api(0, unknown), "job-1")  # type: ignore[arg-type]


TRACEBACK = [
    "Traceback (most recent call last):",
    "    import typer",
    "ModuleNotFoundError: No module named 'typer'",
]


def test_a_job_whose_python_lacks_a_module_is_told_where_python_comes_from() -> None:
    end = submit.unexplained_end("FAILED", TRACEBACK)
    assert end["exit_code"] == 3
    assert end["message"].endswith(f"No module named 'typer'\n{submit.MODULE_WAY_OUT}")


@pytest.mark.parametrize("said", [[], ["Killed"]])
def test_any_other_end_is_told_by_its_last_words_alone(said: list[str]) -> None:
    end = submit.unexplained_end("FAILED", said)
    assert end["message"] == "\n".join(
        ["the job ended as FAILED without an outcome" + "; its last words:" * bool(said), *said]
    )


def test_a_stopped_job_is_no_failure_of_the_cluster() -> None:
    assert submit.unexplained_end("STOPPED", ["Killed"]) == {"message": "the run was stopped", "exit_code": 1}
