"""One request inside the simulated engine: what was asked, where it stands, what it has taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

#: Status of a request that was refused because too many wait.
UNAVAILABLE = 503


@dataclass(frozen=True)
class Finish:
    """How a request ended. `status` and `message` are set on an abort, where the engine has them."""

    kind: Literal["length", "abort", "stop"]
    message: str | None = None
    status: int | None = None


@dataclass(slots=True, eq=False)
class Request:
    """Times are virtual seconds. The first block is the caller's, the rest is the engine's.

    prefilled: tokens of `target` whose KV exists; `target` is the prompt, plus the output so far after a
    retraction. private_pages: pages held outside the prefix tree; locked_pages: leading pages held in it.
    cached_device / cached_host: prompt tokens found in the cache at the first admission. found_again: tokens of
    its own KV found at later ones, after retractions. rank: the data-parallel rank that serves it.
    stops_at: output at which the model ends the answer by itself; None: it does not. pace: it gets a token at
    each n-th of the decode steps that it is part of, of which there were `steps`. correct_drafts: of its
    `verify_steps`, how many accepted 0, 1, ... all drafts.
    """

    rid: str
    prompt: np.ndarray
    max_new_tokens: int
    ignore_eos: bool = True
    stream: bool = True
    internal: bool = False

    arrival: float = 0.0
    keys: list[int] = field(default_factory=list)
    held_pages: int = 0
    rank: int = 0
    stops_at: int | None = None
    ring_start: int = 0
    chance_state: int = 0
    pace: int = 1
    steps: int = 0
    target: int = 0
    prefilled: int = 0
    private_pages: int = 0
    locked_pages: int = 0
    output: int = 0
    cached_device: int = 0
    cached_host: int = 0
    found_again: int = 0
    retractions: int = 0
    verify_steps: int = 0
    correct_drafts: list[int] = field(default_factory=list)
    admitted_at: float | None = None
    ready_at: float = 0.0
    first_token_at: float | None = None
    last_token_at: float | None = None
    finished_at: float | None = None
    finish: Finish | None = None

    @property
    def length(self) -> int:
        """Tokens of the sequence so far."""
        return len(self.prompt) + self.output

    @property
    def length_max(self) -> int:
        return len(self.prompt) + self.max_new_tokens

    @property
    def output_max(self) -> int:
        """Tokens at which the answer ends, by its budget or by itself."""
        return self.max_new_tokens if self.stops_at is None else min(self.max_new_tokens, self.stops_at)

    @property
    def refusal(self) -> Finish | None:
        """How the scheduler refused it, if it did."""
        return self.finish if self.finish is not None and self.finish.status is not None else None

    @property
    def cached(self) -> int:
        return self.cached_device + self.cached_host

    @property
    def accept_length(self) -> float | None:
        """Mean tokens of a verify step, the bonus token included; None without speculation."""
        if not self.verify_steps:
            return None
        return self.output / self.verify_steps
