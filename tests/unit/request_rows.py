"""Request records for tests: whole rows of `records.schema.REQUESTS` from the few values that matter."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from raybench.records.schema import REQUESTS

NS_PER_S = 1_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def request(
    ticket: int,
    sent_s: float,
    end_s: float,
    *,
    first_s: float | None = None,
    last_s: float | None = None,
    output_tokens: int = 1,
    input_tokens: int = 1024,
    **changes: object,
) -> dict[str, object]:
    """A successful request on one time line; first and last token default to the end of the answer."""
    first = end_s if first_s is None else first_s
    row: dict[str, object] = {
        "point_id": "arm/load/c1",
        "attempt": 1,
        "phase": "load",
        "worker": "w0",
        "ticket": ticket,
        "tries": 1,
        "asked_ns": ns(sent_s),
        "connected_ns": ns(sent_s),
        "sent_ns": ns(sent_s),
        "first_token_ns": ns(first),
        "last_token_ns": ns(end_s if last_s is None else last_s),
        "end_ns": ns(end_s),
        "outcome": "ok",
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "input_tokens_asked": input_tokens,
        "output_tokens_asked": output_tokens,
        "tokens_source": "server",
    }
    return row | changes


def failed(
    ticket: int, sent_s: float, end_s: float, outcome: str, error_class: str, **changes: object
) -> dict[str, object]:
    """A request that got no whole answer."""
    row = request(ticket, sent_s, end_s, output_tokens=0, input_tokens=0)
    row |= {"outcome": outcome, "error_class": error_class, "first_token_ns": None, "last_token_ns": None}
    row |= {"input_tokens": None, "tokens_source": "none"}
    return row | changes


def table(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=REQUESTS)
