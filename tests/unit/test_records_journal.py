"""records/journal.py: a line is true once it is in the file, and a torn one is told."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.errors import RunDirectoryError
from raybench.records.journal import Journal, read_journal


class TickClock:
    """Both clocks move by one at each reading."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1)

    def monotonic_ns(self) -> int:
        return next(self._ticks)

    def unix_ns(self) -> int:
        return 10**18 + next(self._ticks)


def events(path: Path) -> list[object]:
    return [line["event"] for line in read_journal(path)]


def test_every_line_carries_both_clocks_and_its_fields(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", TickClock())
    journal.append("step", point_id="a/16k/c1", detail={"hit_rate": float("nan")})
    journal.append("run_ended", status="ok")
    assert read_journal(journal.path) == [
        {
            "event": "step",
            "unix_ns": 10**18 + 1,
            "monotonic_ns": 2,
            "point_id": "a/16k/c1",
            "detail": {"hit_rate": None},
        },
        {"event": "run_ended", "unix_ns": 10**18 + 3, "monotonic_ns": 4, "status": "ok"},
    ]
    for line in journal.path.read_bytes().splitlines():
        json.loads(line, parse_constant=lambda constant: pytest.fail(constant))


def test_an_instant_that_the_caller_measured_takes_the_place_of_the_stamp(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", TickClock())
    journal.append("load_started", unix_ns=7)
    assert read_journal(journal.path)[0]["unix_ns"] == 7


def test_a_line_is_in_the_file_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    journal = Journal(tmp_path / "journal.jsonl", TickClock())
    monkeypatch.setattr("raybench.records.journal.os.fsync", lambda file: synced.append(journal.path.read_bytes()))
    journal.append("point_committed")
    assert [b"point_committed" in data for data in synced] == [True]


def test_a_torn_last_line_is_reported_and_the_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"run_started"}\n{"event":"point_comm')
    assert read_journal(path) == [
        {"event": "run_started"},
        {"event": "torn_line", "line": 2, "dropped_bytes": 20},
    ]


def test_a_line_without_its_end_is_torn_even_if_it_parses(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"point_committed"}')
    assert events(path) == ["torn_line"]


def test_a_torn_line_stays_torn_when_the_journal_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"point_committed"}')
    Journal(path, TickClock())
    assert read_journal(path)[0] == {"event": "torn_line", "line": 1, "dropped_bytes": 27}


def test_a_reopened_journal_goes_on_behind_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"run_started"}\n{"event":"st')
    Journal(path, TickClock()).append("step")
    assert events(path) == ["run_started", "torn_line", "journal_reopened", "step"]


@given(st.lists(st.integers(0, 200), max_size=4))
def test_any_number_of_deaths_while_writing_leaves_a_readable_journal(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    whole: list[int] = []
    for round_number, cut in enumerate(cuts):
        before = path.stat().st_size if path.exists() else 0
        journal = Journal(path, TickClock())
        journal.append("round", number=round_number)
        journal.append("end")
        journal.close()
        data = path.read_bytes()
        size = max(before, len(data) - cut)
        path.write_bytes(data[:size])
        if f'"number":{round_number}}}\n'.encode() in data[before:size]:
            whole.append(round_number)
    Journal(path, TickClock()).append("last")
    lines = read_journal(path)
    assert [line["number"] for line in lines if line["event"] == "round"] == whole
    assert lines[-1]["event"] == "last"


@pytest.mark.parametrize("broken", [b'{"event":"st', b"[]", b'{"no":"event"}', b""])
def test_a_broken_line_that_no_crash_explains_is_an_error(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"run_started"}\n' + broken + b'\n{"event":"run_ended"}\n')
    with pytest.raises(RunDirectoryError, match=r"journal\.jsonl:2: not"):
        read_journal(path)


def test_a_missing_journal_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"journal\.jsonl: cannot be read"):
        read_journal(tmp_path / "journal.jsonl")
