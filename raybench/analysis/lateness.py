"""How much later a client may see what its engine did, and what explains more than that. Pure.

The rules of `agreement.py`, in milliseconds. Between the two clocks lie the engine's HTTP server, the network and
our reading. What is later than that is explained by the client's own loop, if it was as late, or by the head of
the answer, if the lateness lies before it: with a clock that starts where the client read the head, the same
comparison agrees. SGLang writes the head of a stream and starts its own clock with the next statement
(`stream_results` of `/generate`): the wait for its HTTP process is in no number of its own.
"""

from __future__ import annotations

from typing import Literal

#: Above, and up to: None = without end.
Bounds = tuple[float, float | None]
Judgement = Literal["equal", "agrees", "explained", "flagged"]
#: With the reason, empty where it agrees.
Judged = tuple[Judgement, str]
AGREES: Judged = ("agrees", "")

#: So much, in ms or as a share of the engine's value, whichever is more, is no news.
BETWEEN_MS, BETWEEN_SHARE = 20.0, 0.05
#: We cannot see an answer before the engine does: what is sooner by more than this is a fault of a clock.
SOONER_MS = 1.0


def between_ms(engine_ms: float) -> float:
    """How much later than the engine we may see something that it saw at `engine_ms`."""
    return max(BETWEEN_MS, BETWEEN_SHARE * engine_ms)


def later(least_ms: float, typical_ms: float, limit_ms: float, lag_ms: float | None) -> Judged:
    """least, typical: client minus engine. lag: the latest that the client's loop was; None = not known."""
    if least_ms < -SOONER_MS and lag_ms is not None and -least_ms <= lag_ms:
        return "explained", f"the client's stamps were up to {lag_ms:.0f} ms late"
    if least_ms < -SOONER_MS:
        return "flagged", f"seen {-least_ms:.1f} ms sooner than the engine: a clock or a stamp is wrong"
    if typical_ms <= limit_ms:
        return AGREES
    if lag_ms is not None and typical_ms <= lag_ms:
        return "explained", f"the client read up to {lag_ms:.0f} ms late"
    return "flagged", f"{typical_ms:.1f} ms later than the engine, of which {limit_ms:.1f} ms are no news"


def apart(difference_ms: float, limit_ms: float) -> Judged:
    """Of durations that each side began and ended by its own clock, neither can come too soon."""
    return AGREES if abs(difference_ms) <= limit_ms else ("flagged", f"more than {limit_ms:.1f} ms apart")


def outside_bucket(percent: int, value_ms: float, bounds_ms: Bounds, lag_ms: float | None) -> Judged:
    """The client's percentile against the bucket that holds the engine's own."""
    above, up_to = bounds_ms
    if value_ms < above - SOONER_MS:
        outside_ms = above - value_ms
    elif up_to is None or value_ms <= up_to + between_ms(up_to):
        return AGREES
    else:
        outside_ms = value_ms - up_to
    why = f"P{percent} lies {outside_ms:.1f} ms outside the engine's bucket"
    if lag_ms is not None and outside_ms <= lag_ms:
        return "explained", f"{why}; the client was up to {lag_ms:.0f} ms late"
    return "flagged", why


def before_head(late_ms: float, head_ms: float, otherwise: Judged) -> Judged:
    """Explained by the head. otherwise: without looking at it; what explains it as well is told as well."""
    told = f"{late_ms:.1f} ms later than the engine, {head_ms:.1f} ms passed before the head of the answer"
    judgement, why = otherwise
    return "explained", f"{told}; {why}" if judgement == "explained" else told
