"""What the coordinator tells a load worker about one attempt. Plain data that travels over Ray."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from raybench.corpus.prompts import Prompt
from raybench.engines.contract import RequestShape
from raybench.load.pacer import Sends
from raybench.scenario.extra_body import merged
from raybench.scenario.schema import Arm, Load, Tls


@dataclass(frozen=True)
class Endpoint:
    """Where and how to reach an engine. `headers` hold no secret: keys come from the environment.

    load_urls: further addresses of the same engine, over which load is spread; control calls go to `url`.
    api_key_env: name of the environment variable, on the worker's node, that holds the bearer key.
    """

    url: str
    engine: str
    headers: dict[str, str] = field(default_factory=dict)
    api_key_env: str | None = None
    tls: Tls = field(default_factory=Tls)
    load_urls: tuple[str, ...] = ()

    @classmethod
    def of_arm(cls, arm: Arm, url: str) -> Endpoint:
        """The arm's engine at `url`, which is its own or that of what was launched for it."""
        return cls(url, arm.engine, dict(arm.headers), arm.api_key_env, arm.tls, tuple(arm.load_urls))


@dataclass(frozen=True)
class OrderKey:
    """Which set of orders: by this, workers and the coordinator know what each other's calls are about."""

    point_id: str
    attempt: int
    phase: str


@dataclass(frozen=True)
class Order:
    """One attempt (or its prewarm) as seen by one worker.

    load: the scenario's block; of its source addresses a worker uses those of its host. windows: start token of
    each ticket's window, int64, indexed by ticket. slots: how many requests this worker keeps in flight. sends:
    its part of an open loop, which has no slots. lengths: input and output tokens by ticket, where they differ
    from the shape's. prompts: of a prompt set, sent in turn instead of the windows, whose numbers then mean
    nothing. rid_prefix: fixed width, unique per attempt and phase; the rid is this plus the eight-digit ticket.
    first_route: where this worker begins in the round of addresses (`load/routes.py`): the slots of the workers
    before it, in an open loop their number.
    """

    point_id: str
    attempt: int
    phase: str
    endpoint: Endpoint
    shape: RequestShape
    load: Load
    slots: int
    windows: np.ndarray
    rid_prefix: str
    first_route: int = 0
    sends: Sends | None = None
    lengths: npt.NDArray[np.int64] | None = None
    prompts: tuple[Prompt, ...] = ()

    @property
    def key(self) -> OrderKey:
        return OrderKey(self.point_id, self.attempt, self.phase)

    def prompt_of(self, ticket: int) -> Prompt | None:
        """What this request sends of the prompt set; None when it sends a window."""
        return self.prompts[ticket % len(self.prompts)] if self.prompts else None

    def shape_of(self, ticket: int) -> RequestShape:
        """What this request asks for."""
        prompt = self.prompt_of(ticket)
        if prompt is not None:
            extra_body = merged(self.shape.extra_body, prompt.extra_body)
            return replace(self.shape, output_tokens=prompt.output_tokens, extra_body=extra_body)
        if self.lengths is None:
            return self.shape
        input_tokens, output_tokens = self.lengths[ticket].tolist()
        return replace(self.shape, input_tokens=input_tokens, output_tokens=output_tokens)

    def rid(self, ticket: int) -> str:
        return rid_of(self.rid_prefix, ticket)


def rid_of(prefix: str, ticket: int) -> str:
    """A request's id: of fixed width, so that none begins with another."""
    return f"{prefix}-{ticket:08d}"


@dataclass(frozen=True)
class WorkerSummary:
    """What a worker says at the end of an order; the records themselves are in its part file.

    sent: how many requests it began. given_up: ids of those whose answer it did not read to the end, which may go
    on in the engine.
    link_changes: how often its host's link to the engine went down or came up meanwhile; None = not known.
    """

    worker: str
    sent: int
    given_up: tuple[str, ...] = ()
    link_changes: int | None = None
