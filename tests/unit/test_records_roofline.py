"""Rooflines on disk: what was stored comes back, and what is not one is refused with the way out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_protocol_client_checks import roofline

from raybench.errors import RunDirectoryError
from raybench.records.roofline import Step, store_roofline, stored_rooflines

STEP = Step("streams", 64, 1000, 1, 64.0, 0.1, 0.2, 0.3, 0.4, 0.1, 0.1, 0.05, 0.2, 0.0, None)


def test_what_was_stored_comes_back_by_host(tmp_path: Path) -> None:
    one, other = roofline(steps=(STEP,)), roofline(host="b/../c")
    for each in (one, other):
        assert store_roofline(tmp_path, each).parent == tmp_path / ".roofline"
    assert stored_rooflines(tmp_path) == {"a": one, "b/../c": other}
    assert stored_rooflines(tmp_path, ["a", "unknown"]) == {"a": one}


def test_a_second_measurement_replaces_the_first(tmp_path: Path) -> None:
    for streams in (1, 2):
        store_roofline(tmp_path, roofline(streams=streams))
    assert stored_rooflines(tmp_path)["a"].streams == 2


@pytest.mark.parametrize("text", ["[]", '{"host": "a"}', '{"steps": [{"new": 1}]}', '{"steps": 3}'])
def test_a_file_of_another_kind_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    path = store_roofline(tmp_path, roofline())
    path.write_text(text)
    with pytest.raises(RunDirectoryError, match="measure again with `raybench roofline`"):
        stored_rooflines(tmp_path)


def test_a_folder_that_cannot_be_made_is_told_and_no_trace(tmp_path: Path) -> None:
    (tmp_path / ".roofline").write_text("in the way")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        store_roofline(tmp_path, roofline())


def test_the_best_step_is_the_largest_that_was_carried() -> None:
    steps = (STEP, replace(STEP, streams=128), replace(STEP, streams=256, limited_by="client CPU"))
    measured = roofline(steps=steps)
    best = measured.best("streams")
    assert best is not None
    assert best.streams == 128
    assert measured.best("tokens_per_s") is None
