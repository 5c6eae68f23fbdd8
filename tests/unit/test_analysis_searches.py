"""What searches.json holds: an entry an arm and search."""

from __future__ import annotations

from raybench.analysis.searches import search_entries, searches_of
from raybench.scenario.search_block import SearchBlock

BLOCK = SearchBlock.model_validate({"over": "concurrency", "slo": {"ttft_ms_p95": 1}, "maximum": 2}).model_dump()
MANIFEST = {
    "scenario": {
        "arms": {"a": {}, "b": {}},
        "workloads": [
            {"name": "both", "arms": None, "search": BLOCK},
            {"name": "one", "arms": ["b"], "search": BLOCK},
            {"name": "levels", "arms": None, "search": None},
        ],
    }
}


def test_a_search_has_an_entry_for_each_arm_that_runs_its_workload() -> None:
    assert list(searches_of(MANIFEST)) == ["both", "one"]
    entries = search_entries(MANIFEST, [], {}, {})
    assert [(one["arm"], one["workload"]) for one in entries] == [("a", "both"), ("b", "both"), ("b", "one")]
    assert {one["status"] for one in entries} == {"unfinished"}
