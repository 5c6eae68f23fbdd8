"""Every lie of the gallery is caught by its own finding, and no honest engine is accused."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from gallery import CASES, HONEST, LIES, Case, Judged, show, summary

DOCUMENT = (Path(__file__).parents[2] / "docs" / "VALIDITY.md").read_text(encoding="utf-8")


#: What a busy machine makes of a rate: here the client and the engine share one process with all others.
OF_A_BUSY_MACHINE = {"schedule_not_kept", "rate_not_sustained"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judged]:
    """All runs, once."""
    folder = tmp_path_factory.mktemp("gallery")
    return {result.case.name: result for result in asyncio.run(show(CASES, folder))}


@pytest.mark.parametrize("case", LIES, ids=lambda case: case.name)
def test_no_number_of_a_liar_is_accepted_and_its_finding_says_why(case: Case, results: dict[str, Judged]) -> None:
    result = results[case.name]
    assert "accepted" not in result.verdicts
    assert result.right, (result.verdicts, result.findings, result.reason)


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_engine_is_accepted(case: Case, results: dict[str, Judged]) -> None:
    result = results[case.name]
    assert result.verdicts == ["accepted"], (result.findings, result.reason)
    if case.warns is not None:
        assert case.warns in result.findings


def test_an_honest_engine_without_a_quirk_has_no_finding_at_all(results: dict[str, Judged]) -> None:
    told = {
        case.name: results[case.name].findings.keys() - OF_A_BUSY_MACHINE for case in HONEST if case.warns is None
    }
    assert {name: codes for name, codes in told.items() if codes} == {}


def test_ghosts_are_aborted_by_their_ids(results: dict[str, Judged]) -> None:
    (step,) = [step for step in results["ghosts"].steps if step["step"] == "ghosts"]
    assert step["status"] == "done"
    assert step["given_up"] == step["aborted"] > 0


def test_o_p2_the_rank_that_kept_its_cache_is_named(results: dict[str, Judged]) -> None:
    assert "requests of DP1" in results["rank_below_the_mean"].findings["hit_rate_exceeded"][1]
    assert "DP1" in results["flush_partial"].findings["flush_partial"][1]


def test_foreign_traffic_is_told_in_numbers(results: dict[str, Judged]) -> None:
    assert re.search(r": \d+ came from elsewhere", results["foreign"].findings["foreign_traffic"][1])


def test_the_gallery_is_large_enough_and_its_names_are_unique() -> None:
    assert len(LIES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_summary_counts_what_was_run(results: dict[str, Judged]) -> None:
    assert summary(list(results.values())) == {"lies": len(LIES), "caught": len(LIES), "false_alarms": 0}


# docs/VALIDITY.md


def rows_of(title: str) -> list[list[str]]:
    section = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert section is not None
    return [line.strip("| ").split(" | ") for line in section[1].splitlines() if line.startswith("| `")]


def test_the_document_lists_every_lie_with_its_finding() -> None:
    assert rows_of("Lies") == [[f"`{case.name}`", case.what, f"`{case.caught_by}`", "void"] for case in LIES]


def test_the_document_lists_every_honest_engine_and_what_is_told_of_it() -> None:
    told = [[f"`{case.name}`", case.what, f"`{case.warns}`" if case.warns else "-", "accepted"] for case in HONEST]
    assert rows_of("Honest engines") == told


def test_the_document_states_the_result() -> None:
    result = f'{{"lies": {len(LIES)}, "caught": {len(LIES)}, "false_alarms": 0}}'
    assert result in DOCUMENT
    assert f"{len(HONEST)} honest" in DOCUMENT
