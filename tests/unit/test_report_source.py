"""What a report reads of a run's folder."""

from __future__ import annotations

from pathlib import Path

from raybench.records.strict_json import write_json
from raybench.report.source import _entries


def test_a_search_that_found_no_point_is_told_by_its_arm_alone(tmp_path: Path) -> None:
    path = tmp_path / "searches.json"
    write_json(path, [{"arm": "a", "point_id": None}, {"arm": "a", "point_id": "a/w/c4"}, {"arm": "b"}])
    assert list(_entries(path, {"a": "a @ run"})) == [
        {"arm": "a @ run", "point_id": None},
        {"arm": "a @ run", "point_id": "a/w/c4", "name": "a @ run/w/c4"},
    ]
