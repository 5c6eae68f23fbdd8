"""The copy of a server's log of its requests: whole, in pieces, from where it ended, and why it cannot be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from protocol_fakes import FakeHost

from raybench.errors import TargetError
from raybench.protocol import request_log
from raybench.protocol.request_log import RequestLogCopy
from raybench.records.rundir import RunDirectory

LOG = "/log.jsonl"


class Unreadable(FakeHost):
    async def read_from(self, arm_name: str, path: str, offset: int, size: int) -> bytes:
        raise TargetError("request_log", f"{path}: no such file")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run")
    made.create()
    return made


def test_a_log_longer_than_one_read_is_copied_in_several_and_only_what_is_new_later(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "READ_BYTES", 4)
    host = FakeHost(files={LOG: b"0123456789"})
    copy = RequestLogCopy(host, run, "arm", LOG)
    assert asyncio.run(copy.pull()) is None
    [path] = run.request_logs("arm")
    assert path.read_bytes() == b"0123456789"
    assert asyncio.run(copy.pull()) is None
    host.files[LOG] += b"abc"
    assert asyncio.run(copy.pull()) is None
    assert path.read_bytes() == b"0123456789abc"


def test_a_log_that_cannot_be_read_is_told(run: RunDirectory) -> None:
    told = asyncio.run(RequestLogCopy(Unreadable(), run, "arm", LOG).pull())
    assert told is not None and "/log.jsonl: no such file" in told
