"""Evidence of an honest attempt, and ways to spoil it: what the tests of the checks share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from request_rows import failed, ns, request

from raybench.engines.contract import Counters
from raybench.protocol.checks import judge
from raybench.protocol.evidence import Evidence
from raybench.protocol.target import ServerView
from raybench.protocol.verdict import Finding, Verdict
from raybench.records.schema import REQUESTS
from raybench.scenario.plan import Point
from raybench.scenario.schema import Guards

C, N = 2, 6
INPUT, OUTPUT = 1024, 16
POINT = Point(
    point_id="arm/load/c2",
    arm="arm",
    workload="load",
    concurrency=C,
    requests=N,
    input_tokens=INPUT,
    output_tokens=OUTPUT,
    active_limit=None,
    queueing=None,
    skip_reason=None,
)
BEFORE = Counters(10, 5000, 800, 4, 5000, 4, 3)


def after(**deltas: float) -> Counters:
    """The counters after the load of an honest attempt: `deltas` above BEFORE, ours by default."""
    ours = {
        "requests": N,
        "input_tokens": N * INPUT,
        "output_tokens": N * OUTPUT,
        "cached_tokens": 0,
        "prefix_queried_tokens": N * INPUT,
        "prefix_hit_tokens": 0,
        "preemptions": 0,
    }
    return Counters(**{name: getattr(BEFORE, name) + delta for name, delta in (ours | deltas).items()})


def rows(changes: Mapping[int, Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Two slots, three requests of a second each, back to back; `changes` by ticket."""
    whole = [
        request(
            ticket,
            ticket // C,
            ticket // C + 1,
            output_tokens=OUTPUT,
            input_tokens=INPUT,
            output_tokens_asked=OUTPUT,
            cached_tokens=0,
            first_token_ns=ns(ticket // C + 0.25),
            last_token_ns=ns(ticket // C + 1),
        )
        for ticket in range(N)
    ]
    return [row | dict((changes or {}).get(number, {})) for number, row in enumerate(whole)]


def table(whole: list[dict[str, Any]]) -> pa.Table:
    """On one host whose anchor is zero: unix and monotonic stamps are the same."""
    schema = REQUESTS.append(pa.field("sent_unix_ns", pa.int64())).append(pa.field("end_unix_ns", pa.int64()))
    stamped = [{"sent_unix_ns": row["sent_ns"], "end_unix_ns": row["end_ns"]} | row for row in whole]
    return pa.Table.from_pylist(stamped, schema=schema)


def broken(
    ticket: int, sent_s: float, end_s: float, outcome: str, error_class: str, **changes: Any
) -> dict[str, Any]:
    """A failed request of the size of all others."""
    asked = {"input_tokens_asked": INPUT, "output_tokens_asked": OUTPUT}
    return failed(ticket, sent_s, end_s, outcome, error_class, **(asked | changes))


def evidence(whole: list[dict[str, Any]] | None = None, **changes: Any) -> Evidence:
    honest = Evidence(
        point=POINT,
        requests=table(rows() if whole is None else whole),
        before=ServerView("pid-1", BEFORE),
        after=ServerView("pid-1", after()),
    )
    return replace(honest, **changes)


def verdict(given: Evidence, guards: Guards | None = None, attempts_left: int = 1) -> Verdict:
    judged = judge(given, guards or Guards(), attempts_left=attempts_left)
    json.dumps(judged.as_record(), allow_nan=False)  # it goes into the journal
    return judged


def findings(given: Evidence, guards: Guards | None = None) -> dict[str, Finding]:
    return {finding.code: finding for finding in verdict(given, guards).findings}


def only(given: Evidence, code: str, guards: Guards | None = None) -> Finding:
    """The one finding of this evidence."""
    found = findings(given, guards)
    assert list(found) == [code], list(found)
    return found[code]


def hits(cached: list[int | None]) -> list[dict[str, Any]]:
    return rows({ticket: {"cached_tokens": value} for ticket, value in enumerate(cached)})
