"""What becomes of a stream that is spoiled on its way: by the engine, or by something in front of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import orjson

from raybench.scenario.sim_block import AnswerFault
from raybench.sim.generate_wire import DONE

COMMENT = b": keep-alive\n\n"
ERROR = b'data: {"error":{"message":"engine stopped","type":"InternalServerError","param":null,"code":500}}\n\n'
GARBLED = b'data: {"text": "and then\n\n'


@dataclass(frozen=True)
class Piece:
    """Bytes to send now, and what comes after them: more, the end, a silence for ever, a broken connection.

    held: in one write, as something in front of the engine sends what it held back; else one for each event.
    """

    data: bytes
    then: Literal["more", "end", "silence", "break"] = "more"
    held: bool = False


class Stream:
    """Pieces of one stream in the order of its events; `fate` None spoils nothing."""

    def __init__(self, fate: AnswerFault | None, rid: str, input_tokens: int) -> None:
        self._fate = fate
        self._held: list[bytes] = []
        self._rid = rid
        self._input_tokens = input_tokens

    def opening(self) -> Piece:
        """Behind the headers, before any token."""
        if self._fate == "error_first":
            return Piece(ERROR + DONE, "end")
        return Piece(b"", "silence" if self._fate == "silent" else "more")

    def piece(self, events: bytes, *, ended: bool) -> Piece:
        """The next events; `ended` with the last of them."""
        honest = Piece(events + DONE, "end") if ended else Piece(events)
        match self._fate:
            case "stalled":
                return Piece(b"" if ended else events, "silence")
            case "cut":
                return Piece(events[: len(events) // 2], "break")
            case "unended":
                return Piece(b"" if ended else events, "end")
            case "garbled":
                return Piece((b"" if ended else events) + GARBLED + DONE, "end")
            case "error_event":
                return Piece((b"" if ended else events) + ERROR + DONE, "end")
            case "in_one_piece":
                self._held.append(honest.data)
                return Piece(b"".join(self._held), "end", held=True) if ended else Piece(b"")
            case "empty":
                return Piece(self._nothing() + DONE, "end") if ended else Piece(b"")
            case _:
                return honest

    def _nothing(self) -> bytes:
        """An answer of `/generate` that ends before it begins."""
        told = {
            "id": self._rid,
            "finish_reason": {"type": "stop", "matched": 2},
            "prompt_tokens": self._input_tokens,
            "completion_tokens": 0,
            "cached_tokens": 0,
        }
        return b"data: %b\n\n" % orjson.dumps({"text": "", "output_ids": [], "meta_info": told})
