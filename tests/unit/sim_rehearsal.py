"""Steps the simulated engine by hand, in virtual time: what the unit tests of `raybench/sim` share."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from raybench.scenario.sim_block import Sim, SimFaults
from raybench.sim.engine import Engine
from raybench.sim.faults import Faults, Preload
from raybench.sim.profiles import make_profile
from raybench.sim.request import Request


def make_engine(
    sim: Sim | None = None,
    *,
    faults: SimFaults | None = None,
    preload: Preload | None = None,
    log: list[str] | None = None,
    **changes: object,
) -> Engine:
    """An engine of `sim`; `changes` are fields of its profile."""
    sim = sim or Sim()
    profile = replace(make_profile(sim), **changes)  # type: ignore[arg-type]
    lines: list[str] = [] if log is None else log
    return Engine(
        profile, Faults(faults or sim.faults, preload), seed=sim.seed, log=lambda line, rank: lines.append(line)
    )


def prompt(seed: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 32_000, tokens, dtype=np.uint32)


def ask(rid: str, ids: np.ndarray, output: int = 4, **fields: object) -> Request:
    return Request(rid, ids, output, **fields)  # type: ignore[arg-type]


def drain(engine: Engine) -> None:
    """Go on until nothing is left to do."""
    while (end := engine.next_time) is not None:
        engine.advance(end)


def answer(engine: Engine, request: Request) -> Request:
    """One request on its own, when the engine is idle."""
    engine.submit(request, engine.now + 1.0)
    drain(engine)
    return request


def closed_loop(engine: Engine, requests: Iterable[Request], concurrency: int) -> list[Request]:
    """Exactly `concurrency` requests inside, until none is left to send."""
    everything = list(requests)
    unsent = deque(everything)
    for _ in range(min(concurrency, len(unsent))):
        engine.submit(unsent.popleft(), engine.now)
    while (end := engine.next_time) is not None:
        for request in engine.advance(end):
            if request.finish is not None and unsent:
                engine.submit(unsent.popleft(), engine.now)
    return everything
