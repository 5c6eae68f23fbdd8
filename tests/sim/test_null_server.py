"""The server of `raybench roofline`, as a process of its own: it streams at its pace and tells the truth."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

LIMIT_S = 300.0
COMMAND = [sys.executable, "-m", "raybench.sim.null_server"]


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process and its port."""
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert (ready["ready"], ready["pid"]) == (True, process.pid)
            yield process, int(ready["url"].rpartition(":")[2])
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as (_, number):
        yield number


@contextmanager
def connection(port: int) -> Iterator[http.client.HTTPConnection]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        yield line
    finally:
        line.close()


def ask(port: int, method: str, path: str, body: object = None) -> dict[str, Any]:
    with connection(port) as line:
        line.request(method, path, None if body is None else json.dumps(body))
        reply = line.getresponse()
        assert reply.status == 200
        return dict(json.loads(reply.read()))


def stream(line: http.client.HTTPConnection, rid: str, tokens: int) -> list[str]:
    """The events of one answer, without their `data: `."""
    line.request("POST", "/v1/completions", json.dumps({"rid": rid, "max_tokens": tokens}))
    reply = line.getresponse()
    assert reply.status == 200
    return [event.removeprefix("data: ") for event in reply.read().decode().split("\n\n") if event]


def test_a_stream_has_one_event_a_token_then_usage_and_the_end(port: int) -> None:
    with connection(port) as line:
        *events, done = stream(line, "a", 5)
    choices = [json.loads(event)["choices"] for event in events]
    assert [one["text"] for (one,) in choices[:-1]] == [" token"] * 5
    assert [one["finish_reason"] for (one,) in choices[:-1]] == [None] * 4 + ["length"]
    assert choices[-1] == []
    assert json.loads(events[-1])["usage"]["completion_tokens"] == 5
    assert done == "[DONE]"


def test_writes_are_told_by_request_id_and_lie_between_asking_and_reading(port: int) -> None:
    ask(port, "POST", "/null/pace", {"ttft_ms": 30, "gap_ms": 10})
    begin = time.monotonic_ns()
    with connection(port) as line:  # one connection, one request after the other
        stream(line, "first", 4)
        stream(line, "second", 1)
    end = time.monotonic_ns()
    told = ask(port, "GET", "/null/truth")
    assert {rid: len(writes) for rid, writes in told["writes"].items()} == {"first": 4, "second": 1}
    stamps = [*told["writes"]["first"], *told["writes"]["second"]]
    assert stamps == sorted(stamps)
    assert begin < stamps[0] <= stamps[-1] < end
    # Pauses may make a write late, never early: the schedule counts whole ms.
    assert stamps[0] - begin >= 29_000_000
    assert stamps[3] - begin >= 59_000_000


def test_a_new_pace_forgets_what_was_kept(port: int) -> None:
    with connection(port) as line:
        stream(line, "old", 1)
    ask(port, "POST", "/null/pace", {"ttft_ms": 0, "gap_ms": 1})
    assert ask(port, "GET", "/null/truth") == {"writes": {}, "cpu_share": None, "node_cpu_share": None}


def test_a_pace_without_a_gap_is_one_of_a_millisecond(port: int) -> None:
    ask(port, "POST", "/null/pace", {"ttft_ms": 0, "gap_ms": 0})
    with connection(port) as line:
        assert len(stream(line, "a", 3)) == 5


def test_cpu_is_that_between_the_first_and_the_last_write(port: int) -> None:
    ask(port, "POST", "/null/pace", {"ttft_ms": 0, "gap_ms": 1})
    with connection(port) as line:
        stream(line, "a", 200)
    told = ask(port, "GET", "/null/truth")
    assert 0 < told["cpu_share"] <= 1.5
    assert 0 <= told["node_cpu_share"] <= 1


@pytest.mark.parametrize("body", [{"max_tokens": 3}, {"rid": "a"}, {"rid": "a", "max_tokens": 0}])
def test_a_request_without_an_id_or_tokens_is_refused(port: int, body: dict[str, object]) -> None:
    with connection(port) as line:
        line.request("POST", "/v1/completions", json.dumps(body))
        assert line.getresponse().status == 400


def test_a_client_that_leaves_ends_its_stream_only(port: int) -> None:
    ask(port, "POST", "/null/pace", {"ttft_ms": 0, "gap_ms": 1})
    with connection(port) as gone, connection(port) as stays:
        gone.request("POST", "/v1/completions", json.dumps({"rid": "gone", "max_tokens": 100_000}))
        gone.getresponse().read(10)
        gone.close()
        assert len(stream(stays, "stays", 300)) == 302
    assert len(ask(port, "GET", "/null/truth")["writes"]["gone"]) < 100_000


def test_it_ends_with_the_process_that_started_it() -> None:
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = subprocess.Popen([*COMMAND, "--parent-pid", str(parent.pid)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    json.loads(process.stdout.readline())
    assert psutil.pid_exists(process.pid)
    parent.communicate(b"\n")
    assert process.wait(LIMIT_S) == 0
    process.stdout.close()
