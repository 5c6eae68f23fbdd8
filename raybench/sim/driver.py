"""Ties the engine to wall time: one timer that fires when the next step ends, and wakes the answers.

A turn handles all steps that ended meanwhile, so steps shorter than a millisecond are batched, and so is
everything while the process is short of CPU. Runs in the simulator's event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from dataclasses import dataclass
from uuid import uuid4

import numpy as np

from raybench.sim.clock import VirtualClock
from raybench.sim.engine import Engine
from raybench.sim.request import Request

#: Shortest pause between two turns, in seconds.
TURN_S_MIN = 0.001
#: Requests remembered for /sim/state.
ARRIVALS_MAX = 100_000
#: Prompt of another client's request.
FOREIGN_TOKENS = 64


@dataclass(slots=True)
class Arrival:
    """The truth about one request of a client. first_page: a hash of the ids of its first page.

    end_unix_s: when the engine let go of it, just before the client could know; None while it is inside.
    """

    rid: str
    unix_s: float
    input_tokens: int
    first_page: str
    output_tokens: int = 0
    cached_tokens: int = 0
    retractions: int = 0
    finish: str | None = None
    end_unix_s: float | None = None


class Driver:
    """Submits, aborts and wakes. `arrivals` are the clients' requests, oldest first."""

    def __init__(self, engine: Engine, clock: VirtualClock) -> None:
        self.engine = engine
        self.clock = clock
        self.arrivals: deque[Arrival] = deque(maxlen=ARRIVALS_MAX)
        #: time.monotonic() of the last turn that gave out a token.
        self.last_output_s = 0.0
        self._streams: dict[str, tuple[asyncio.Event, Arrival]] = {}
        self._ghosts: set[Request] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, rid: str) -> bool:
        """Whether a request of this id is being answered."""
        return rid in self._streams

    def warm_up(self, request: Request) -> None:
        """Carry out a request at once, before anything is served; virtual time goes on past it."""
        self.engine.submit(request, self.engine.now)
        while (end := self.engine.next_time) is not None:
            self.engine.advance(end)
        self.engine.forget_peaks()
        self.clock.skip(self.engine.now)

    def submit(self, request: Request) -> asyncio.Event:
        """Hand over a request; the event is set whenever it has news, and at once if it was refused."""
        now = self._catch_up()
        page = np.ascontiguousarray(request.prompt[: self.engine.profile.page_tokens], dtype=np.uint32)
        first_page = hashlib.blake2b(page.tobytes(), digest_size=8).hexdigest()
        arrival = Arrival(request.rid, self.clock.unix(now), len(request.prompt), first_page)
        if not request.internal:
            self.arrivals.append(arrival)
            self._beside(now)
        news = asyncio.Event()
        self._streams[request.rid] = news, arrival
        self.engine.submit(request, now)
        if request.finish is not None:
            news.set()
        elif self._timer is None:
            self._set_timer(0.0)
        return news

    def _beside(self, now: float) -> None:
        """What faults let happen as a client's request arrives: a restart, a request of somebody else."""
        faults = self.engine.faults
        faults.arrives()
        if faults.restarts_now():
            self.engine.restart()
        if output := faults.foreign_due():
            prompt = np.random.default_rng(len(self.arrivals)).integers(0, 2**20, FOREIGN_TOKENS, dtype=np.uint32)
            self.engine.submit(Request(f"foreign-{uuid4().hex}", prompt, output), now)

    def abort(self, prefix: str) -> None:
        """End all requests whose id begins with `prefix`."""
        now = self._catch_up()
        self._wake(self.engine.abort(prefix, now))
        self._plan_turn()

    def leave(self, request: Request) -> None:
        """The answer is over. If the request is still inside, its client went away: end it.

        As a ghost it goes on, and is known by its id until it ends or somebody aborts it.
        """
        now = self._catch_up()
        if request.finish is None and self.engine.faults.ghosts:
            self._ghosts.add(request)
            return
        if request.finish is None:
            self.engine.cancel(request, now)
            self._plan_turn()
        self._forget(request, now)

    def _forget(self, request: Request, now: float) -> None:
        _, arrival = self._streams.pop(request.rid)
        assert request.finish is not None
        arrival.output_tokens = request.output
        arrival.cached_tokens = request.cached
        arrival.retractions = request.retractions
        arrival.finish = request.finish.kind
        if arrival.end_unix_s is None:
            arrival.end_unix_s = self.clock.unix(now)

    def idle(self) -> bool:
        """Whether a flush would be carried out now."""
        return self.engine.idle(self._catch_up())

    def close(self) -> None:
        """No turn any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _catch_up(self) -> float:
        """Handle all steps that have ended by now, the virtual moment that is returned.

        Comes before anything from outside: a turn may be late, and what comes now must not get into a step
        that began before it came.
        """
        now = self.clock.now()
        touched = self.engine.advance(now)
        if touched:
            self.last_output_s = time.monotonic()
            self._wake(touched)
        return now

    def _turn(self) -> None:
        self._catch_up()
        self._plan_turn()

    def _plan_turn(self) -> None:
        self.close()
        end = self.engine.next_time
        if end is not None:
            self._set_timer(max(self.clock.wall(end - self.clock.now()), TURN_S_MIN))

    def _set_timer(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._turn)

    def _wake(self, requests: list[Request]) -> None:
        now = self.clock.now()
        for request in requests:
            if request.rid in self._streams:
                news, arrival = self._streams[request.rid]
                if request.finish is not None:
                    arrival.end_unix_s = self.clock.unix(now)
                news.set()
            if request.finish is not None and request in self._ghosts:
                self._ghosts.remove(request)
                self._forget(request, now)
