"""A run directory through a job's log and out again, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raybench.cluster import archive
from raybench.cluster.archive import Importer, export
from raybench.cluster.events import read_line
from raybench.errors import ClusterError, RunDirectoryError

Events = list[dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    (path / "parts" / "arm" / "load").mkdir(parents=True)
    (path / "manifest.json").write_text("{}")
    (path / "parts" / "arm" / "load" / "w000.arrows").write_bytes(os.urandom(900_000))
    (path / "empty").mkdir()
    return path


def exported(run: Path) -> Events:
    lines: list[str] = []
    export(run, lines.append)
    events = [read_line(line) for line in lines]
    assert all(event is not None and event["kind"] == "archive" for event in events)
    return [event for event in events if event is not None]


def content(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def imported(events: Events, target: Path) -> Importer:
    importer = Importer()
    for event in events:
        importer.take(event)
    if importer.complete:
        importer.unpack(target)
    return importer


def test_a_run_directory_comes_back_as_it_was(run: Path, tmp_path: Path) -> None:
    events = exported(run)
    assert len(events) > 3, "the test wants several pieces"
    assert imported(events, tmp_path / "home").complete
    assert content(tmp_path / "home") == content(run)


def test_pieces_that_come_twice_are_taken_once(run: Path, tmp_path: Path) -> None:
    """The log's connection may break; it is then read again from its start."""
    events = exported(run)
    assert imported([*events[:2], *events], tmp_path / "home").complete
    assert content(tmp_path / "home") == content(run)


def test_a_log_that_ends_early_is_not_complete(run: Path, tmp_path: Path) -> None:
    assert not imported(exported(run)[:-1], tmp_path / "home").complete
    assert not (tmp_path / "home").exists()


def drop(events: Events) -> Events:
    return [events[0], *events[2:]]


def swap(events: Events) -> Events:
    return [events[1], events[0], *events[2:]]


def change(events: Events) -> Events:
    data = str(events[1]["data"])
    other = "A" if data[100] != "A" else "B"
    return [events[0], events[1] | {"data": data[:100] + other + data[101:]}, *events[2:]]


def shorten(events: Events) -> Events:
    return [events[0], events[1] | {"data": str(events[1]["data"])[:-3]}, *events[2:]]


def garble(events: Events) -> Events:
    return [events[0], events[1] | {"data": "~~~~"}, *events[2:]]


@pytest.mark.parametrize("damage", [drop, swap, change, shorten, garble])
def test_a_damaged_archive_is_refused_and_nothing_is_unpacked(
    run: Path, tmp_path: Path, damage: Callable[[Events], Events]
) -> None:
    with pytest.raises(ClusterError, match="came back damaged"):
        imported(damage(exported(run)), tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_newer_copy_replaces_the_files_of_an_older_one(run: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    imported(exported(run), home)
    (run / "manifest.json").write_text('{"newer": true}')
    imported(exported(run), home)
    assert (home / "manifest.json").read_text() == '{"newer": true}'


def test_a_run_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no such run directory on this node"):
        export(tmp_path / "missing", print)


def test_pieces_are_small_enough_for_a_line_of_log(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    export(run, lines.append)
    assert max(map(len, lines)) < archive.PIECE_BYTES * 4 / 3 + 200
