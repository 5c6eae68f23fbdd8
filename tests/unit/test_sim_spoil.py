"""Streams that are spoiled on their way, piece by piece."""

from typing import get_args

import pytest

from raybench.scenario.sim_block import AnswerFault
from raybench.sim.generate_wire import DONE
from raybench.sim.spoil import ERROR, GARBLED, Piece, Stream

FIRST, LAST = b"data: {1}\n\n", b"data: {2}\n\n"


def pieces(fate: AnswerFault | None) -> list[Piece]:
    """All that is sent of a stream of two events, up to where it ends."""
    stream = Stream(fate, "rid", 7)
    sent = [stream.opening()]
    for events, ended in ((FIRST, False), (LAST, True)):
        if sent[-1].then == "more":
            sent.append(stream.piece(events, ended=ended))
    return sent


def test_an_honest_stream_is_sent_as_it_is() -> None:
    assert pieces(None) == [Piece(b""), Piece(FIRST), Piece(LAST + DONE, "end")]


@pytest.mark.parametrize(
    ("fate", "data", "then"),
    [
        ("silent", b"", "silence"),
        ("stalled", FIRST, "silence"),
        ("cut", FIRST[: len(FIRST) // 2], "break"),
        ("unended", FIRST, "end"),
        ("garbled", FIRST + GARBLED + DONE, "end"),
        ("in_one_piece", FIRST + LAST + DONE, "end"),
        ("error_event", FIRST + ERROR + DONE, "end"),
        ("error_first", ERROR + DONE, "end"),
    ],
)
def test_a_spoiled_stream(fate: AnswerFault, data: bytes, then: str) -> None:
    sent = pieces(fate)
    assert b"".join(piece.data for piece in sent) == data
    assert sent[-1].then == then


def test_a_stream_that_is_held_back_sends_nothing_before_its_end() -> None:
    assert [bool(piece.data) for piece in pieces("in_one_piece")] == [False, False, True]


def test_an_empty_answer_ends_well_and_holds_no_token() -> None:
    sent = b"".join(piece.data for piece in pieces("empty"))
    assert b'"completion_tokens":0' in sent
    assert sent.endswith(DONE)
    assert FIRST not in sent


@pytest.mark.parametrize("fate", get_args(AnswerFault))
def test_every_stream_comes_to_something(fate: AnswerFault) -> None:
    assert pieces(fate)[-1].then != "more"
