"""Events in a job's log: lines that can be told from text, whole or not at all."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.cluster.events import MARK, LineSplitter, event_line, read_line


def test_an_event_comes_back_as_it_was_written() -> None:
    line = event_line("outcome", status="complete", reason="1k→128 is void\nsecond line", left_s=None)
    assert "\n" not in line
    assert read_line(line) == {
        "kind": "outcome",
        "status": "complete",
        "reason": "1k→128 is void\nsecond line",
        "left_s": None,
    }


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Traceback (most recent call last):",
        '{"kind": "outcome"}',
        " " + MARK + '{"kind": "outcome"}',
        MARK,
        MARK + '{"kind": "outc',
        MARK + "[1, 2]",
        MARK + '{"status": "complete"}',
    ],
)
def test_text_and_damaged_events_are_no_events(line: str) -> None:
    assert read_line(line) is None


def test_an_event_never_holds_what_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        event_line("snapshot", output_tokens_per_s=float("inf"))


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n")), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_lines_do_not_depend_on_where_the_log_was_cut(lines: list[str], cuts: list[int]) -> None:
    """The last one has no end yet."""
    text = "\n".join(lines)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    splitter = LineSplitter()
    got = [line for start, end in itertools.pairwise(edges) for line in splitter.feed(text[start:end])]
    assert got == lines[:-1]


@given(st.dictionaries(st.sampled_from("abc"), st.none() | st.booleans() | st.integers() | st.text()))
def test_any_fields_survive(fields: dict[str, object]) -> None:
    event = read_line(event_line("snapshot", **fields))
    assert event == json.loads(json.dumps({"kind": "snapshot", **fields}))
